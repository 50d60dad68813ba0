"""What rankers gain, and whether the mathematics is right."""
