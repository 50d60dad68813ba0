"""Measurements: each module is a command that writes one file below ``benchmarks/results/``."""
