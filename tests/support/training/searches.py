"""Rows of searches in memory, and parameters that fit them in seconds."""

import numpy as np
import pandas as pd

QUERIES, LENGTH = 40, 6
SMALL = {"encoder_width": 4, "hidden": (4,), "max_epochs": 2, "trials": 1, "max_trees": 5, "folds": 2, "cutoff": 4}


def searched():
    """Rows of 40 queries, shuffled: those of a query do not stand together."""
    rng = np.random.default_rng(0)
    rows = QUERIES * LENGTH
    price = rng.normal(size=rows)
    carrier = rng.choice(["x", "y"], rows)
    clicked = (price + (carrier == "x") + 0.2 * rng.normal(size=rows) > 1.2).astype(int)
    search = np.repeat([f"s{n}" for n in range(QUERIES)], LENGTH)
    columns = {
        "search": search,
        "clicked": clicked,
        "price": price,
        "carrier": carrier,
        "stops": rng.integers(0, 3, rows),
    }
    return pd.DataFrame(columns).sample(frac=1.0, random_state=0)


def features(frame):
    """X of these rows."""
    return frame[["price", "carrier", "stops"]]
