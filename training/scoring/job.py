"""A file's lists scored side by side into parts, and the parts into one file: resumable, and whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import polars as pl

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.manifest import Manifest
from listwright.training.cluster.executor import cores, side_by_side
from listwright.training.progress import SILENT, Progress
from listwright.training.scoring.frames import batches, files_of
from listwright.training.scoring.parts import PART_ROWS, Part, parts
from listwright.training.scoring.ranges import ARROW, RowRange, needed, read
from listwright.training.scoring.rank import COLUMNS, ranked
from listwright.training.stored.disk import told_if_full
from listwright.training.stored.job_folder import WorkerStoppedError, job_folder, write_json

FORMATS = (".parquet", ".csv")
FULL = "make some, and run the same command with --resume"


@dataclass(frozen=True)
class Job:
    """What is scored, and how.

    Args:
        bundle: its folder.
        data: file with the lists, or a folder of such files.
        out: the file to write, whose name ends in one of :data:`FORMATS`; without an ending, a folder of Parquet parts.
        qid: column with the query id, for tables.
        strategy: as a request says it.
        prefix: of the added columns.
        columns: of the data that are written beside them; None for all.
        part_rows: see :func:`listwright.training.scoring.parts.parts`.
    """

    bundle: Path
    data: Path
    out: Path
    qid: str | None = None
    strategy: str = "auto"
    prefix: str = ""
    columns: Sequence[str] | None = None
    part_rows: int = PART_ROWS


class Scored(NamedTuple):
    """What a job wrote."""

    rows: int
    lists: int


def score(
    job: Job, *, jobs: int | None = None, on: str | None = None, resume: bool = False, progress: Progress = SILENT
) -> Scored:
    """Rank every list of a file or a folder, ``jobs`` parts at a time; write the rows in order with the added columns.

    Where is up to ``on``, which :func:`listwright.training.cluster.executor.side_by_side` reads; without ``jobs`` all
    cores are used.

    Raises:
        RecipeError: if ``out`` exists, its format is not known, or an interrupted job is there and ``resume`` is False,
            or another one is; if a worker is stopped from outside.
        DataError: if the disk is full, or the data changed meanwhile.
        ListwrightError: see :func:`batches`, :func:`parts` and :func:`ranked`. Parts that are done stay.
    """
    if job.out.suffix.lower() not in ("", *FORMATS):
        expected = f"expected a name that ends in {' or '.join(FORMATS)}, or a folder's name without an ending"
        raise RecipeError(f"--out {job.out}: {expected}")
    if job.out.exists():
        raise RecipeError(f"{job.out} exists already: choose another --out, or delete it")
    manifest = bundle.read_manifest(job.bundle)
    facts = _facts(job, manifest)
    with (
        job_folder(job.out, facts, resume=resume, kept="0*.json") as folder,
        told_if_full(job.out.parent, FULL),
    ):
        done = [Scored(*json.loads(path.read_text())) for path in _all_parts(job, manifest, folder, jobs, on, progress)]
        if _facts(job, manifest) != facts:
            raise DataError(job.data, f"changed while it was scored: delete {folder}, and score it again")
        _publish(folder, job.out)
    return Scored(sum(part.rows for part in done), sum(part.lists for part in done))


def _all_parts(
    job: Job, manifest: Manifest, folder: Path, jobs: int | None, on: str | None, progress: Progress
) -> list[Path]:
    """Score the parts that are not there; what each holds, in order."""
    task = progress.begin(f"Scoring {job.data.name}, rows")
    ids_only = on is None  # the nodes of a cluster share the folder of the parts, and perhaps not the data
    qid, rows, ids_only = batches(job.data, manifest.feature_schema, job.qid, job.columns, ids_only=ids_only)
    written, done, running = [], 0, dict[Future[None], int]()

    def take(futures: Iterator[Future[None]]) -> None:
        nonlocal done
        for future in futures:
            done += running.pop(future)
            future.result()
            task.reach(done)

    try:
        with side_by_side(on, jobs, local_jobs=cores()) as (workers, at_a_time):
            if on is None:
                for _ in range(at_a_time):  # processes start, which takes seconds, while the first parts are read
                    workers.submit(_open, str(job.bundle))
            for part in parts(rows, qid, job.part_rows):
                if part.number == 0:
                    _check_names(job, part.columns)
                written.append(_beside(folder, part.number))
                if written[-1].exists():
                    done += part.rows.height
                    task.reach(done)
                    continue
                running[_begun(workers, part, job, qid, folder, ids_only=ids_only)] = part.rows.height
                if len(running) > at_a_time:  # one waits, so that no worker does; more would fill the memory
                    take(iter(wait(running, return_when=FIRST_COMPLETED).done))
            while running:
                take(iter(wait(running, return_when=FIRST_COMPLETED).done))
    except BrokenProcessPool as error:
        raise WorkerStoppedError(
            "a worker was stopped from outside, perhaps for want of memory: finished parts are kept; the same command "
            "with --resume continues, with --jobs N for fewer at a time"
        ) from error
    task.end(done)
    return written


def _begun(workers: Executor, part: Part, job: Job, qid: str, folder: Path, *, ids_only: bool) -> Future[None]:
    """Have a part scored. Rows that are read go through a file: through a pipe they would be copied several times."""
    ranges = part.ranges
    if not ids_only:
        part.rows.write_ipc(_rows_file(folder, part.number), compression="uncompressed")
        ranges = [RowRange(_rows_file(folder, part.number), 0, part.rows.height)]
    return workers.submit(_score_part, part.number, ranges, job, qid, str(folder))


def _score_part(number: int, ranges: Sequence[RowRange], job: Job, qid: str, folder: str) -> None:
    """In a worker: read, rank, write, and say last how much it is; once more does nothing."""
    said = _beside(Path(folder), number)
    if said.exists():
        return
    loaded = _loaded(str(job.bundle))
    rows = read(ranges, needed(loaded.manifest.feature_schema, qid, job.columns))
    found = ranked(rows, loaded, qid, strategy=job.strategy, prefix=job.prefix)
    lists = int((found[job.prefix + "rank"] == 1).sum())
    if job.columns is not None:
        found = found.select(*job.columns, *(job.prefix + name for name in COLUMNS))
    path = _part_file(Path(folder), number)
    with told_if_full(path.parent, FULL):
        found.write_parquet(path, compression="lz4")  # the time counts, and the parts of one file are written again
    write_json(said, [found.height, lists])
    _rows_file(Path(folder), number).unlink(missing_ok=True)


def _open(folder: str) -> None:
    """In a worker: import and load what the parts need. An error is that of the first part, too."""
    _loaded(folder)


@cache
def _loaded(folder: str) -> Bundle:
    _import_lightgbm()
    return bundle.load(Path(folder))


def _import_lightgbm() -> None:
    """As in the service's image, which has neither pandas nor scikit-learn: it would import them, for two seconds."""
    if "lightgbm" in sys.modules:
        return
    hidden = {"pandas", "sklearn"} - sys.modules.keys()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # so an import of it fails
    try:
        import_module("lightgbm")
    finally:
        for name in hidden:
            del sys.modules[name]


def _rows_file(folder: Path, number: int) -> Path:
    return folder / f"{number:07}{ARROW}"


def _part_file(folder: Path, number: int) -> Path:
    return folder / f"{number:07}.parquet"


def _beside(folder: Path, number: int) -> Path:
    """Is there once the part is whole: its rows and lists."""
    return folder / f"{number:07}.json"


def _check_names(job: Job, names: Sequence[str]) -> None:
    columns = names if job.columns is None else job.columns
    for name in columns:
        if name not in names:
            raise RecipeError(f"--columns {name}: {job.data} has no such column: check it, or leave --columns out")
    taken = [job.prefix + name for name in COLUMNS if job.prefix + name in columns]
    if taken:
        raise RecipeError(f"{job.data} has a column {taken[0]!r} already: say --prefix new_ for new_rank …")


def _publish(folder: Path, out: Path) -> None:
    """The parts as one file, or as a folder without what only a job needs; whole or not at all."""
    found = sorted(folder.glob("[0-9]*.parquet"))
    whole = folder / f"whole{out.suffix}"
    if not out.suffix:
        shutil.rmtree(whole, ignore_errors=True)  # of a run that was stopped here
        whole.mkdir()
        for path in found:
            os.link(path, whole / path.name)
    elif out.suffix.lower() == ".csv":
        pl.scan_parquet(found).sink_csv(whole)
    else:
        pl.scan_parquet(found).sink_parquet(whole)
    whole.replace(out)
    shutil.rmtree(folder)


def _facts(job: Job, manifest: Manifest) -> dict[str, object]:
    """All that the parts depend on."""
    stats = {path.name: path.stat() for path in files_of(job.data)}
    sizes = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    hashes = {entry.name: entry.sha256 for entry in manifest.files}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(job).items()}
    columns = None if job.columns is None else list(job.columns)
    return {**plain, "columns": columns, "files of the bundle": hashes, "size and time of data": sizes}
