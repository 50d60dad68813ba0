"""A file's lists scored side by side into parts, and the parts into one file: resumable, and in full or not at all.

A part holds whole lists, and about the same number of rows however the file was read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from polars.selectors import binary

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_folder
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import mostly_unknown
from listwright.ranking.manifest import Manifest
from listwright.ranking.threads import cores
from listwright.training.cluster import side_by_side
from listwright.training.console.progress import Progress
from listwright.training.data.cells import count_rounded, rounded_note
from listwright.training.data.tables.frames import index_note, listed
from listwright.training.job_folder import WorkerStoppedError, disk_full_as_data_error, job_folder
from listwright.training.scoring.frames import FileRows, RowRange, batches, files_of
from listwright.training.scoring.job import PART_ROWS, Job, ScoreResult, unnamed
from listwright.training.scoring.worker import FULL, SIZES, rows_file, score_part, size_file

T = TypeVar("T")


def run(
    job: Job,
    workers: Executor,
    at_a_time: int,
    until_scored: AbstractContextManager[Any],
    *,
    workers_read: bool,
    resume: bool,
    progress: Progress,
) -> ScoreResult:
    """Score the missing parts of a job, and publish all.

    Args:
        job: Options of the scoring.
        workers: Executor that scores the parts.
        at_a_time: Number of parts to score side by side.
        until_scored: Context whose end ends the workers of this machine: none writes into the folder of a job that is
            over.
        workers_read: Whether the workers read Parquet files themselves.
        resume: Whether an interrupted job goes on.
        progress: Progress report.

    Raises:
        ListwrightError: see :func:`listwright.training.scoring.score.score`.
    """
    manifest, facts = inputs(job)
    with (
        job_folder(job.out, facts, resume=resume, keep_pattern=SIZES) as folder,
        disk_full_as_data_error(job.out.parent, FULL),
    ):
        try:
            with until_scored:
                sizes = _all_parts(job, manifest, folder, workers, at_a_time, progress, ids_only=workers_read)
        except BrokenProcessPool as error:
            raise WorkerStoppedError(
                "a worker was stopped from outside, perhaps because memory ran out: finished parts are kept; the same "
                "command with --resume continues, with --jobs N for fewer at a time"
            ) from error
        done = [json.loads(path.read_text()) for path in sizes]
        counts = np.array([counts for _, _, counts, _ in done], dtype=np.int64).sum(axis=0)
        coarse = [sentence for *_, sentences in done for sentence in sentences]
        for sentence in (*mostly_unknown(counts, manifest.feature_schema).values(), *coarse):
            progress.remark(sentence)
        if _facts(job, manifest) != facts:
            raise DataError(job.data, f"changed while it was scored: delete {folder}, and score it again")
        _publish(folder, job.out)
    return ScoreResult(sum(rows for rows, *_ in done), sum(lists for _, lists, *_ in done))


def check_features(
    data: Path, names: Sequence[str], manifest: Manifest, known: Sequence[str], progress: Progress
) -> None:
    """Print a note on features that the data lack: perhaps a column has another name than in training.

    Args:
        data: File that is at fault.
        names: Names of its columns.
        manifest: Manifest of a bundle that ranks the data.
        known: Names of further columns that have a use.
        progress: Receiver of the note.

    Raises:
        DataError: if a feature is not there, has no default, and was never missing in training.
    """
    name, schema = f"{manifest.name}/{manifest.version}", manifest.feature_schema
    absent = [feature for feature in schema.features if feature.name not in names]
    needed = [feature.name for feature in absent if feature.default is None and not feature.missing_in_training]
    others = listed([column for column in names if column not in (*schema.names, *known)]) or "none"
    columns = f"columns that are no features of it: {others}"
    if needed:
        raise DataError(data, f"lacks {listed(needed)}, which {name} was fitted with; {columns}")
    if absent:
        lacks = listed([feature.name for feature in absent])
        progress.remark(f"the data lack {lacks}: defaults or missing values stand there for {name}; {columns}")


def _all_parts(
    job: Job,
    manifest: Manifest,
    folder: Path,
    workers: Executor,
    at_a_time: int,
    progress: Progress,
    *,
    ids_only: bool,
) -> list[Path]:
    """Score the missing parts; return each part's counts, in order."""
    files_of(job.data, progress.remark)
    task = progress.begin(f"Scoring {job.data.name}, rows")
    qid, rows, ids_only = batches(job.data, manifest.feature_schema, job.qid, job.columns, ids_only=ids_only)
    written, done, running = [], 0, dict[Future[None], int]()
    rows_read = rounded = 0

    def take(futures: Iterable[Future[None]]) -> None:
        nonlocal done
        for future in futures:
            done += running.pop(future)
            future.result()
            task.reach(done)

    for part in parts(rows, qid, job.part_rows):
        if part.number == 0:
            _check_names(job, part.columns, job.written(part.columns, manifest.feature_schema.names, qid))
            left_out = unnamed(part.columns, manifest.feature_schema.names, qid) - set(job.columns or ())
            if left_out:
                progress.remark(index_note(sorted(left_out)))
            check_features(job.data, part.columns, manifest, [qid], progress)
        rows_read, rounded = rows_read + part.rows.height, rounded + count_rounded(part.rows[qid])
        written.append(size_file(folder, part.number))
        if written[-1].exists():
            done += part.rows.height
            task.reach(done)
            continue
        running[_submit(workers, part, job, qid, folder, ids_only=ids_only)] = part.rows.height
        if len(running) > at_a_time:  # one waits, so that no worker does; more would fill the memory
            take(wait(running, return_when=FIRST_COMPLETED).done)
    while running:
        take(wait(running, return_when=FIRST_COMPLETED).done)
    task.end(done)
    if rounded:
        progress.remark(rounded_note(qid, rounded, rows_read))
    return written


def _submit(workers: Executor, part: Part, job: Job, qid: str, folder: Path, *, ids_only: bool) -> Future[None]:
    """Submit a part. Rows that are already read go through a file: a pipe would copy them several times."""
    ranges = part.ranges
    if not ids_only:
        part.rows.write_ipc(rows_file(folder, part.number), compression="uncompressed")
        ranges = [RowRange(rows_file(folder, part.number), 0, part.rows.height)]
    return workers.submit(score_part, part.number, ranges, job, qid, str(folder))


def _check_names(job: Job, names: Sequence[str], written: Sequence[str]) -> None:
    for name in written:
        if name not in names:
            raise RecipeError(f"--columns {name}: {job.data} has no such column: check it, or leave --columns out")
    doubles = [job.prefix + name for name in job.added if job.prefix + name in written]
    if doubles:
        raise RecipeError(f"{job.data} has a column {doubles[0]!r} already: say --prefix new_ for new_rank …")


def _publish(folder: Path, out: Path) -> None:
    """Publish the parts as one file, or as a folder without the job's own files; in full or not at all."""
    paths = sorted(folder.glob("[0-9]*.parquet"))
    whole = folder / f"whole{out.suffix}"
    if not out.suffix:
        with atomic_folder(out, whole):
            for path in paths:
                os.link(path, whole / path.name)
    else:
        if out.suffix.lower() == ".csv":
            pl.scan_parquet(paths).with_columns(binary().cast(pl.String)).sink_csv(whole)
        else:
            pl.scan_parquet(paths).sink_parquet(whole)
        whole.replace(out)
    shutil.rmtree(folder)


def inputs(job: Job) -> tuple[Manifest, dict[str, object]]:
    """Return the bundle's manifest, and all that the parts depend on.

    Raises:
        BundleError: if there is no such bundle.
        DataError: if there are no such data.
        RecipeError: if the bundle lacks the probabilities or goals that are asked for.
    """
    manifest = bundle.read_manifest(job.bundle)
    if job.probability and manifest.probability is None and not manifest.temperatures:
        raise RecipeError(f"--probability: {job.bundle} states no probabilities: leave it out, or fit the bundle again")
    if job.weights is not None and manifest.goals is None:
        raise RecipeError(f"--weights: {job.bundle} has one goal: leave them out, or fit one with --goal")
    return manifest, _facts(job, manifest)


def _facts(job: Job, manifest: Manifest) -> dict[str, object]:
    stats = {str(path): path.stat() for path in files_of(job.data)}
    sizes = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    hashes = {entry.name: entry.sha256 for entry in manifest.files}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(job).items()}
    columns = None if job.columns is None else list(job.columns)
    return {**plain, "format": 2, "columns": columns, "files of the bundle": hashes, "size and time of data": sizes}


class Part(NamedTuple):
    """Some complete lists in the order of the file.

    Args:
        number: Number of the part, from 0.
        rows: Rows from the batches.
        columns: Names of all needed columns.
        ranges: Places of the rows in the files.
    """

    number: int
    rows: pl.DataFrame
    columns: Sequence[str]
    ranges: Sequence[RowRange]


def parts(batches: Iterator[FileRows], qid: str, rows: int = PART_ROWS) -> Iterator[Part]:
    """Yield consecutive lists, cut where one ends.

    The cuts depend on the rows and on nothing else, so a run that is resumed has the same parts.

    Args:
        batches: Batches of rows in order.
        qid: Column with the query id.
        rows: Number of rows after which a part ends, with its last list.

    Raises:
        DataError: if a query id is missing, or rows of a query stand apart; with the line. Queries are known again by
            64 bits of their id: among ten million queries, two are taken for one with a probability of 3e-6.
    """
    held, number, places, keys = pl.DataFrame(), 0, list[_Place](), set[int]()
    columns: Sequence[str] = ()
    for batch in batches:
        columns = tuple(batch.schema)
        places.append(_Place(batch.path, batch.lines, batch.first))
        held = pl.concat([held, batch.rows]) if held.height else batch.rows
        while (cut := _end_of_list(held[qid], rows)) is not None:
            yield Part(number, _checked(held[:cut], qid, places, keys), columns, _ranges(places, cut))
            held, number = held[cut:], number + 1
            places = _skip_rows(places, cut)
    if held.height:
        yield Part(number, _checked(held, qid, places, keys), columns, _ranges(places, held.height))


def map_parts(
    work: Callable[[str, int], T],
    rows: Iterator[FileRows],
    qid: str,
    folder: Path,
    title: str,
    *,
    jobs: int | None,
    progress: Progress,
) -> list[T]:
    """Apply a function to each part of some rows, in processes of this machine; return its results in order.

    Args:
        work: Function of the path of an Arrow file with a part's rows, which it deletes, and of the part's number.
        rows, qid: Arguments of :func:`parts`.
        folder: Folder for the files.
        title: Title of the progress.
        jobs: Number of parts at a time; None for all cores.
        progress: Receiver of the progress.

    Raises:
        RecipeError: if a worker is stopped from outside.
    """
    task, done, results, running = progress.begin(title), 0, list[T](), deque[tuple[Future[T], int]]()

    def take() -> None:
        nonlocal done
        future, height = running.popleft()
        results.append(future.result())
        done += height
        task.reach(done)

    try:
        with side_by_side(None, jobs, local_jobs=cores()) as (workers, at_a_time):
            for part in parts(rows, qid):
                path = folder / f"{part.number:07}.arrow"
                part.rows.write_ipc(path, compression="uncompressed")
                running.append((workers.submit(work, str(path), part.number), part.rows.height))
                if len(running) > at_a_time:  # one waits, so that no worker does; more would fill the memory
                    take()
            while running:
                take()
    except BrokenProcessPool as error:
        fault = "a worker was stopped from outside, perhaps for lack of memory: try again with --jobs 1"
        raise RecipeError(fault) from error
    task.end(done)
    return results


class _Place(NamedTuple):
    """The origin of rows: a file, the line of each, and the number of the first."""

    path: Path
    lines: Sequence[int]
    first: int


def _skip_rows(places: list[_Place], rows: int) -> list[_Place]:
    """Return the places after the first ``rows`` rows."""
    left = []
    for path, lines, first in places:
        if len(lines) > rows:
            left.append(_Place(path, lines[rows:], first + rows))
        rows = max(0, rows - len(lines))
    return left


def _fault(places: list[_Place], row: int, qid: str, message: str) -> DataError:
    place = _skip_rows(places, row)[0]
    return DataError(place.path, message, line=place.lines[0], column=qid)


def _ranges(places: list[_Place], rows: int) -> list[RowRange]:
    """Return the place of the first ``rows`` rows, a range for each file."""
    ranges = list[RowRange]()
    for path, lines, first in places:
        here = min(rows, len(lines))
        if ranges and ranges[-1].path == path:
            ranges[-1] = RowRange(path, ranges[-1].first, ranges[-1].rows + here)
        elif here:
            ranges.append(RowRange(path, first, here))
        rows -= here
    return ranges


def _end_of_list(ids: pl.Series, rows: int) -> int | None:
    """Return the first row from ``rows`` on that begins another list; None if none does yet."""
    if len(ids) <= rows:
        return None
    behind = ids[rows:]
    begins = behind.ne_missing(ids[rows - 1 : -1])
    return rows + int(begins.arg_max() or 0) if begins.any() else None


def _checked(part: pl.DataFrame, qid: str, places: list[_Place], keys: set[int]) -> pl.DataFrame:
    """Return the rows of a part; raise DataError for a query that an earlier part had."""
    ids = part[qid]
    if ids.null_count():
        raise _fault(places, int(ids.is_null().arg_max() or 0), qid, "the query id is missing")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:].ne_missing(ids[:-1]).to_numpy()]))
    for row, key in zip(starts.tolist(), ids.gather(starts).hash(seed=0).to_list(), strict=True):
        if key in keys:
            message = f"query {ids[row]!r} has rows before, and others between: sort the file by its query ids"
            raise _fault(places, row, qid, message)
        keys.add(key)
    return part
