"""Searches for hyperparameters: what may be tried, and how trials are proposed, pruned and remembered."""
