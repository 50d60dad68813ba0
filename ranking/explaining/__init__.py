"""Explanations of a ranking: contributions, changes that would lift a candidate, moves of the others without it."""
