"""Ranking data of every kind, read and split by query: ``load.load`` is where they come in."""
