"""Metrics, logs, drift and traces."""
