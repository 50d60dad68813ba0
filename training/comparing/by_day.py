"""Sums of units as they grow from day to day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import polars as pl
from jaxtyping import Float

MOST_LOOKS = 60
"""Of a page: more days are looked at every few, the last one always."""


def looks_of(days: pl.Series) -> list[date]:
    """The days after which to look, in order."""
    there = days.unique().sort().to_list()
    if len(there) <= MOST_LOOKS:
        return there
    places = np.unique(np.linspace(0, len(there) - 1, MOST_LOOKS).round().astype(int))
    return [there[place] for place in places]


def grown(sums: pl.DataFrame, names: list[str]) -> Iterator[tuple[date, Float[np.ndarray, "N M"]]]:
    """Sums of every unit up to the end of each look's day.

    Args:
        sums: rows of ``unit``, ``day`` and the columns ``names``.
        names: M columns.

    Yields:
        The day, and ``(N, M)`` sums; units come in one order, those without rows yet are 0. The array grows in place.
    """
    rows = sums.sort("day")
    unit = rows["unit"].rank("dense").to_numpy().astype(np.int64) - 1
    values = rows.select(pl.col(names).cast(pl.Float64)).to_numpy()
    day = rows["day"]
    totals = np.zeros((int(unit.max()) + 1 if len(unit) else 0, len(names)))
    begin = 0
    for last in looks_of(day):
        end = int((day <= last).sum())
        np.add.at(totals, unit[begin:end], values[begin:end])
        begin = end
        yield last, totals
