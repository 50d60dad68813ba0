"""Tables that are written into shards a piece at a time: never whole."""

from __future__ import annotations

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
    ColumnFile,
    Table,
    check_fields,
    is_parquet,
    read_table,
    scan_csv,
    unreadable,
)
from listwright.training.progress import Task
from listwright.training.stored.shards import QueryBlock, ShardWriter
from listwright.training.stored.writing import told_if_full


def open_table(path: Path, scratch: Path) -> Table:
    """A CSV or Parquet file as :func:`listwright.training.data.tables.frames.read_table` reads it, but not into memory.

    Args:
        path: of the file.
        scratch: folder for the columns of a CSV file as Parquet.

    Raises:
        DataError: if it cannot be read, or has no rows.
    """
    if is_parquet(path):
        return read_table(path)
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
