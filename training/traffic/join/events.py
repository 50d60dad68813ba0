"""Events: files of them as frames, the labels of actions, and the causes for which an event does not count.

JSON lines, CSV and Parquet, each also in folders, are read a bounded number of events at a time; a JSON array is read
whole. Each event is counted once, under the first cause that applies.
"""

from __future__ import annotations

import codecs
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.plain_file import Report, files_below, from_json, from_toml
from listwright.ranking.served_log.events import COLUMNS, MAX_NAME, event_in, event_of, moment
from listwright.training.data.cells import is_usable, names_in, numbers_in
from listwright.training.data.letor.fast import MAX_LABEL
from listwright.training.data.sources import check_exists, open_plain
from listwright.training.data.tables.frames import UNREADABLE, is_parquet, line_of, scan_csv, unreadable

BATCH_EVENTS = 50_000
"""Events that are read at a time."""

MAX_LINE = 2**20
"""Bytes of a line of JSON; a longer one is no event."""

EVENT_SCHEMA: dict[str, Any] = {
    "query_id": pl.String(),
    "object_id": pl.String(),
    "action_name": pl.String(),
    "client_id": pl.String(),
    "event_id": pl.String(),
    "timestamp": pl.Datetime("us"),
    "ordinal": pl.Int64(),
}
"""Schema of the frames: times are in UTC."""

_FIELDS = attrgetter("query_id", "object_id", "action_name", "client_id", "event_id", "moment", "ordinal")

SUMMED = "summed "
"""Prefix of a column whose numbers are summed; the name of the sum follows."""

LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz", ".jsonl.part")
"""File name endings of JSON lines and arrays; the last is of a file that the service still writes."""

TABLE_NAMES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")

_NEEDED = ("query_id", "action_name", "timestamp", "object_id")

ActionName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]

ActionLabel = Annotated[int, Field(ge=0, le=MAX_LABEL)]

ColumnName = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

FieldPath = Annotated[str, Field(max_length=MAX_NAME, pattern=r"^[^.]+(\.[^.]+)*$")]

COUNTED = "counted"

OTHER_PLACE = "counted, with another place than the shown one"
"""Counted events whose ordinal differs from the position in the log."""

NO_NUMBER = "counted, without the number that is summed"
"""Counted events without the number of a sum, once for each sum."""

Counts = Counter[str]
"""Events by cause, and those of :data:`COUNTED`."""


class EventBatch(NamedTuple):
    """Some events of a file.

    Args:
        frame: Events with the columns of :func:`event_schema`; each has an action and a time.
        faulty: Numbers of rows or lines that are no events, by cause.
        first_fault: Fault of the first such row, with its place; empty if there is none.
    """

    frame: pl.DataFrame
    faulty: dict[Cause, int]
    first_fault: str


def event_schema(labels: Labels) -> dict[str, Any]:
    """Return the columns of the frames: :data:`EVENT_SCHEMA`, and the numbers to sum, null where there is none."""
    return EVENT_SCHEMA | {SUMMED + name: pl.Float64() for name in labels.sums}


def event_files(path: Path, report: Report | None = None) -> list[Path]:
    """Return a file, or the files of a folder; see :func:`listwright.ranking.plain_file.files_below`.

    Raises:
        DataError: if there is nothing at the path, or no file of a known format.
    """
    check_exists(str(path))
    patterns = [f"*{ending}" for ending in (*LINES, *TABLE_NAMES)]
    files = files_below(path, patterns, report)
    if not files:
        raise DataError(path, f"has no files of events: their names are {', '.join(patterns)}")
    return files


def event_batches(path: Path, labels: Labels, size: int | None = None) -> Iterator[EventBatch]:
    """Yield the events of one file, in batches.

    A table has the columns of :data:`listwright.ranking.served_log.events.COLUMNS`; Parquet may have
    ``event_attributes`` as a nested column instead. A line or a row that is no event is counted.

    Args:
        path: Path of the file.
        labels: Labels, which name the numbers that are summed.
        size: Most events of a batch; None for :data:`BATCH_EVENTS`.

    Raises:
        DataError: if the file cannot be read, lacks a column, or no event is in it, but something else.
    """
    events = faulty = 0
    first = ""
    for batch in (_table if _is_table(path) else _json)(path, labels, size or BATCH_EVENTS):
        events += batch.frame.height
        faulty += batch.faulty[Cause.UNREADABLE]
        first = first or batch.first_fault
        yield batch
    if faulty and not events:
        raise DataError(path, f"holds no event, and {faulty} of something else; the first: {first}")


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(TABLE_NAMES) or (not path.name.lower().endswith(LINES) and is_parquet(path))


def _json(path: Path, labels: Labels, size: int) -> Iterator[EventBatch]:
    held: list[tuple[object, ...]] = []
    schema, summed = event_schema(labels), [sum_.field.split(".") for sum_ in labels.sums.values()]
    faulty, first = dict.fromkeys((Cause.CUT_OFF, Cause.UNREADABLE), 0), ""
    try:
        with open_plain(path) as (stream, _):
            for place, text, whole in _texts(stream):
                try:
                    event = event_in(text) if isinstance(text, bytes) else event_of(text)
                except ValidationError as error:
                    cut_off = not whole and error.errors()[0]["type"] == "json_invalid"
                    faulty[Cause.CUT_OFF if cut_off else Cause.UNREADABLE] += 1
                    first = first or f"{path}, {place}: {_describe_error(error)}"
                    continue
                held.append((*_FIELDS(event), *(_number_at(event, names) for names in summed)))
                if len(held) == size:
                    yield EventBatch(pl.DataFrame(held, schema=schema, orient="row"), faulty, first)
                    held, faulty = [], dict.fromkeys(faulty, 0)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}") from error
    yield EventBatch(pl.DataFrame(held, schema=schema, orient="row"), faulty, first)


def _texts(stream: BinaryIO) -> Iterator[tuple[str, object, bool]]:
    """Yield place and text of each line, and whether its end is there; of an array, a line or the file, each value."""
    for number, piece in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
        line = piece.removeprefix(codecs.BOM_UTF8)
        values = _array(line)
        if values is None and number == 1 and line.lstrip().startswith(b"["):
            line += stream.read() + b"\n"
            values = _array(line)
        if values is not None:
            yield from ((f"line {number}, value {n}", value, True) for n, value in enumerate(values, start=1))
            continue
        whole = line.endswith(b"\n")
        while not whole and len(line) > MAX_LINE and (rest := stream.readline(MAX_LINE)):
            whole = rest.endswith(b"\n")
        if line.strip():
            yield f"line {number}", line, whole


def _array(text: bytes) -> list[object] | None:
    """Return the values of a JSON array; None if the text is none."""
    with suppress(ValueError):
        if text.lstrip().startswith(b"["):
            return list(from_json(text))
    return None


def _number_at(value: object, names: Sequence[str]) -> float | None:
    """Return the finite number in a field of an event; None if there is none."""
    for name in names:
        inside = isinstance(value, BaseModel) and name in (value.model_fields_set | (value.model_extra or {}).keys())
        value = getattr(value, name) if inside else value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _describe_error(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


def _table(path: Path, labels: Labels, size: int) -> Iterator[EventBatch]:
    first = 0
    try:
        scanned = pl.scan_parquet(path, glob=False) if is_parquet(path) else scan_csv(path)
        rows = scanned.select(_columns(path, scanned.collect_schema(), labels))
        for frame in rows.collect_batches(chunk_size=size, maintain_order=True):
            yield _checked(path, frame, first, event_schema(labels))
            first += frame.height
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _columns(path: Path, schema: Mapping[str, Any], labels: Labels) -> list[pl.Expr]:
    """Return a table's columns under our names; an optional one may be missing."""
    columns = []
    for ours, theirs in (COLUMNS | {SUMMED + name: sum_.field for name, sum_ in labels.sums.items()}).items():
        outer, *inner = theirs.split(".")
        kind: Any = schema.get(theirs)
        expression = pl.col(theirs)
        if kind is None and inner:
            expression, kind = pl.col(outer), schema.get(outer)
            for name in inner:
                fields = dict(kind) if isinstance(kind, pl.Struct) else {}
                expression, kind = expression.struct.field(name), fields.get(name)
        if kind is None:
            if ours in _NEEDED:
                raise DataError(path, f"has no column {theirs!r}: a table of events needs it, see docs/events.md")
            expression, kind = pl.lit(None), pl.Null()
        if ours == "timestamp" and not (kind in (pl.String, pl.Binary) or isinstance(kind, pl.Datetime)):
            raise DataError(path, f"holds {kind}: expected datetimes, or text as ISO 8601 has it", column=theirs)
        columns.append(expression.alias(ours))
    return columns


def _checked(path: Path, frame: pl.DataFrame, first: int, schema: dict[str, Any]) -> EventBatch:
    """Return the valid events of some rows, and count the others; ``first`` is the number of the first row, from 0."""
    for name, theirs in COLUMNS.items():
        if not is_usable(frame[name]):
            raise DataError(path, f"holds {frame[name].dtype}, but no text in UTF-8", column=theirs)
    frame = pl.DataFrame([_typed(frame[name], kind) for name, kind in schema.items()])
    bad = frame["timestamp"].is_null() | frame["action_name"].is_null()
    count, first_fault = int(bad.sum()), ""
    if count:
        row = int(bad.arg_max() or 0)
        lacks = "time as ISO 8601 has it" if frame["timestamp"][row] is None else "action_name"
        first_fault = f"{path}, line {line_of(path, first + row)}: has no {lacks}"
    return EventBatch(frame.filter(~bad), {Cause.UNREADABLE: count}, first_fault)


def _typed(column: pl.Series, kind: Any) -> pl.Series:
    """Convert a column to its type; null where a cell holds something else."""
    if kind == pl.String():
        return names_in(column)
    if kind != EVENT_SCHEMA["timestamp"]:
        numbers = numbers_in(column).values.cast(pl.Float64)
        return numbers.set(numbers.is_infinite(), None).cast(kind, strict=False)
    if isinstance(column.dtype, pl.Datetime):
        moments = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if column.dtype.time_zone else column
        return moments.cast(kind)
    return pl.Series(column.name, [_moment(text) for text in names_in(column).to_list()], dtype=kind)


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else moment(text)
    except ValueError:
        return None


class Sum(BaseModel):
    """A column of the judged rows: the sum of a number that events of one action carry.

    Args:
        action: Action whose events are summed; it must count.
        field: Field of an event, with dots between the levels, such as ``event_attributes.object.price``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    action: ActionName
    field: FieldPath


class Labels(BaseModel):
    """Rules by which a candidate's label follows from events.

    Args:
        labels: Label of each action, a whole number from 0; the highest of a candidate's actions is its relevance
            label.
        seen: Actions, such as ``impression``, that only show that a candidate was seen. Empty: all shown ones were.
        sums: Further columns, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    labels: Annotated[dict[ActionName, ActionLabel], Field(min_length=1)]
    seen: Annotated[list[ActionName], Field(max_length=100)] = []
    sums: Annotated[dict[ColumnName, Sum], Field(max_length=100)] = {}

    @model_validator(mode="after")
    def _are_apart(self) -> Labels:
        both = [name for name in self.seen if name in self.labels]
        if both:
            raise ValueError(
                f"{both[0]!r} has a label, so it shows anyway that a candidate was seen: leave it out of seen"
            )
        unknown = [(name, sum_.action) for name, sum_ in self.sums.items() if sum_.action not in self.actions]
        if unknown:
            name, action = unknown[0]
            raise ValueError(f"sums.{name}: the action {action!r} is neither in labels nor in seen: give it a label")
        return self

    @property
    def actions(self) -> tuple[str, ...]:
        """All that are counted."""
        return (*self.labels, *self.seen)


def read_labels(path: Path) -> Labels:
    """Read the labels of a TOML file.

    Raises:
        RecipeError: if it cannot be read, or has other content; names the fault.
    """
    example = "write [labels] and below it lines such as click = 1"
    try:
        values = from_toml(path.read_bytes())
    except OSError as error:
        raise RecipeError(f"--labels {path}: cannot be read ({error.strerror or error}); {example}") from error
    except ValueError as error:
        raise RecipeError(f"--labels {path}: not TOML ({error}); {example}") from error
    try:
        return Labels.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        text = str(fault["msg"]).removeprefix("Value error, ")
        raise RecipeError(f"--labels {path}: {place + ': ' if place else ''}{text}; {example}") from error


class Cause(StrEnum):
    """Reasons for which an event does not count, in the order of the checks."""

    CUT_OFF = "last line of a file, cut off"
    UNREADABLE = "not an event"
    NO_LABEL = "no label for the action"
    NO_QUERY = "names no query"
    NO_CANDIDATE = "names no candidate"
    DUPLICATE = "sent again"
    UNKNOWN_QUERY = "unknown query"
    BEFORE_SERVING = "before serving"
    OUTSIDE_WINDOW = "outside the window"
    REPLACED = "list served again"
    NOT_IN_LIST = "candidate not in the list"
    NOT_SHOWN = "candidate not shown"
