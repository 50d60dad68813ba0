"""Measurements for a run's page beyond the metrics, as plain values for ``report.json``."""
