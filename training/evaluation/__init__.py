"""Evaluation on held-out queries: metrics, intervals, verdicts, and scores as probabilities."""
