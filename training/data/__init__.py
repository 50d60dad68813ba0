"""Ranking data of every kind, read and split by query: ``load.load`` is the entry point."""
