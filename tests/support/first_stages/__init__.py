"""Rankers that somebody else made, for tests of first stages that are brought."""
