"""Swap interventions: two places of a list exchanged at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from listwright.training.comparing.estimates import group_of
from listwright.training.data.tables.judged import collected, scan_judged
from listwright.training.propensity.evidence import MOST_GROUPS, Evidence

_COLUMNS = ("query_id", "position", "label", "bundle", "experiment", "swapped")


def swap_evidence(path: Path, places: int | None, rng: np.random.Generator) -> Evidence | None:
    """Clicks at swapped and at unswapped places.

    Which requests are swapped is drawn at random. So the candidates that a swap moved down are, in distribution, those
    that stayed above elsewhere (Joachims, Swaminathan, Schnabel 2017, section 5.3). Only requests of a bundle and an
    experiment that has swaps are compared, within both.

    Args:
        path: judged rows.
        places: K, from the top; None for the deepest place of any swap.
        rng: deals requests to groups.

    Returns:
        None where nothing was swapped.
    """
    rows = scan_judged(path, _COLUMNS)
    swapped = rows.filter("swapped")
    deepest = collected(swapped.select(pl.col("position").max()), path).item()
    if deepest is None:
        return None
    places = int(deepest) if places is None else places
    cells = collected(swapped.select("bundle", "experiment").unique(), path).sort("bundle", "experiment")
    found = [_cell(rows, path, cell, places) for cell in cells.iter_rows()]
    pairs = sorted({(int(k), int(j)) for _, moved in found for k, j in _moved(moved) if k >= 0})
    if not pairs:
        return None
    strata = tuple(_sums(clicked, moved, pairs, rng) for clicked, moved in found)
    queries = sum(len(clicked) for clicked, _ in found)
    used = sum(int((_moved(moved)[:, 0] >= 0).sum()) for _, moved in found)
    return Evidence("swaps", np.array(pairs), strata, queries, used)


def _cell(
    rows: pl.LazyFrame, path: Path, cell: tuple[object, ...], places: int
) -> tuple[Int[np.ndarray, "N K"], Bool[np.ndarray, "N K"]]:
    """Of the requests of one bundle and experiment: clicks at each place, -1 where nothing was shown; what was swapped.

    A request that a swap took beyond the last place counts as swapped at the one that is left.
    """
    bundle, experiment = (pl.lit(value, dtype=pl.String) for value in cell)
    here = rows.filter(pl.col("bundle").eq_missing(bundle) & pl.col("experiment").eq_missing(experiment))
    frame = collected(
        here.filter(pl.col("position") <= places).select(
            pl.col("query_id").rank("dense").alias("query") - 1, pl.col("position") - 1, pl.col("label") > 0, "swapped"
        ),
        path,
    )
    query, place, click, moved = (frame[name].to_numpy() for name in frame.columns)
    shape = (int(query.max()) + 1, places)
    clicked = np.full(shape, -1, dtype=np.int8)
    clicked[query, place] = click
    part = np.zeros(shape, dtype=bool)
    part[query, place] = moved
    return clicked, part


def _moved(part: Bool[np.ndarray, "N K"]) -> Int[np.ndarray, "N 2"]:
    """``(N, 2)`` the two places that were exchanged; -1 where there are not two."""
    two = part.sum(axis=1) == 2
    found = np.full((len(part), 2), -1)
    found[two] = np.argwhere(part[two])[:, 1].reshape(-1, 2)
    return found


def _sums(
    clicked: Int[np.ndarray, "N K"],
    part: Bool[np.ndarray, "N K"],
    pairs: list[tuple[int, int]],
    rng: np.random.Generator,
) -> Float[np.ndarray, "G P 2 3"]:
    """Of each group, pair and variant: displays, clicks at the upper place, clicks at the lower place."""
    group = group_of(len(clicked), MOST_GROUPS, rng)
    groups = int(group.max()) + 1
    moved = _moved(part)
    sums = np.zeros((groups, len(pairs), 2, 3))
    for number, (upper, lower) in enumerate(pairs):
        shown = (clicked[:, upper] >= 0) & (clicked[:, lower] >= 0)
        plain = shown & ~part[:, upper] & ~part[:, lower]
        swapped = (moved[:, 0] == upper) & (moved[:, 1] == lower)
        for variant, chosen in enumerate((plain, swapped)):
            at = group[chosen]
            values = (np.ones(len(at)), clicked[chosen, upper], clicked[chosen, lower])
            for column, value in enumerate(values):
                sums[:, number, variant, column] = np.bincount(at, value, groups)
    return sums
