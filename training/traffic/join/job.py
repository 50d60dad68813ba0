"""Served records and events joined into judged rows: in bounded memory, resumable, and in full or not at all.

Records and events are dealt into buckets by the hash of their query id. A bucket holds all of a query, and is matched
in memory, however long the log is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.plain_file import read_object
from listwright.ranking.served_log.files import log_files, read_listed
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.job_folder import disk_full_as_data_error, job_folder, write_json
from listwright.training.traffic.join.events import (
    COUNTED,
    NO_NUMBER,
    OTHER_PLACE,
    SUMMED,
    Cause,
    Counts,
    Labels,
    event_batches,
    event_files,
    event_schema,
)
from listwright.training.traffic.join.pieces import PieceTimes, Schema, Slice, schema_of, slices_of, write_pieces

FULL = "make some, and run the same command with --resume"

SLICE_BYTES = 32 * 2**20
"""Bytes of the features of a slice."""

BUCKET_ROWS = 2_000_000
"""Records and events that a bucket should hold at most, on average."""

DEALT_ROWS = 200_000
"""Rows that are partitioned at a time: one file a bucket for all of them."""

SKEW = timedelta(seconds=1)
"""How much earlier than its answer an event may be: many clocks write whole seconds."""

_KEYS = ("query_id", "served_at", "record")

_WITHOUT_ID = ("query_id", "action_name", "client_id", "timestamp", "object_id")

QID, LABEL, TIME = "query_id", "label", "served_at"

_RECORD, _OBJECT = " record", " object"
"""Internal columns, with names that no other column has."""

_OF_RECORDS = ("bundle", "strategy", "unit", "experiment", "arm", "intervention", "propensity", "rules", "weights")
"""Columns with one value for each record."""

_LEADING = (QID, "candidate_id", "position", LABEL)
_TRAILING = (
    "score",
    "first_stage_score",
    "bundle",
    "strategy",
    TIME,
    "unit",
    "experiment",
    "arm",
    "team",
    "intervention",
    "propensity",
    "swapped",
    "rules",
    "rule",
    "weights",
)

DONE = "done.json"
"""File name ending of a finished step's result."""


@dataclass(frozen=True)
class JoinJob:
    """The inputs and options of a join.

    Args:
        served: Folder of the served log, or one file of it.
        events: Files and folders of events.
        labels: Labels of the actions.
        window: Longest time from serving to an event that counts.
        out: Parquet file to write.
        prefix: Prefix of the names of all columns but the features.
        unshown: Whether to write candidates below ``top_n``, too, without place and label.
        bucket_rows: Size of a bucket; see :data:`BUCKET_ROWS`.
        slice_bytes: Size of a slice; see :data:`SLICE_BYTES`.
    """

    served: Path
    events: tuple[Path, ...]
    labels: Labels
    window: timedelta
    out: Path
    prefix: str = ""
    unshown: bool = False
    bucket_rows: int = BUCKET_ROWS
    slice_bytes: int = SLICE_BYTES


class JoinResult(NamedTuple):
    """The result of a join.

    Args:
        rows: Number of candidates, shown or not.
        queries: Number of queries with at least one row.
        served: Number of records in the log, those of queries that were served again among them.
        again: Number of records of a query that was served again later.
        gone: Number of files that the service removed by its limits before they were read.
        labelled: Number of rows of each label; None for candidates that were not shown.
        counts: Number of events of each cause.
        first_fault: First line or row that is no event, with the reason; empty if there is none.
    """

    rows: int
    queries: int
    served: int
    again: int
    gone: int
    labelled: dict[int | None, int]
    counts: Counts
    first_fault: str


def join(job: JoinJob, *, resume: bool = False, progress: Progress = SILENT) -> JoinResult:
    """Join a served log with events, and write the judged rows.

    Memory holds one piece, one bucket or one slice at a time: it does not grow with the log. What is finished stays in
    a hidden folder beside ``out`` until all is.

    Raises:
        RecipeError: if ``out`` exists, or an interrupted job is there and ``resume`` is False, or another one is.
        DataError: if a file cannot be read, files have different features, or the disk is full.
    """
    if job.out.suffix.lower() != ".parquet":
        raise RecipeError(f"--out {job.out}: expected a name that ends in .parquet")
    if job.out.exists():
        raise RecipeError(f"{job.out} exists already: choose another --out, or delete it")
    facts = {name: str(value) for name, value in asdict(job).items() if name not in ("out", "labels")}
    facts |= {"labels": job.labels.model_dump_json(), "polars": pl.__version__}
    facts |= {"events": ", ".join(map(str, job.events))}
    with (
        job_folder(job.out, facts, resume=resume, keep_pattern=f"served-*{DONE}") as folder,
        disk_full_as_data_error(job.out.parent, FULL),
    ):
        return _Run(job, folder, progress).all()


class _Run:
    """One run in the hidden folder; each step skips finished work."""

    def __init__(self, job: JoinJob, folder: Path, progress: Progress) -> None:
        self._job, self._folder, self._progress = job, folder, progress
        self._counts = Counts()
        self._served = self._again = self._gone = 0

    def all(self) -> JoinResult:
        job = self._job
        files, sources = self._inputs()
        schema = self._schema(files)
        _check_names(schema, job.labels, job.prefix)
        pieces = self._pieces(files, schema)
        first_fault, events = self._events(sources)
        matched, superseded = self._matched(pieces, events)
        slices = slices_of(pieces, len(schema.names), job.slice_bytes)
        written = self._rows(slices, pieces, matched, superseded, schema)
        self._check_counted()
        rows, queries, labelled = self._publish(written, schema)
        return JoinResult(rows, queries, self._served, self._again, self._gone, labelled, self._counts, first_fault)

    def _inputs(self) -> tuple[list[Path], list[Path]]:
        """List the input files as of the job's beginning: a service may write more meanwhile."""

        def listed() -> dict[str, Any]:
            job, notes = self._job, list[str]()
            served = [job.served] if job.served.is_file() else log_files(job.served, notes.append)
            events = [file for path in job.events for file in event_files(path, notes.append)]
            for file in filter(Path.is_file, events):  # a wrong one is refused before the served log is read
                read_listed(file, lambda there: any(b.frame.height for b in event_batches(there, job.labels, 100)))
            return {"served": [str(path) for path in served], "events": [str(path) for path in events], "notes": notes}

        names = _run_step_once(self._folder, "inputs", listed)
        for note in names["notes"]:
            self._progress.remark(note)
        return [Path(name) for name in names["served"]], [Path(name) for name in names["events"]]

    def _schema(self, files: Sequence[Path]) -> Schema:
        """Return the schema, stored because input files may disappear."""

        def read() -> dict[str, Any]:
            schema = schema_of(files)
            return {"names": schema.names, "categories": schema.categories}

        facts = _run_step_once(self._folder, "schema", read)
        return Schema(tuple(facts["names"]), {name: tuple(values) for name, values in facts["categories"].items()})

    def _pieces(self, files: Sequence[Path], schema: Schema) -> list[Path]:
        inside = self._folder / "served"
        inside.mkdir(exist_ok=True)
        task = self._progress.begin("Reading served records")
        for number, path in enumerate(files):

            def read(number: int = number, path: Path = path, before: int = self._served) -> dict[str, Any]:
                def report(done: int) -> None:
                    task.reach(before + done, path.name)

                unshown = self._job.unshown
                count = read_listed(
                    path, lambda there: write_pieces(there, number, schema, inside, report, unshown=unshown)
                )
                return {"records": count or 0, "gone": count is None}

            facts = _run_step_once(self._folder, f"served-{number:05}", read)
            self._served += facts["records"]
            self._gone += facts["gone"]
            task.reach(self._served)
        task.end(self._served, "")
        if not self._served:
            raise DataError(self._job.served, "has no served record yet")
        return sorted(inside.glob("*.parquet"))

    def _events(self, sources: Sequence[Path]) -> tuple[str, int]:
        """Partition the events by bucket; return the first fault, and how many events there are to match."""
        inside = self._folder / "events"
        inside.mkdir(exist_ok=True)
        task = self._progress.begin("Reading events")
        first, rows = "", 0
        for number, path in enumerate(sources):

            def read(number: int = number, path: Path = path, before: int = rows) -> dict[str, Any]:
                def report(done: int) -> None:
                    task.reach(before + done, path.name)

                facts = read_listed(path, lambda there: self._events_of(there, inside / f"{number:05}", report))
                return {"counts": {}, "kept": 0, "fault": "", "gone": True} if facts is None else facts

            facts = _run_step_once(self._folder, f"events-{number:05}", read)
            self._counts += Counts(facts["counts"])
            rows += facts["kept"]
            self._gone += facts["gone"]
            first = first or facts["fault"]
        task.end(rows, "")
        return first, rows

    def _events_of(self, path: Path, stem: Path, report: Callable[[int], None]) -> dict[str, Any]:
        """Write the events of a file that can match as pieces."""
        counts, rows, fault = Counts(), 0, ""
        for piece, batch in enumerate(event_batches(path, self._job.labels)):
            frame = _worth_matching(batch.frame, self._job.labels, counts)
            counts.update(batch.faulty)
            fault = fault or batch.first_fault
            _write(frame, stem.with_name(f"{stem.name}-{piece:05}.parquet"))
            rows += frame.height
            report(rows)
        return {"counts": dict(counts), "kept": rows, "fault": fault, "gone": False}

    def _matched(self, pieces: Sequence[Path], event_count: int) -> tuple[list[Path], list[Path]]:
        buckets = max(1, -(-(self._served + event_count) // self._job.bucket_rows))
        dealt, matched = self._folder / "buckets", self._folder / "matched"
        matched.mkdir(exist_ok=True)

        def deal_all() -> dict[str, Any]:
            shutil.rmtree(dealt, ignore_errors=True)
            keys = (pl.read_parquet(path, columns=list(_KEYS)) for path in pieces)
            events = map(pl.read_parquet, sorted((self._folder / "events").glob("*.parquet")))
            _deal(keys, buckets, dealt, "keys")
            _deal(events, buckets, dealt, "events")
            return {"buckets": sorted(path.name for path in dealt.iterdir()) if dealt.exists() else []}

        names = _run_step_once(self._folder, "dealt", deal_all)["buckets"]
        task = self._progress.begin("Matching events, parts", len(names))
        for number, name in enumerate(names):

            def match_bucket(name: str = name) -> dict[str, Any]:
                counts = Counts()
                files, superseded = _match(dealt / name, self._job.window, self._job.labels, counts)
                _write(files, matched / f"{name}.parquet")
                _write(superseded, matched / f"{name}.superseded.parquet")
                return {"counts": dict(counts), "again": superseded.height}

            facts = _run_step_once(self._folder, f"matched-{name}", match_bucket)
            self._counts += Counts(facts["counts"])
            self._again += facts["again"]
            task.reach(number + 1)
        files = sorted(matched.glob("*.parquet"))
        again = [path for path in files if ".superseded" in path.name]
        return [path for path in files if path not in again], again

    def _rows(
        self,
        slices: Sequence[Slice],
        pieces: Sequence[Path],
        matched: Sequence[Path],
        superseded: Sequence[Path],
        schema: Schema,
    ) -> list[Path]:
        inside = self._folder / "rows"
        inside.mkdir(exist_ok=True)
        written, times = list[Path](), PieceTimes(pieces)
        task = self._progress.begin("Writing judged rows, hours or less", len(slices))
        for number, slice_ in enumerate(slices):
            path = inside / f"{slice_.name}.parquet"

            def write_slice(slice_: Slice = slice_, path: Path = path) -> dict[str, Any]:
                counts = Counts()
                rows = _judged_rows(
                    slice_,
                    times.find_pieces(slice_),
                    matched,
                    superseded,
                    schema=schema,
                    labels=self._job.labels,
                    prefix=self._job.prefix,
                    counts=counts,
                )
                _write(rows, path)
                return {"counts": dict(counts)}

            self._counts += Counts(_run_step_once(self._folder, f"rows-{slice_.name}", write_slice)["counts"])
            written.append(path)
            task.reach(number + 1)
        return written

    def _check_counted(self) -> None:
        """Raise DataError if no event counts; only print a note if none was meant to."""
        causes = [cause for cause in Cause if self._counts[cause]]
        if self._counts[COUNTED]:
            return
        reasons = [f"{self._counts[cause]:,} {cause}" for cause in causes]
        fault = "; ".join(["no event counts, so all labels are 0", *reasons])
        if {*causes} <= {Cause.CUT_OFF, Cause.UNREADABLE, Cause.NO_LABEL}:
            self._progress.remark(fault)
            return
        for done in self._folder.glob(f"served-*{DONE}"):  # other events need a new job
            done.unlink()
        raise DataError(", ".join(map(str, self._job.events)), f"{fault}: see docs/events.md")

    def _publish(self, written: Sequence[Path], schema: Schema) -> tuple[int, int, dict[int | None, int]]:
        """Write the rows into one file; return the numbers of rows and queries, and the rows of each label."""
        job, prefix = self._job, self._job.prefix
        whole = self._folder / "whole.parquet"
        metadata = judged_metadata(
            schema.names,
            qid=prefix + QID,
            label=prefix + LABEL,
            time=prefix + TIME,
            prefix=prefix,
            only_seen=bool(job.labels.seen),
            unshown=job.unshown,
        )
        rows = pl.scan_parquet(list(written))
        rows.sink_parquet(whole, compression="zstd", metadata=metadata)
        tally = pl.scan_parquet(whole).group_by(prefix + LABEL).len().collect(engine="streaming")
        labelled = dict(tally.sort(prefix + LABEL, nulls_last=True).iter_rows())
        begins = pl.col(prefix + QID) != pl.col(prefix + QID).shift(1)
        queries = pl.scan_parquet(whole).select(begins.fill_null(value=True).sum()).collect(engine="streaming").item()
        whole.replace(job.out)
        shutil.rmtree(self._folder)
        return sum(labelled.values()), int(queries or 0), labelled


def _write(frame: pl.DataFrame, path: Path) -> None:
    with atomic_file(path) as file:
        frame.write_parquet(file, compression="lz4", row_group_size=50_000)


def _deal(frames: Iterable[pl.DataFrame], buckets: int, folder: Path, stem: str) -> None:
    """Partition rows into the buckets of their queries: ``folder/BUCKET/STEM-NUMBER.parquet``."""
    for number, frame in enumerate(_merge_frames(frames)):
        dealt = frame.with_columns((pl.col("query_id").hash(seed=0) % buckets).alias("bucket"))
        for (bucket,), part in dealt.partition_by("bucket", as_dict=True, include_key=False).items():
            inside = folder / f"{int(str(bucket)):05}"
            inside.mkdir(parents=True, exist_ok=True)
            part.write_parquet(inside / f"{stem}-{number:07}.parquet", compression="lz4")


def _merge_frames(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Combine frames into larger ones, of :data:`DEALT_ROWS` or a little more."""
    held, rows = list[pl.DataFrame](), 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows >= DEALT_ROWS:
            yield pl.concat(held)
            held, rows = [], 0
    if held:
        yield pl.concat(held)


def _worth_matching(frame: pl.DataFrame, labels: Labels, counts: Counts) -> pl.DataFrame:
    """Return the events whose action counts, and that name a query and a candidate; count the others."""
    good = {
        Cause.NO_LABEL: pl.col("action_name").is_in(list(labels.actions)),
        Cause.NO_QUERY: pl.col("query_id").is_not_null(),
        Cause.NO_CANDIDATE: pl.col("object_id").is_not_null(),
    }
    return _filtered(frame, good, counts)


def _filtered(frame: pl.DataFrame, good: Mapping[Cause, pl.Expr], counts: Counts) -> pl.DataFrame:
    """Return the good events; count the others under the first cause that applies."""
    for cause, expression in good.items():
        before = frame.height
        frame = frame.filter(expression)
        counts[cause] += before - frame.height
    return frame


def _match(folder: Path, window: timedelta, labels: Labels, counts: Counts) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Match the events of a bucket with their records, by the time of serving; return also the superseded records."""
    # An event belongs to the list of its query that was served last, at its time or before; where there is none, to the
    # first that was served up to SKEW later. Of several records of one query the last one with an event stands, or the
    # last one: the others were tries whose answer did not arrive, or lists that it replaced.
    keys = _read(folder, "keys", {"query_id": pl.String(), "served_at": pl.Datetime("us"), "record": pl.Int64()})
    keys = keys.sort("served_at", "record")
    events = _read(folder, "events", event_schema(labels))
    distinct = _without_repeats(events)
    counts[Cause.DUPLICATE] += events.height - distinct.height
    known = distinct.join(keys.select("query_id").unique(), on="query_id", how="semi", maintain_order="left")
    counts[Cause.UNKNOWN_QUERY] += distinct.height - known.height
    known = known.sort("timestamp", maintain_order=True)
    before, near = _find_nearest_list(known, keys, "backward"), _find_nearest_list(known, keys, "forward")
    placed = before.with_columns(before[name].fill_null(near[name]) for name in ("served_at", "record"))
    in_time = pl.col("timestamp") - pl.col("served_at") <= window
    good = {Cause.BEFORE_SERVING: pl.col("record").is_not_null(), Cause.OUTSIDE_WINDOW: in_time}
    placed = _filtered(placed, good, counts)
    with_events = keys.join(placed, on="record", how="semi", maintain_order="left")
    stands = pl.concat([keys, with_events]).unique("query_id", keep="last", maintain_order=True)
    superseded = keys.join(stands, on="record", how="anti").select("served_at", "record")
    valid = placed.join(stands, on="record", how="semi", maintain_order="left")
    counts[Cause.REPLACED] += placed.height - valid.height
    summed = [SUMMED + name for name in labels.sums]
    matched = valid.select("record", "served_at", "object_id", "action_name", "ordinal", *summed)
    return matched.sort("served_at", "record", maintain_order=True), superseded.sort("served_at", "record")


def _find_nearest_list(events: pl.DataFrame, keys: pl.DataFrame, side: Literal["backward", "forward"]) -> pl.DataFrame:
    """Join each event with its query's list that was served last before it, or first within :data:`SKEW` after it."""
    return events.join_asof(
        keys.select("query_id", "served_at", "record"),
        left_on="timestamp",
        right_on="served_at",
        by="query_id",
        strategy=side,
        tolerance=None if side == "backward" else SKEW,
        coalesce=False,
        check_sortedness=False,  # both are sorted
    )


def _without_repeats(events: pl.DataFrame) -> pl.DataFrame:
    """Return each event once: by its id within its query, or, without an id, by all of its fields."""
    with_id = events.filter(pl.col("event_id").is_not_null())
    without_id = events.filter(pl.col("event_id").is_null())
    return pl.concat(
        [
            with_id.unique(["query_id", "event_id"], keep="first", maintain_order=True),
            without_id.unique(list(_WITHOUT_ID), keep="first", maintain_order=True),
        ]
    )


def _read(folder: Path, stem: str, schema: dict[str, Any]) -> pl.DataFrame:
    files = sorted(folder.glob(f"{stem}-*.parquet"))
    return pl.read_parquet(files) if files else pl.DataFrame(schema=schema)


def _run_step_once(folder: Path, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a step unless it is done, and return its stored result; running it again must give the same."""
    path = folder / f"{name}.{DONE}"
    if not path.exists():
        write_json(path, work())
    return read_object(path)


def _check_names(schema: Schema, labels: Labels, prefix: str) -> None:
    """Raise RecipeError if a sum, or DataError if a feature, has the name of another column of the judged rows."""
    others = {*_LEADING, *_TRAILING, *(f"n_{action}" for action in labels.actions)}
    twice = [name for name in labels.sums if name in others]
    if twice:
        raise RecipeError(f"sums.{twice[0]}: the judged rows have this column already: choose another name")
    clashing = [name for name in schema.names if name in {prefix + other for other in others | labels.sums.keys()}]
    if clashing:
        fault = f"has a feature {clashing[0]!r}, a column of the judged rows: say --prefix judged_, for example"
        raise DataError("the served log", fault)


def _judged_rows(
    slice_: Slice,
    pieces: Sequence[Path],
    matched: Sequence[Path],
    superseded: Sequence[Path],
    *,
    schema: Schema,
    labels: Labels,
    prefix: str,
    counts: Counts,
) -> pl.DataFrame:
    """Return the rows of the records that were served in a period, in the order of serving and of the shown places."""
    records = _between(pieces, slice_)
    records = records.join(_between(superseded, slice_).select("record"), on="record", how="anti").sort(TIME, "record")
    rows = _candidate_rows(records, schema, prefix)
    rows = _with_events(rows, records, _between(matched, slice_), labels, prefix, counts)
    ordered = [prefix + name for name in _LEADING] + list(schema.names) + [prefix + name for name in _TRAILING]
    return rows.select(*ordered, *_of_events(labels, prefix))


def _between(files: Sequence[Path], slice_: Slice) -> pl.DataFrame:
    inside = (pl.col(TIME) >= slice_.begin) & (pl.col(TIME) < slice_.end)
    return pl.scan_parquet(list(files)).filter(inside).collect()


def _candidate_rows(records: pl.DataFrame, schema: Schema, prefix: str) -> pl.DataFrame:
    """Return features and logged values of each shown candidate, under the names of the judged rows, and its record."""
    lengths = records["length"].to_numpy()
    rows, width = int(lengths.sum()), len(schema.names)
    features = np.frombuffer(b"".join(records["features"].to_list()), "<f4").reshape(rows, width)
    begins = np.cumsum(lengths) - lengths
    place = np.arange(rows) - np.repeat(begins, lengths)
    hidden = pl.Series(place >= np.repeat(records["top"].to_numpy(), lengths))
    record = np.repeat(np.arange(records.height), lengths)
    columns = {name: _column(features[:, d], schema, name) for d, name in enumerate(schema.names)}
    spread = records.select(
        pl.col("record").alias(_RECORD),
        pl.col(QID).alias(prefix + QID),
        pl.col(TIME).dt.replace_time_zone("UTC").alias(prefix + TIME),
        *(pl.col(name).alias(prefix + name) for name in _OF_RECORDS),
    )[record]
    ids = records.filter(pl.col("length") > 0)["shown"].explode()
    return spread.with_columns(
        ids.alias(prefix + "candidate_id"),
        pl.Series(prefix + "position", (place + 1).astype(np.int32)).set(hidden, None),
        _scores(records["scores"]).alias(prefix + "score"),
        _scores(records["first_stage_scores"]).alias(prefix + "first_stage_score"),
        _of_places(records["teams"], lengths).alias(prefix + "team"),
        _of_places(records["rule"], lengths).alias(prefix + "rule"),
        pl.Series(prefix + "swapped", _swapped(records, begins, rows)),
        *(column.alias(name) for name, column in columns.items()),
    )


def _column(values: np.ndarray, schema: Schema, name: str) -> pl.Series:
    categories = schema.categories.get(name)
    if categories is None:
        return pl.Series(np.ascontiguousarray(values))
    codes = pl.Series(values.astype(np.int64) - 1)  # 0 is an unknown or a missing one: null
    known = codes.is_between(0, len(categories) - 1)
    return pl.Series(list(categories), dtype=pl.String).gather(codes.set(~known, None))


def _scores(column: pl.Series) -> pl.Series:
    return pl.Series(np.frombuffer(b"".join(column.to_list()), "<f8")).fill_nan(None)


def _of_places(lists: pl.Series, lengths: np.ndarray) -> pl.Series:
    """Return what lists say of each shown place; null where there is none, or it is shorter than the shown list."""
    rows: list[str | None] = []
    for values, length in zip(lists.to_list(), lengths.tolist(), strict=True):
        rows += [None] * length if values is None else [*values, *[None] * length][:length]
    return pl.Series(rows, dtype=pl.String)


def _swapped(records: pl.DataFrame, begins: np.ndarray, rows: int) -> np.ndarray:
    swapped = np.zeros(rows, dtype=bool)
    changed = records["intervention"].is_not_null()
    for row in changed.arg_true().to_list():
        places = records["places"][row].to_numpy()
        swapped[begins[row] + places[(places >= 0) & (places < records["top"][row])]] = True
    return swapped


def _of_events(labels: Labels, prefix: str) -> list[str]:
    """Return the names of the columns that count events, and of those that sum their numbers."""
    return [prefix + name for name in (*(f"n_{action}" for action in labels.actions), *labels.sums)]


def _with_events(
    rows: pl.DataFrame, records: pl.DataFrame, events: pl.DataFrame, labels: Labels, prefix: str, counts: Counts
) -> pl.DataFrame:
    """Return the rows with their labels and counts, without those that were not seen."""
    at = rows.select(
        pl.col(_RECORD).alias("record"),
        pl.col(prefix + "candidate_id").alias("object_id"),
        pl.col(prefix + "position").alias("at"),
    )
    placed = events.join(at, on=["record", "object_id"], how="left")
    lost = placed.filter(pl.col("at").is_null())
    hidden = records.select("record", pl.col("unshown").alias("object_id")).explode("object_id").drop_nulls("object_id")
    not_shown = lost.join(hidden, on=["record", "object_id"], how="semi").height
    counts[Cause.NOT_SHOWN] += not_shown
    counts[Cause.NOT_IN_LIST] += lost.height - not_shown
    placed = placed.filter(pl.col("at").is_not_null())
    counts[COUNTED] += placed.height
    counts[OTHER_PLACE] += int((placed["ordinal"] != placed["at"]).sum())
    worth = pl.col("action_name").replace_strict(labels.labels, default=0, return_dtype=pl.Int32)
    of_candidate = placed.group_by(pl.col("record").alias(_RECORD), pl.col("object_id").alias(_OBJECT)).agg(
        worth.max().alias(prefix + LABEL),
        *(
            (pl.col("action_name") == action).sum().cast(pl.Int32).alias(f"{prefix}n_{action}")
            for action in labels.actions
        ),
        *(
            pl.col(SUMMED + name).filter(pl.col("action_name") == sum_.action).sum().alias(prefix + name)
            for name, sum_ in labels.sums.items()
        ),
    )
    for name, sum_ in labels.sums.items():
        counts[NO_NUMBER] += placed.filter(pl.col("action_name") == sum_.action)[SUMMED + name].null_count()
    joined = rows.join(
        of_candidate,
        left_on=[_RECORD, prefix + "candidate_id"],
        right_on=[_RECORD, _OBJECT],
        how="left",
        maintain_order="left",
    )
    if labels.seen:
        joined = joined.filter(pl.col(prefix + LABEL).is_not_null())
    filled = joined.with_columns(pl.col(name).fill_null(0) for name in (prefix + LABEL, *_of_events(labels, prefix)))
    return filled.with_columns(pl.when(pl.col(prefix + "position").is_not_null()).then(prefix + LABEL))
