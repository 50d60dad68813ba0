"""The suites of ``listwright experiment``: what each measures, summarises and draws."""
