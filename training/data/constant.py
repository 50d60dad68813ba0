"""Columns with one value in all training rows: nothing can be learned of them, so they become no features."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import DataError
from listwright.training.data.dataset import Splits
from listwright.training.stored.rows import Features

_ROWS = 65_536
"""Rows that are compared at a time: most columns are told to vary by the first of them."""

_MOST_NAMES = 8


def without_constant(splits: Splits, needed: Collection[str] = ()) -> Splits:
    """The same splits without the columns that have one value in all training rows; missing counts as a value.

    Args:
        splits: under the schema that the training queries fix.
        needed: names of columns that stay, whatever they hold.

    Returns:
        Copies of what is left; :attr:`Splits.dropped` says what is not.

    Raises:
        DataError: if no column would be left.
    """
    names = splits.train.schema.names
    columns = [int(column) for column in _constant(splits.train.features) if names[column] not in needed]
    if not columns:
        return splits
    if len(columns) == len(names):
        said = f"each feature ({_listed(names)}) has one value, or none, in all {splits.train.rows} training rows"
        raise DataError(splits.how, f"{said}: nothing tells candidates apart; give columns that vary")
    kept = np.delete(np.arange(len(names)), columns)
    train, valid, test = (part.narrowed(kept) for part in (splits.train, splits.valid, splits.test))
    dropped = tuple((column, names[column]) for column in columns)
    return replace(splits, train=train, valid=valid, test=test, dropped=dropped)


def dropped_note(splits: Splits) -> str | None:
    """What a person should know of the columns that are gone; None if there are none."""
    if not splits.dropped:
        return None
    names = [name for _, name in splits.dropped]
    has, is_no, it = ("has", "is no feature", "it") if len(names) == 1 else ("have", "are no features", "them")
    said = f"{_listed(names)} {has} one value, or none, in all {splits.train.rows} training rows"
    return (
        f"{said}, and {is_no} of the bundle. Where callers go on sending {it}, serve with "
        f"LISTWRIGHT_UNKNOWN_FEATURES=ignore; {splits.remedies.keep_constant} keeps {it}"
    )


def _constant(features: Features) -> Int[np.ndarray, " C"]:
    left, first = np.arange(features.shape[1]), features[0]
    for start in range(0, len(features), _ROWS):
        if len(left) == 0:
            break
        rows = features[start : start + _ROWS, left]
        same = (rows == first[left]) | (np.isnan(rows) & np.isnan(first[left]))
        left = left[same.all(axis=0)]
    return left


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
