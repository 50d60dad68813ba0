"""Suites of ``listwright experiment``: measurements, summaries and pages."""
