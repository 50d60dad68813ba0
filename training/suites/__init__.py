"""The suites of ``listwright experiment``: what each measures, sums up and draws."""
