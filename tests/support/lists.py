"""Candidate lists of random lengths, as arrays of one value per row."""

import numpy as np

QUERIES = 40


def lists(queries=QUERIES, shortest=2, longest=9, seed=0):
    """Lengths, the query and the place of every row, labels with one relevant candidate per list, and a generator."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, size=queries)
    query = np.repeat(np.arange(queries), lengths)
    place = np.concatenate([np.arange(length) for length in lengths])
    labels = (place == rng.integers(0, lengths)[query]).astype(np.int32)
    return lengths, query, place, labels, rng
