"""Served records and events joined into judged rows: in bounded memory, resumable, and whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.served.files import log_files
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.joining import causes
from listwright.training.joining.causes import Counts
from listwright.training.joining.event_files import event_batches, event_files
from listwright.training.joining.labels import Labels
from listwright.training.joining.live_files import of_file
from listwright.training.joining.matching import BUCKET_ROWS, deal, keys_of, match, worth_matching
from listwright.training.joining.pieces import PieceTimes, Schema, Slice, schema_of, slices_of, write_pieces
from listwright.training.joining.rows import LABEL, QID, TIME, check_names, judged_rows
from listwright.training.joining.steps import DONE, once
from listwright.training.progress import SILENT, Progress
from listwright.training.stored.writing import job_folder, told_if_full

FULL = "make some, and run the same command with --resume"
SLICE_BYTES = 32 * 2**20
"""Of the features of a slice."""


@dataclass(frozen=True)
class JoinJob:
    """What is joined, and how.

    Args:
        served: folder of the served log, or one file of it.
        events: files and folders of events.
        labels: what an action is worth.
        window: an event counts up to so long after serving.
        out: the Parquet file to write.
        prefix: of all columns but the features.
        bucket_rows: see :data:`listwright.training.joining.matching.BUCKET_ROWS`.
        slice_bytes: see :data:`SLICE_BYTES`.
    """

    served: Path
    events: tuple[Path, ...]
    labels: Labels
    window: timedelta
    out: Path
    prefix: str = ""
    bucket_rows: int = BUCKET_ROWS
    slice_bytes: int = SLICE_BYTES


class JoinResult(NamedTuple):
    """What a join wrote.

    Args:
        rows: shown candidates.
        queries: with at least one row.
        served: records in the log, those that were served again among them.
        again: records of a query that was served again later.
        gone: files that the service removed by its limits before they were read.
        labelled: rows by label.
        counts: events by cause.
        first_fault: the first line or row that is no event, and why; empty if there is none.
    """

    rows: int
    queries: int
    served: int
    again: int
    gone: int
    labelled: dict[int, int]
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
    with (
        job_folder(job.out, facts, resume=resume, kept=f"served-*{DONE}") as folder,
        told_if_full(job.out.parent, FULL),
    ):
        return _Run(job, folder, progress).all()


class _Run:
    """One run over the hidden folder; each step leaves out what is there."""

    def __init__(self, job: JoinJob, folder: Path, progress: Progress) -> None:
        self._job, self._folder, self._progress = job, folder, progress
        self._counts = Counts()
        self._served = self._again = self._gone = 0

    def all(self) -> JoinResult:
        job = self._job
        files, sources = self._inputs()
        schema = self._schema(files)
        check_names(schema, job.labels, job.prefix)
        pieces = self._pieces(files, schema)
        first_fault, events = self._events(sources)
        matched, superseded = self._matched(pieces, events)
        slices = slices_of(pieces, len(schema.names), job.slice_bytes)
        written = self._rows(slices, pieces, matched, superseded, schema)
        rows, queries, labelled = self._publish(written, schema)
        return JoinResult(rows, queries, self._served, self._again, self._gone, labelled, self._counts, first_fault)

    def _inputs(self) -> tuple[list[Path], list[Path]]:
        """The files that there were when the job began: a service may write more meanwhile."""

        def listed() -> dict[str, Any]:
            job = self._job
            served = [job.served] if job.served.is_file() else log_files(job.served)
            events = [file for path in job.events for file in event_files(path)]
            return {"served": [str(path) for path in served], "events": [str(path) for path in events]}

        found = once(self._folder, "inputs", listed)
        return [Path(name) for name in found["served"]], [Path(name) for name in found["events"]]

    def _schema(self, files: Sequence[Path]) -> Schema:
        """Kept, as files go."""

        def seen() -> dict[str, Any]:
            schema = schema_of(files)
            return {"names": schema.names, "categories": schema.categories}

        found = once(self._folder, "schema", seen)
        return Schema(tuple(found["names"]), {name: tuple(values) for name, values in found["categories"].items()})

    def _pieces(self, files: Sequence[Path], schema: Schema) -> list[Path]:
        inside = self._folder / "served"
        inside.mkdir(exist_ok=True)
        task = self._progress.begin("Reading served records")
        for number, path in enumerate(files):

            def read(number: int = number, path: Path = path, before: int = self._served) -> dict[str, Any]:
                def told(done: int) -> None:
                    task.reach(before + done, path.name)

                count = of_file(path, lambda there: write_pieces(there, number, schema, inside, told))
                return {"records": count or 0, "gone": count is None}

            found = once(self._folder, f"served-{number:05}", read)
            self._served += found["records"]
            self._gone += found["gone"]
            task.reach(self._served)
        task.end(self._served, "")
        if not self._served:
            raise DataError(self._job.served, "has no served record yet")
        return sorted(inside.glob("*.parquet"))

    def _events(self, sources: Sequence[Path]) -> tuple[str, int]:
        """Deal the events; the first fault, and how many events there are to match."""
        inside = self._folder / "events"
        inside.mkdir(exist_ok=True)
        task = self._progress.begin("Reading events")
        first, rows = "", 0
        for number, path in enumerate(sources):

            def read(number: int = number, path: Path = path, before: int = rows) -> dict[str, Any]:
                def told(done: int) -> None:
                    task.reach(before + done, path.name)

                found = of_file(path, lambda there: self._events_of(there, inside / f"{number:05}", told))
                return {"counts": {}, "kept": 0, "fault": "", "gone": True} if found is None else found

            found = once(self._folder, f"events-{number:05}", read)
            self._counts += causes.of_names(found["counts"])
            rows += found["kept"]
            self._gone += found["gone"]
            first = first or found["fault"]
        task.end(rows, "")
        return first, rows

    def _events_of(self, path: Path, stem: Path, told: Callable[[int], None]) -> dict[str, Any]:
        """Write the events of a file that are worth matching as pieces."""
        counts, kept, fault = Counts(), 0, ""
        for piece, batch in enumerate(event_batches(path, self._job.labels)):
            frame = worth_matching(batch.frame, self._job.labels, counts)
            counts.update(batch.faulty)
            fault = fault or batch.first_fault
            _write(frame, stem.with_name(f"{stem.name}-{piece:05}.parquet"))
            kept += frame.height
            told(kept)
        return {"counts": dict(counts), "kept": kept, "fault": fault, "gone": False}

    def _matched(self, pieces: Sequence[Path], events: int) -> tuple[list[Path], list[Path]]:
        buckets = max(1, -(-(self._served + events) // self._job.bucket_rows))
        dealt, matched = self._folder / "buckets", self._folder / "matched"
        matched.mkdir(exist_ok=True)

        def deal_all() -> dict[str, Any]:
            shutil.rmtree(dealt, ignore_errors=True)
            deal(keys_of(pieces), buckets, dealt, "keys")
            deal(map(pl.read_parquet, sorted((self._folder / "events").glob("*.parquet"))), buckets, dealt, "events")
            return {"buckets": sorted(path.name for path in dealt.iterdir()) if dealt.exists() else []}

        names = once(self._folder, "dealt", deal_all)["buckets"]
        task = self._progress.begin("Matching events, parts", len(names))
        for number, name in enumerate(names):

            def one(name: str = name) -> dict[str, Any]:
                counts = Counts()
                found, superseded = match(dealt / name, self._job.window, self._job.labels, counts)
                _write(found, matched / f"{name}.parquet")
                _write(superseded, matched / f"{name}.superseded.parquet")
                return {"counts": dict(counts), "again": superseded.height}

            told = once(self._folder, f"matched-{name}", one)
            self._counts += causes.of_names(told["counts"])
            self._again += told["again"]
            task.reach(number + 1)
        found = sorted(matched.glob("*.parquet"))
        again = [path for path in found if ".superseded" in path.name]
        return [path for path in found if path not in again], again

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

            def one(slice_: Slice = slice_, path: Path = path) -> dict[str, Any]:
                counts = Counts()
                rows = judged_rows(
                    slice_,
                    times.within(slice_),
                    matched,
                    superseded,
                    schema=schema,
                    labels=self._job.labels,
                    prefix=self._job.prefix,
                    counts=counts,
                )
                _write(rows, path)
                return {"counts": dict(counts)}

            self._counts += causes.of_names(once(self._folder, f"rows-{slice_.name}", one)["counts"])
            written.append(path)
            task.reach(number + 1)
        return written

    def _publish(self, written: Sequence[Path], schema: Schema) -> tuple[int, int, dict[int, int]]:
        """The rows as one file; how many rows and queries there are, and the rows of each label."""
        job, prefix = self._job, self._job.prefix
        whole = self._folder / "whole.parquet"
        metadata = judged_metadata(
            schema.names,
            qid=prefix + QID,
            label=prefix + LABEL,
            time=prefix + TIME,
            prefix=prefix,
            seen=bool(job.labels.seen),
        )
        rows = pl.scan_parquet(list(written))
        rows.sink_parquet(whole, compression="zstd", metadata=metadata)
        tally = pl.scan_parquet(whole).group_by(prefix + LABEL).len().sort(prefix + LABEL).collect(engine="streaming")
        labelled = {int(label): int(count) for label, count in tally.iter_rows()}
        begins = pl.col(prefix + QID) != pl.col(prefix + QID).shift(1)
        queries = pl.scan_parquet(whole).select(begins.fill_null(value=True).sum()).collect(engine="streaming").item()
        whole.replace(job.out)
        shutil.rmtree(self._folder)
        return sum(labelled.values()), int(queries or 0), labelled


def _write(frame: pl.DataFrame, path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    frame.write_parquet(partial, compression="lz4", row_group_size=50_000)
    partial.replace(path)
