"""How a reader of columns says where a fault stands, wherever the columns came from."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import polars as pl

from listwright.ranking.errors import DataError


@runtime_checkable
class Fault(Protocol):
    """Says where in a source a fault stands."""

    def __call__(self, column: pl.Series, expected: str, row: int | None = None) -> DataError:
        """The error of a column, or of one of its rows counted from 0."""
