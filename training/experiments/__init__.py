"""The suites of ``python -m training.experiment``: what each measures, sums up and draws."""
