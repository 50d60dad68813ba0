"""Data, recipes and results for tests of the trainer."""
