"""Intervention harvesting: several bundles ranked the same request differently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from listwright.training.data.tables.judged import collected, scan_judged
from listwright.training.propensity.evidence import MOST_GROUPS, Evidence

_COLUMNS = ("query_id", "candidate_id", "position", "label", "bundle")
_KEY = " request"
"""Column with the hash of what was asked: a name that no column of the rows has."""

_RATES, _COUNTS = ("rate", "rate_lower"), ("len", "clicks", "clicks_lower")


def harvest_evidence(path: Path, places: int | None, *, same: str | None, seed: int = 0) -> Evidence | None:
    """Clicks on candidates that different bundles showed at different places.

    Definition (interventional sets, Agarwal et al. 2019, section 4): a request and a candidate belong to the set of two
    places if the candidate was shown at both. Its click rate at each, clicks over displays, counts once.

    Args:
        path: judged rows.
        places: K, from the top; None for all that were shown.
        same: column that says which queries asked the same, a query text for example; None for the shown candidates.
        seed: of the hash that deals requests to groups.

    Returns:
        None where no request was shown in two orders by two bundles.
    """
    rows = scan_judged(path, (*_COLUMNS, *(() if same is None else (same,))))
    rows = rows if places is None else rows.filter(pl.col("position") <= places)
    listed = pl.col("candidate_id").cast(pl.String).sort().str.join("\x1f")
    asked = listed if same is None else pl.col(same).cast(pl.String).first()
    keyed = rows.join(rows.group_by("query_id").agg(asked.hash(seed).alias(_KEY)), on="query_id")
    several = keyed.group_by(_KEY).agg(pl.col("bundle").n_unique().alias("bundles")).filter(pl.col("bundles") > 1)
    shown = (
        keyed.join(several, on=_KEY, how="semi")
        .group_by(_KEY, "candidate_id", "position")
        .agg((pl.col("label") > 0).mean().alias("rate"), (pl.col("label") > 0).sum().alias("clicks"), pl.len())
    )
    both = (
        shown.join(shown, on=[_KEY, "candidate_id"], suffix="_lower")
        .filter(pl.col("position") < pl.col("position_lower"))
        .group_by((pl.col(_KEY) % MOST_GROUPS).alias("group"), "position", "position_lower")
        .agg(pl.len().alias("n"), pl.col(*_RATES, *_COUNTS).sum())
    )
    sums = collected(both, path)
    if sums.height == 0:
        return None
    queries = int(collected(rows.select(pl.col("query_id").n_unique()), path).item())
    used = int(collected(several.select(pl.len()), path).item())
    return _evidence(sums, queries, used)


def _evidence(sums: pl.DataFrame, queries: int, used: int) -> Evidence:
    """Of sums by group and pair of places."""
    pairs = sums.select("position", "position_lower").unique().sort("position", "position_lower")
    numbered = sums.join(pairs.with_row_index("pair"), on=["position", "position_lower"])
    group = numbered["group"].rank("dense").to_numpy().astype(np.int64) - 1
    stratum = np.zeros((int(group.max()) + 1, pairs.height, 2, 3))
    for variant, columns in enumerate((("n", *_RATES), ("len", *_COUNTS[1:]))):
        stratum[group, numbered["pair"].to_numpy(), variant] = numbered.select(columns).to_numpy()
    return Evidence("harvest", pairs.to_numpy().astype(np.int64) - 1, (stratum,), queries, used)
