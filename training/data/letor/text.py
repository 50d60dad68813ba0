"""SVMrank / LETOR text: ``label qid:Q i:v i:v ... # comment``, one candidate a line.

Three parsers give one result. The compiled one reads plain text; the fast one, where there was no C compiler, splits
and converts a whole chunk with polars. Whenever both have any doubt, the precise one reads that chunk line by line, and
is the one that complains.

Conventions: an index that a line leaves out is 0.0, as SVMrank means it; the words of
:data:`listwright.ranking.features.MISSING_WORDS` are missing values, and so is the largest double, Istella's marker of
a value that does not exist. Feature ``i`` is named ``f{i}``.
"""

from __future__ import annotations

import codecs
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError
from listwright.ranking.features import Feature, FeatureSchema, spelled
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Dataset
from listwright.training.data.letor.fast import FLOAT32_BOUND, MAX_INDEX, MAX_LABEL, MISSING_DOUBLE, Block, parse_fast

CHUNK_BYTES = 2 * 2**20
"""Small enough for its arrays to stay in the processor's cache, large enough for the vector operations to pay."""

EMPTY = "holds no candidates: expected lines like '2 qid:1 1:0.5 2:0.1'"

GROUPS_DIFFER = "has {} candidates, but its .query file adds up to {}"

_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Exceptions of gzip, zip and tar streams that end early or fail a checksum."""


try:
    scan: Any = import_module("listwright.training.data.letor.scan").scan
except ImportError:  # there was no C compiler
    scan = None


def read(
    stream: BinaryIO, source: str, *, groups: Int[np.ndarray, " N"] | None = None, task: Task = NO_TASK
) -> Dataset:
    """Parse a whole file.

    Args:
        stream: The text, decompressed.
        source: Name of the text, for errors.
        groups: Numbers of rows of each query, for LightGBM's files without ``qid``; None where every line names its
            query.
        task: Report of the kilobytes parsed.

    Raises:
        DataError: with line and column of the first token that is wrong, and what was expected; or if the stream
            itself is damaged.
    """
    blocks = list(blocks_of(stream, source, with_qid=groups is None, task=task))
    rows = sum(len(block.labels) for block in blocks)
    if rows == 0:
        raise DataError(source, EMPTY)
    lengths, qids = _queries(blocks, rows, source) if groups is None else _from_groups(groups, rows, source)
    return Dataset(
        features=_stack(blocks, rows),
        labels=np.concatenate([block.labels for block in blocks]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        qids=tuple(qids),
        schema=letor_schema(max(block.features.shape[1] for block in blocks)),
    )


def blocks_of(
    stream: BinaryIO, source: str, *, with_qid: bool = True, first_line: int = 1, task: Task = NO_TASK
) -> Iterator[Block]:
    """Parse a file piece by piece; a query may go on in the next piece.

    Args:
        stream, source, task: Arguments of :func:`read`.
        with_qid: Whether every line names its query.
        first_line: Number of the first line that is parsed.

    Raises:
        DataError: as :func:`read`.
    """
    line, parsed = 1, 0
    for piece in _chunks(stream, source):
        chunk, passed = _from_line(piece, first_line - line)
        line, parsed = line + passed, parsed + len(piece) - len(chunk)
        if not chunk:
            continue
        block = parse_compiled(chunk, line, with_qid=with_qid)
        if block is None:
            block = parse_fast(chunk, line, with_qid=with_qid)
        yield parse_lines(chunk, line, source, with_qid=with_qid) if block is None else block
        line += chunk.count(b"\n")
        parsed += len(chunk)
        task.reach(parsed // 1000)
    task.end(parsed // 1000)  # compressed text is longer than its file: only now is the end known


def parse_compiled(chunk: bytes, first_line: int, *, with_qid: bool) -> Block | None:
    """Parse with the compiled parser; None where it was not built, or has a doubt."""
    if scan is None:
        return None
    arrays = scan(chunk, first_line, with_qid, MAX_INDEX, MAX_LABEL, FLOAT32_BOUND, MISSING_DOUBLE)
    return None if arrays is None else Block(*arrays)


def _from_line(chunk: bytes, lines: int) -> tuple[bytes, int]:
    """Return the rest of a chunk after so many lines, and how many lines were skipped."""
    if lines <= 0:
        return chunk, 0
    there = chunk.count(b"\n")
    if there <= lines:
        return b"", there
    place = 0
    for _ in range(lines):
        place = chunk.index(b"\n", place) + 1
    return chunk[place:], lines


def comes_back(qid: str, began: int | None) -> str:
    """Describe a query whose rows are not together; ``began`` is the line of its first row, if known."""
    before = "it was whole before" if began is None else f"it began at line {began}"
    return f"query {qid!r} comes back here, {before}: keep the rows of a query together"


def read_all(stream: BinaryIO, source: str) -> bytes:
    """Read all bytes of a small file, without a byte order mark.

    Raises:
        DataError: if the stream is damaged.
    """
    return b"".join(iter(lambda: _piece(stream, source), b"")).removeprefix(codecs.BOM_UTF8)


def letor_schema(width: int) -> FeatureSchema:
    """Return numeric features ``f1 .. fD``; at least one, so that a file without features still has a shape."""
    return FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, max(1, width) + 1)))


def _chunks(stream: BinaryIO, source: str) -> Iterator[bytes]:
    """Yield pieces of about :data:`CHUNK_BYTES` that end with a line, without a byte order mark."""
    rest, begins = b"", True
    while piece := _piece(stream, source):
        piece, begins = piece.removeprefix(codecs.BOM_UTF8) if begins else piece, False
        end = piece.rfind(b"\n") + 1
        if end == 0:
            rest += piece
            continue
        yield rest + piece[:end]
        rest = piece[end:]
    if rest:
        yield rest + b"\n"


def _piece(stream: BinaryIO, source: str) -> bytes:
    try:
        return stream.read(CHUNK_BYTES)
    except _DAMAGED as error:
        raise DataError(source, f"cannot be read to its end, the file is damaged: {error}") from error


def _stack(blocks: list[Block], rows: int) -> Float[np.ndarray, "R D"]:
    """Stack all blocks into one matrix as wide as the widest; each block is freed once it has been copied."""
    width = max(1, *(block.features.shape[1] for block in blocks))
    features = np.zeros((rows, width), dtype=np.float32)
    start = 0
    for b, block in enumerate(blocks):
        features[start : start + len(block.labels), : block.features.shape[1]] = block.features
        start += len(block.labels)
        blocks[b] = block._replace(features=np.empty((0, block.features.shape[1]), dtype=np.float32))
    return features


def _queries(blocks: list[Block], rows: int, source: str) -> tuple[list[int], list[str]]:
    """Return each query's number of rows and its id, in file order; a query's rows must be together."""
    lengths: list[int] = []
    first_line: dict[str, int] = {}
    last = None
    for block in blocks:
        row = 0
        for qid, count in zip(block.qids, block.runs, strict=True):
            line = int(block.lines[row])
            row += int(count)
            if qid == last:
                lengths[-1] += int(count)
                continue
            if qid in first_line:
                raise DataError(source, comes_back(qid, first_line[qid]), line=line)
            first_line[qid] = line
            lengths.append(int(count))
            last = qid
    if sum(lengths) != rows:
        raise AssertionError(f"{sum(lengths)} rows in queries, {rows} in all")
    return lengths, list(first_line)


def _from_groups(groups: Int[np.ndarray, " N"], rows: int, source: str) -> tuple[list[int], list[str]]:
    if groups.sum() != rows:
        raise DataError(source, GROUPS_DIFFER.format(rows, groups.sum()))
    return groups.tolist(), [f"{source}#{n}" for n in range(1, len(groups) + 1)]


def parse_lines(chunk: bytes, first_line: int, source: str, *, with_qid: bool) -> Block:
    """Parse line by line, slowly, for precise error messages."""
    rows: list[dict[int, float]] = []
    labels: list[int] = []
    qids: list[str] = []
    runs: list[int] = []
    lines: list[int] = []
    for number, line in enumerate(chunk.split(b"\n"), start=first_line):
        tokens = [(match.start() + 1, match.group()) for match in re.finditer(rb"[^ \t\r\f\v]+", line.split(b"#")[0])]
        if not tokens:
            continue
        fault = _LineFault(source, number, line)
        labels.append(fault.label(*tokens[0]))
        lines.append(number)
        pairs = tokens[1:]
        if with_qid:
            qid = fault.qid(pairs[0] if pairs else (len(line) + 1, b""))
            pairs = pairs[1:]
            if qids and qids[-1] == qid:
                runs[-1] += 1
            else:
                qids.append(qid)
                runs.append(1)
        rows.append(fault.pairs(pairs))
    width = max((max(row, default=0) for row in rows), default=0)
    features = np.zeros((len(rows), width), dtype=np.float32)
    for r, row in enumerate(rows):
        for index, value in row.items():
            features[r, index - 1] = value
    return Block(features, np.array(labels, np.int32), qids, np.array(runs, np.int64), np.array(lines, dtype=np.int64))


class _LineFault:
    """Reader of one line's tokens that raises errors with their place."""

    def __init__(self, source: str, number: int, line: bytes) -> None:
        self.source, self.number, self.line = source, number, line

    def label(self, column: int, token: bytes) -> int:
        value = _number(token)
        if value is None or not 0 <= value <= MAX_LABEL or value % 1:
            raise self._error(column, f"expected a relevance label, a whole number from 0 to {MAX_LABEL}", token)
        return int(value)

    def qid(self, placed: tuple[int, bytes]) -> str:
        column, token = placed
        name = token[4:].decode("utf-8", "backslashreplace")
        if not token.startswith(b"qid:") or not name or not name.isprintable():
            raise self._error(
                column,
                "expected qid:ID after the label (files without qid need their group sizes in FILE.query)",
                token,
            )
        return name

    def pairs(self, tokens: list[tuple[int, bytes]]) -> dict[int, float]:
        row: dict[int, float] = {}
        last = 0
        for column, token in tokens:
            left, colon, right = token.partition(b":")
            if not colon or not left.isdigit():
                raise self._error(column, "expected INDEX:VALUE", token)
            index = int(left.lstrip(b"0")[:10] or b"0")
            if not 1 <= index <= MAX_INDEX:
                raise self._error(column, f"expected a feature index from 1 to {MAX_INDEX}", token)
            if index <= last:
                raise self._error(column, f"expected a feature index above {last}, indices increase in a line", token)
            row[index] = self._value(column + len(left) + 1, right)
            last = index
        return row

    def _value(self, column: int, token: bytes) -> float:
        value = float("nan") if token and spelled(token.decode("latin1")) is None else _number(token)
        if value is None:
            raise self._error(column, "expected a number, or NULL or nan for a missing value", token)
        if value == MISSING_DOUBLE:
            return float("nan")
        if abs(value) >= FLOAT32_BOUND:
            raise self._error(column, f"expected a number below {FLOAT32_BOUND:.4g} (float32)", token)
        return value

    def _error(self, byte: int, expected: str, token: bytes) -> DataError:
        column = len(self.line[: byte - 1].decode("utf-8", "replace")) + 1  # people count characters
        excerpt = token[:40].decode("utf-8", "backslashreplace") + ("…" if len(token) > 40 else "")
        instead = f"found {excerpt!r}" if token else "found the end of the line"
        return DataError(self.source, f"{expected}; {instead}", line=self.number, column=column)


def _number(token: bytes) -> float | None:
    if b"_" in token or not token.isascii():  # float() reads 1_000 and other digits, LETOR does not
        return None
    try:
        return float(token)
    except ValueError:
        return None
