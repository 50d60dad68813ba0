"""Tables that are read a column at a time, and then written into shards a piece at a time: never whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Int

from listwright.ranking.errors import DataError
from listwright.ranking.features import FeatureSchema
from listwright.training.data.cache import FULL
from listwright.training.data.dataset import Dataset
from listwright.training.data.fault import Fault
from listwright.training.data.tables.columns import encoded
from listwright.training.data.tables.frames import (
    UNREADABLE,
    Table,
    check_fields,
    is_parquet,
    scan_csv,
    unreadable,
)
from listwright.training.progress import Task
from listwright.training.stored.disk import told_if_full
from listwright.training.stored.shards import QueryBlock, ShardWriter

BATCH_ROWS = 50_000
"""Rows that are read at a time."""


class ColumnFile:
    """A Parquet file of which one column at a time is read; what it has in common with a frame has the same name.

    Args:
        path: of the file.
        source: that it was made from, for errors.
        columns: that are looked at, in this order; None for all.
    """

    def __init__(self, path: Path, source: Path, columns: Sequence[str] | None = None) -> None:
        self._path, self._source = path, source
        try:
            rows = pl.scan_parquet(path)
            self.columns = rows.collect_schema().names() if columns is None else list(columns)
            self.height = int(rows.select(pl.len()).collect().item())
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def __getitem__(self, name: str) -> pl.Series:
        try:
            return pl.read_parquet(self._path, columns=[name]).to_series()
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error

    def select(self, names: Sequence[str]) -> ColumnFile:
        """Some columns."""
        return ColumnFile(self._path, self._source, names)

    def batches(self, first: int) -> Iterator[pl.DataFrame]:
        """All rows from one on, :data:`BATCH_ROWS` or fewer at a time."""
        rows = pl.scan_parquet(self._path).select(self.columns).slice(first)
        try:
            yield from rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error


def open_table(path: Path, scratch: Path) -> Table:
    """A CSV or Parquet file as :func:`listwright.training.data.tables.frames.read_table` reads it, but not into memory.

    Args:
        path: of the file.
        scratch: folder for the columns of a CSV file as Parquet.

    Raises:
        DataError: if it cannot be read, or has no rows.
    """
    if is_parquet(path):
        columns = ColumnFile(path, path)
    else:
        made = scratch / f"{len(list(scratch.iterdir()))}.parquet"
        try:
            _as_parquet(path, made)
        except UNREADABLE as error:
            raise unreadable(path, error) from error
        columns = ColumnFile(made, path)
    if columns.height == 0:
        raise DataError(path, "has no rows")
    return Table(path, columns)


def _as_parquet(path: Path, made: Path) -> None:
    rows = scan_csv(path)
    with told_if_full(made.parent, FULL):
        rows.sink_parquet(made, compression="lz4")
        last = rows.collect_schema().names()[-1]
    if pl.scan_parquet(made).select(pl.col(last).is_null().any()).collect().item():  # a short line ends in nulls
        check_fields(path)


def check_together(table: Table, qid: str, order: Int[np.ndarray, " R"], dataset: Dataset) -> None:
    """Raise DataError unless the rows of every query stand together."""
    apart = np.flatnonzero(order != np.arange(len(order)))
    if len(apart) == 0:
        return
    first = int(apart[0])  # the row in its place begins another query: that one was cut in two
    query = int(np.searchsorted(dataset.offsets, first, side="right")) - 1
    said = (
        f"query {dataset.qids[query]!r} comes back here, and rows on disk must stand together by query: sort the table "
        f"by {qid!r}, or read it into memory with --shards never"
    )
    raise table.fault(table.frame[qid], said, int(order[first]))


def stream_into(
    writer: ShardWriter, columns: ColumnFile, dataset: Dataset, schema: FeatureSchema, fault: Fault, task: Task
) -> None:
    """Write the rows of a table.

    Args:
        writer: goes on behind its last whole shard.
        columns: the features.
        dataset: labels, lists, ids and weights of all rows; its features are not looked at.
        schema: of the features.
        fault: says where a wrong value stands.
        task: told how many rows are written.
    """
    first = writer.rows
    rest = np.empty((0, len(schema)), dtype=np.float32)
    for frame in columns.batches(first):
        held = np.concatenate([rest, encoded(frame, schema, fault)])
        begin = int(np.searchsorted(dataset.offsets, first))
        end = int(np.searchsorted(dataset.offsets, first + len(held), side="right")) - 1
        if end > begin:
            rows = slice(first, int(dataset.offsets[end]))
            count = rows.stop - rows.start
            weights = None if dataset.weights is None else dataset.weights[rows]
            lengths, qids = dataset.lengths[begin:end], dataset.qids[begin:end]
            writer.add(QueryBlock(held[:count], dataset.labels[rows], lengths, qids, weights), rows.stop)
            held, first = held[count:], rows.stop
        rest = held.copy()
        task.reach(first)
    task.end(dataset.rows)
