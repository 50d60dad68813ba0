"""Lists for offline scoring, as a frame for the bundle of ``make_bundle``."""

import numpy as np
import polars as pl

from support.service.bundles import CATEGORY, NUMERIC, rows


def lists(lengths, seed=0):
    """Rows of so many lists, with a column beside the features; categories by name, a few of them unknown."""
    rng = np.random.default_rng(seed)
    count = int(sum(lengths))
    made = rows(rng, count).astype(np.float64)
    names = ("Z9", *CATEGORY.categories)
    return pl.DataFrame(
        {
            "query": np.repeat([f"q{n}" for n in range(len(lengths))], lengths),
            "note": [f"row {n}" for n in range(count)],
            **{name: pl.Series(made[:, d], nan_to_null=True) for d, name in enumerate(NUMERIC)},
            CATEGORY.name: [names[int(code)] for code in made[:, -1]],
        }
    )
