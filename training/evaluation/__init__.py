"""What rankers are worth on held-out queries: metrics, intervals, verdicts, and scores as probabilities."""
