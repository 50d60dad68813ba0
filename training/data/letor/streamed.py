"""LETOR text into shards: whole queries, in a stream."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import DataError
from listwright.training.data.letor.fast import Block
from listwright.training.data.letor.text import EMPTY, GROUPS_DIFFER, blocks_of, comes_back
from listwright.training.progress import NO_TASK, Task
from listwright.training.stored.shards import QueryBlock, ShardWriter


def stream_into(
    writer: ShardWriter,
    stream: BinaryIO,
    source: str,
    *,
    groups: Int[np.ndarray, " N"] | None = None,
    task: Task = NO_TASK,
) -> None:
    """Parse a file, and write every query when it is whole.

    Args:
        writer: goes on behind its last whole shard: what stands before is not parsed again.
        stream, source, groups, task: as of :func:`listwright.training.data.letor.text.read`.

    Raises:
        DataError: as :func:`listwright.training.data.letor.text.read`.
    """
    line, count = writer.place or (1, 0)
    began: dict[str, int | None] = dict.fromkeys(writer.qids())
    rest: Block | None = None
    for parsed in blocks_of(stream, source, with_qid=groups is None, first_line=line, task=task):
        if len(parsed.labels) == 0:
            continue
        block = parsed if rest is None else _together(rest, parsed)
        runs = block.runs if groups is None else _groups_in(groups[count:], len(block.labels))
        whole = len(runs) - 1 if groups is None else len(runs)  # the last query may go on
        qids = block.qids[:whole] if groups is None else _numbered(source, count, whole)
        rows = int(runs[:whole].sum())
        _check_new(qids, runs, block, began, source)
        rest = _cut(block, rows, whole)
        count += whole
        line = int(block.lines[rows]) if rows < len(block.lines) else int(block.lines[-1]) + 1
        if whole:
            made = QueryBlock(block.features[:rows], block.labels[:rows], runs[:whole], qids)
            writer.add(made, (line, count))
    left = 0 if rest is None else len(rest.labels)
    if groups is not None and (left or count < len(groups)):
        raise DataError(source, GROUPS_DIFFER.format(writer.total_rows + left, groups.sum()))
    if rest is not None and left:
        _check_new(rest.qids, rest.runs, rest, began, source)
        end = (int(rest.lines[-1]) + 1, count + len(rest.runs))
        writer.add(QueryBlock(rest.features, rest.labels, rest.runs, rest.qids), end)
    if writer.total_rows == 0:
        raise DataError(source, EMPTY)


def _groups_in(sizes: Int[np.ndarray, " N"], rows: int) -> Int[np.ndarray, " M"]:
    """Those of the next queries that are whole in so many rows."""
    return sizes[: int(np.searchsorted(np.cumsum(sizes), rows, side="right"))]


def _numbered(source: str, first: int, count: int) -> list[str]:
    return [f"{source}#{n}" for n in range(first + 1, first + count + 1)]


def _check_new(
    qids: list[str], runs: Int[np.ndarray, " Q"], block: Block, began: dict[str, int | None], source: str
) -> None:
    """Raise DataError if a query was whole before."""
    row = 0
    for qid, count in zip(qids, runs.tolist(), strict=False):
        line = int(block.lines[row])
        if qid in began:
            raise DataError(source, comes_back(qid, began[qid]), line=line)
        began[qid] = line
        row += count


def _together(rest: Block, block: Block) -> Block:
    """The rows that are left, and those of the next piece."""
    width = max(rest.features.shape[1], block.features.shape[1])
    features = np.zeros((len(rest.labels) + len(block.labels), width), dtype=np.float32)
    features[: len(rest.labels), : rest.features.shape[1]] = rest.features
    features[len(rest.labels) :, : block.features.shape[1]] = block.features
    qids, runs = [*rest.qids, *block.qids], np.concatenate([rest.runs, block.runs])
    if rest.qids and block.qids and rest.qids[-1] == block.qids[0]:
        qids.pop(0)
        runs = np.concatenate([[runs[0] + runs[1]], runs[2:]])
    labels = np.concatenate([rest.labels, block.labels])
    return Block(features, labels, qids, runs, np.concatenate([rest.lines, block.lines]))


def _cut(block: Block, rows: int, queries: int) -> Block:
    """What stands behind so many rows and queries, as a copy: it outlives the block."""
    features, labels, lines = (part[rows:].copy() for part in (block.features, block.labels, block.lines))
    return Block(features, labels, block.qids[queries:], block.runs[queries:], lines)
