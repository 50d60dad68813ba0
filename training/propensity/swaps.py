"""Swap interventions: two places of a list exchanged at random."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from listwright.training.data.tables.judged_rows import collected, scan_judged
from listwright.training.propensity.evidence import MOST_GROUPS, Evidence

_COLUMNS = ("query_id", "position", "label", "unit", "bundle", "experiment", "swapped")
_CELL = ("bundle", "experiment", "shown")


class _Stratum(NamedTuple):
    """Requests of one bundle, one experiment and one length.

    Args:
        clicked: at each place; -1 where nothing was shown.
        swapped: whether the place was part of a swap.
        group: of the request's unit.
    """

    clicked: Int[np.ndarray, "N K"]
    swapped: Bool[np.ndarray, "N K"]
    group: Int[np.ndarray, " N"]


def swap_evidence(path: Path, places: int | None, *, seed: int = 0) -> Evidence | None:
    """Clicks at swapped and at unswapped places.

    Which requests are swapped is drawn at random. So the candidates that a swap moved down are, in distribution, those
    that stayed above elsewhere (Joachims, Swaminathan, Schnabel 2017, section 5.3). That holds among requests of one
    bundle and one experiment, and of as many shown candidates: a pair of a short list is swapped more often. Only these
    are compared with each other.

    Args:
        path: judged rows.
        places: K, from the top; None for the deepest place of any swap.
        seed: of the hash that deals units to groups; a request without a unit is a unit of its own.

    Returns:
        None where nothing was swapped.
    """
    rows = scan_judged(path, _COLUMNS)
    swapped = rows.filter("swapped")
    deepest = collected(swapped.select(pl.col("position").max()), path).item()
    if deepest is None:
        return None
    places = int(deepest) if places is None else places
    lengths = rows.group_by("query_id").agg(pl.len().clip(upper_bound=int(deepest)).alias("shown"))
    rows = rows.join(lengths, on="query_id")
    cells = collected(rows.filter("swapped").select(_CELL).unique(), path).sort(_CELL)
    found = [_stratum(rows, path, cell, places, seed) for cell in cells.iter_rows()]
    pairs = sorted({(int(k), int(j)) for one in found for k, j in _moved(one.swapped) if k >= 0})
    if not pairs:
        return None
    strata = tuple(_sums(one, pairs) for one in found)
    queries = sum(len(one.clicked) for one in found)
    used = sum(int((_moved(one.swapped)[:, 0] >= 0).sum()) for one in found)
    return Evidence("swaps", np.array(pairs), strata, queries, used)


def _stratum(rows: pl.LazyFrame, path: Path, cell: tuple[object, ...], places: int, seed: int) -> _Stratum:
    """The requests of one bundle, experiment and length.

    A request that a swap took beyond the last place counts as swapped at the one that is left.
    """
    same = (pl.col(name).eq_missing(pl.lit(value)) for name, value in zip(_CELL, cell, strict=True))
    unit = pl.coalesce(pl.col("unit").cast(pl.String), pl.col("query_id").cast(pl.String))
    frame = collected(
        rows.filter(*same, pl.col("position") <= places).select(
            pl.col("query_id").rank("dense").alias("query") - 1,
            pl.col("position") - 1,
            pl.col("label") > 0,
            "swapped",
            (unit.hash(seed) % MOST_GROUPS).cast(pl.Int64),
        ),
        path,
    )
    query, place, click, moved, dealt = (frame[name].to_numpy() for name in frame.columns)
    shape = (int(query.max()) + 1, places)
    clicked = np.full(shape, -1, dtype=np.int8)
    clicked[query, place] = click
    part = np.zeros(shape, dtype=bool)
    part[query, place] = moved
    group = np.zeros(shape[0], dtype=np.int64)
    group[query] = dealt
    return _Stratum(clicked, part, group)


def _moved(part: Bool[np.ndarray, "N K"]) -> Int[np.ndarray, "N 2"]:
    """``(N, 2)`` the two places that were exchanged; -1 where there are not two."""
    two = part.sum(axis=1) == 2
    found = np.full((len(part), 2), -1)
    found[two] = np.argwhere(part[two])[:, 1].reshape(-1, 2)
    return found


def _sums(one: _Stratum, pairs: list[tuple[int, int]]) -> Float[np.ndarray, "G P 2 3"]:
    """Of each group, pair and variant: displays, clicks at the upper place, clicks at the lower place."""
    clicked, part, group = one
    moved = _moved(part)
    sums = np.zeros((MOST_GROUPS, len(pairs), 2, 3))
    for number, (upper, lower) in enumerate(pairs):
        shown = (clicked[:, upper] >= 0) & (clicked[:, lower] >= 0)
        plain = shown & ~part[:, upper] & ~part[:, lower]
        swapped = (moved[:, 0] == upper) & (moved[:, 1] == lower)
        for variant, chosen in enumerate((plain, swapped)):
            at = group[chosen]
            values = (np.ones(len(at)), clicked[chosen, upper], clicked[chosen, lower])
            for column, value in enumerate(values):
                sums[:, number, variant, column] = np.bincount(at, value, MOST_GROUPS)
    return sums
