"""Served records as Parquet pieces: one row a record, its lists in the order shown, a bounded number at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError
from listwright.ranking.served_log.files import feature_columns, read, read_listed
from listwright.ranking.served_log.record import Columns, ServedRecord

PIECE_BYTES = 16 * 2**20
"""Bytes of the features of a piece."""

PIECE_RECORDS = 10_000

SECOND = timedelta(seconds=1)

_TEAMS = pl.List(pl.String())

PIECE_SCHEMA: dict[str, Any] = {
    "record": pl.Int64(),
    "query_id": pl.String(),
    "served_at": pl.Datetime("us"),
    "shown": pl.List(pl.String()),
    "unshown": pl.List(pl.String()),
    "features": pl.Binary(),
    "scores": pl.Binary(),
    "first_stage_scores": pl.Binary(),
    "bundle": pl.String(),
    "strategy": pl.String(),
    "unit": pl.String(),
    "experiment": pl.String(),
    "arm": pl.String(),
    "teams": _TEAMS,
    "intervention": pl.String(),
    "places": pl.List(pl.Int64()),
    "propensity": pl.Float64(),
    "rules": pl.String(),
    "rule": pl.List(pl.String()),
    "weights": pl.String(),
    "length": pl.Int64(),
    "top": pl.Int64(),
}
"""Schema of a piece. ``shown`` holds the ids as shown, ``top`` many, perhaps followed by those that were not;
``features`` and scores these candidates' bytes in that order.
"""

RECORDS_OF_A_FILE = 2**40
"""Offset between the record numbers of two files: a record's number is the file's times this, plus its place."""


@dataclass(frozen=True)
class Schema:
    """The feature columns shared by all files.

    Args:
        names: ``D`` names, in the order of the newest file.
        categories: Categories of each categorical column in all files.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]


def schema_of(files: Sequence[Path]) -> Schema:
    """Return the columns that all files share; a file that has disappeared has none.

    Categories may differ among files, as bundles of one schema may be fitted on other data: each file's codes are read
    by its own.

    Raises:
        DataError: if there is no file with a header, or two files have other columns; names the columns.
    """
    read = [(path, columns) for path in files if (columns := read_listed(path, feature_columns)) is not None]
    if not read:
        raise DataError(files[0].parent if files else "the served log", "has no served record yet")
    newest, last = read[-1]
    for path, columns in read:
        _check_same(path, columns, newest, last)
    categories = {
        name: tuple(dict.fromkeys(value for _, columns in read for value in columns.categories[name]))
        for name in last.names
        if name in last.categories
    }
    return Schema(last.names, categories)


def _check_same(path: Path, columns: Columns, newest: Path, last: Columns) -> None:
    lacks = [name for name in last.names if name not in columns.names]
    more = [name for name in columns.names if name not in last.names]
    kinds = sorted(set(columns.categories) ^ set(last.categories)) if not lacks and not more else []
    if not (lacks or more or kinds):
        return
    differences = [
        *([f"lacks {_listed(lacks)}"] if lacks else []),
        *([f"has {_listed(more)} more"] if more else []),
        *([f"has {_listed(kinds)} as another kind of column"] if kinds else []),
    ]
    remedy = "join files of one feature schema at a time: move the others into a folder of their own"
    raise DataError(path, f"{' and '.join(differences)} than {newest.name}: {remedy}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def write_pieces(
    path: Path, number: int, schema: Schema, folder: Path, report: Callable[[int], None], *, unshown: bool = False
) -> int:
    """Write the records of one file as pieces; return how many records there are.

    Args:
        path: Path of the Avro file; a truncated file is read to its last whole block.
        number: Number of the file among those of the join.
        schema: Schema of all files.
        folder: Folder for the pieces.
        report: Function that gets the number of records read so far.
        unshown: Whether to write candidates below ``top_n``, too, unless a rule excluded them.

    Raises:
        DataError: if the file is damaged.
    """
    order = _Order(feature_columns(path), schema)
    rows: list[tuple[object, ...]] = []
    size = piece = count = 0
    for record in read(path):
        listed = record.order
        if unshown:
            excluded = {index for rule in record.rules or () if rule.action == "exclude" for index in rule.candidates}
            below = sorted({*range(len(record))} - excluded - {*listed.tolist()})
            listed = np.append(listed, np.array(below, dtype=listed.dtype))
        rows.append(_row(record, listed, order.of(record, listed), number * RECORDS_OF_A_FILE + count, str(path)))
        count += 1
        size += len(listed) * len(schema.names) * 4
        if size >= PIECE_BYTES or len(rows) >= PIECE_RECORDS:
            _write(rows, folder / f"{number:05}-{piece:05}.parquet")
            report(count)
            rows, size, piece = [], 0, piece + 1
    if rows:
        _write(rows, folder / f"{number:05}-{piece:05}.parquet")
    report(count)
    return count


class _Order:
    """Conversion of the columns of a file's records, and of the codes of its categories, to the order of all files."""

    def __init__(self, columns: Columns | None, schema: Schema) -> None:
        self._places: list[int] | None = None
        self._codes: dict[int, np.ndarray] = {}
        if columns is None:
            return
        if columns.names != schema.names:
            self._places = [columns.names.index(name) for name in schema.names]
        for d, name in enumerate(schema.names):
            known, own = schema.categories.get(name), columns.categories.get(name)
            if known is not None and own is not None and known != own:
                self._codes[d] = np.array([0, *(known.index(value) + 1 for value in own)], dtype=np.float32)

    def of(self, record: ServedRecord, listed: Int[np.ndarray, " R"]) -> Float[np.ndarray, "R D"]:
        """Return the features of some candidates, in their order."""
        features: np.ndarray = record.features[listed]
        if self._places is not None:
            features = features[:, self._places]
        for d, codes in self._codes.items():
            column = features[:, d].astype(np.int64)
            features[:, d] = codes[np.where((column > 0) & (column < len(codes)), column, 0)]
        return features


def _row(
    record: ServedRecord, listed: Int[np.ndarray, " R"], features: Float[np.ndarray, "R D"], number: int, source: str
) -> tuple[object, ...]:
    order = record.order.tolist()
    ids, length = record.candidate_ids, len(record)
    if len(set(order)) < len(order) or (order and not 0 <= min(order) <= max(order) < length):
        raise DataError(source, f"query {record.query_id!r} shows places {order[:10]} of {length} candidates")
    hidden: list[str] = []
    if len(order) < length:
        at = set(order)
        hidden = [ids[place] for place in range(length) if place not in at]
    intervention = record.intervention
    return (
        number,
        record.query_id,
        record.served_at.astimezone(UTC).replace(tzinfo=None),
        [ids[place] for place in listed],
        hidden,
        features.tobytes(),
        record.scores[listed].tobytes(),
        record.first_stage_scores[listed].tobytes(),
        record.bundle,
        record.strategy,
        record.unit,
        record.experiment,
        record.arm,
        None if record.teams is None else list(record.teams),
        None if intervention is None else intervention.kind,
        None if intervention is None else list(intervention.places),
        None if intervention is None else intervention.propensity,
        *_rules(record, order),
        None if record.weights is None else json.dumps(record.weights),
        len(listed),
        len(order),
    )


def _rules(record: ServedRecord, order: Sequence[int]) -> tuple[str | None, list[str | None] | None]:
    """Return the actions of a list's rules, and of each shown candidate's; None where there are none."""
    if not record.rules:
        return None, None
    actions: dict[int, dict[str, None]] = {}
    for rule in record.rules:
        for index in rule.candidates:
            actions.setdefault(index, {})[rule.action] = None
    of_list = " ".join(sorted({rule.action for rule in record.rules}))
    return of_list, [" ".join(sorted(actions[index])) if index in actions else None for index in order]


def _write(rows: list[tuple[object, ...]], path: Path) -> None:
    frame = pl.DataFrame(rows, schema=PIECE_SCHEMA, orient="row").sort("served_at", "record")
    with atomic_file(path) as file:
        frame.write_parquet(file, compression="lz4", row_group_size=1000)


@dataclass(frozen=True)
class Slice:
    """A period of time whose judged rows are written together.

    Args:
        begin, end: Bounds of ``served_at``, UTC without a zone; the end is excluded.
    """

    begin: datetime
    end: datetime

    @property
    def name(self) -> str:
        """Name of its files, by which they sort in time."""
        return self.begin.strftime("%Y%m%dT%H%M%S")


class PieceTimes:
    """Index of pieces by the times of their records.

    Args:
        pieces: Pieces of :func:`write_pieces`.
    """

    def __init__(self, pieces: Sequence[Path]) -> None:
        self._pieces = pieces
        bounds = [_bounds(path) for path in pieces]
        self._first, self._last = (np.array(times, dtype="datetime64[us]") for times in zip(*bounds, strict=True))

    def find_pieces(self, slice_: Slice) -> list[Path]:
        """Return the pieces with a record in the period."""
        begin, end = np.datetime64(slice_.begin, "us"), np.datetime64(slice_.end, "us")
        return [self._pieces[n] for n in np.flatnonzero((self._first < end) & (self._last >= begin)).tolist()]


def _bounds(piece: Path) -> tuple[datetime, datetime]:
    """Return the first and the last time of serving: a piece is sorted by it."""
    times = pl.read_parquet(piece, columns=["served_at"])["served_at"]
    return times[0], times[-1]


def slices_of(pieces: Sequence[Path], width: int, most_bytes: int) -> list[Slice]:
    """Return consecutive periods that cover all records: an hour at most, and so many bytes of features at most.

    A single second may hold more.

    Args:
        pieces: Pieces of :func:`write_pieces`.
        width: Number of features, D.
        most_bytes: Largest size of a period's features in bytes.
    """
    if not pieces:
        return []
    second = pl.col("served_at").dt.truncate("1s")
    tally = (
        pl.scan_parquet(list(pieces))
        .group_by(second.alias("second"))
        .agg(pl.col("length").sum())
        .sort("second")
        .collect(engine="streaming")
    )
    slices: list[Slice] = []
    begin: datetime | None = None
    end, held = datetime.min, 0
    for at, length in tally.iter_rows():
        size = int(length) * width * 4
        same_hour = begin is not None and at.replace(minute=0, second=0) == begin.replace(minute=0, second=0)
        if begin is None or not same_hour or held + size > most_bytes:
            if begin is not None:
                slices.append(Slice(begin, end))
            begin, held = at, 0
        held += size
        end = at + SECOND
    assert begin is not None
    return [*slices, Slice(begin, end)]
