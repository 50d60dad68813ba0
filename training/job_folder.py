"""Writing that can be interrupted, or run out of disk.

A job that takes long has a hidden folder: its finished parts stay in it until all of them are published.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.plain_file import read_object


@contextmanager
def disk_full_as_data_error(folder: Path, remedy: str) -> Iterator[None]:
    """Raise DataError where a write below a folder fails because the disk is full.

    Args:
        folder: Folder that the error names.
        remedy: Remedy that the error names.

    Raises:
        DataError: if the disk is full.
    """
    from polars.exceptions import ComputeError  # noqa: PLC0415 - who only looks for a folder need not wait for it

    try:
        yield
    except (OSError, ComputeError) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or f"os error {errno.ENOSPC}" in str(error):
            raise DataError(folder, f"no room is left on this disk: {remedy}") from error
        raise


class WorkerStoppedError(RecipeError):
    """Error for a worker process that was killed from outside: the job's folder stays as it is."""


class JobKind(NamedTuple):
    """A kind of job, with its messages, which are formats.

    Args:
        name: Noun of the messages.
        facts: Name of the file of the facts.
        in_use: Message if another process works in ``{folder}`` on ``{out}``.
        other: Message if the fact ``{name}`` was ``{before}`` in the interrupted job, and is ``{now}``.
    """

    name: str
    facts: str
    in_use: str
    other: str


JOB = JobKind(
    "job",
    "job.json",
    "{folder} is in use: another process writes {out}",
    "{name} was {before!r} when the job was interrupted, and is {now!r}: resume with what it was, or delete {folder}",
)


def folder_of(out: Path) -> Path:
    """Return the folder of a job's parts until it publishes ``out``; it exists while the job can be resumed."""
    return out.with_name(f".{out.name}.partial")


@contextmanager
def job_folder(
    out: Path, facts: Mapping[str, Any], *, resume: bool, keep_pattern: str, kind: JobKind = JOB
) -> Iterator[Path]:
    """Lock the hidden folder next to ``out`` against other jobs.

    Args:
        out: File or folder that will be published.
        facts: Values that the parts depend on, as JSON has them; a job is resumed under the same only.
        resume: Whether an interrupted job goes on.
        keep_pattern: Pattern of file names; after an error the folder stays if it has such a file.
        kind: Kind of the job, which has the words of the messages.

    Raises:
        RecipeError: if there is nothing to resume, or an interrupted job and ``resume`` is False, or other facts, or
            another process writes ``out``.
    """
    folder = folder_of(out)
    begun = folder.exists()
    if resume and not begun:
        raise RecipeError(f"nothing to resume for {out}: there is no {folder}; run without --resume")
    with locked(folder, kind.in_use.format(folder=folder, out=out)):
        if begun and not resume:
            message = f"holds an interrupted {kind.name}: continue it with --resume, or delete that folder"
            raise RecipeError(f"{folder} {message}")
        try:
            if resume and not read_object(folder / kind.facts):
                raise DataError(folder / kind.facts, "is empty")
            store_facts(folder / kind.facts, facts, kind.other)
        except DataError as error:
            raise RecipeError(f"{folder} is no {kind.name} that can be resumed ({error}): delete it") from error
        try:
            yield folder
        except WorkerStoppedError:
            raise
        except Exception:
            if not any(folder.glob(keep_pattern)):
                shutil.rmtree(folder)
            raise


@contextmanager
def locked(folder: Path, in_use: str, option: str = "--out") -> Iterator[None]:
    """Make a folder if it is missing, and lock it against other processes.

    Args:
        folder: Folder that one process at a time may work in.
        in_use: Message of the error if another process holds it.
        option: Command-line option that names it.

    Raises:
        RecipeError: if the folder is in use, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock").acquire(timeout=0)
    except Timeout:
        raise RecipeError(in_use) from None
    except OSError as error:
        raise RecipeError(f"{folder} cannot be made: {error.strerror or error}; choose another {option}") from error
    with lock:
        yield


def store_facts(file: Path, facts: Mapping[str, Any], other: str) -> None:
    """Add facts to a JSON file that has none of them, or check that it has the same.

    Args:
        file: File in the folder that depends on the facts.
        facts: Values by name, as JSON has them.
        other: Format of the error's message, with ``folder``, ``name``, ``before`` and ``now``.

    Raises:
        RecipeError: if a value differs.
        DataError: if the file is damaged.
    """
    earlier = read_object(file) if file.exists() else {}
    if earlier.keys().isdisjoint(facts):
        write_json(file, {**earlier, **facts})
        return
    for name, now in facts.items():
        if (before := earlier.get(name)) != now:
            raise RecipeError(other.format(folder=file.parent, name=name, before=before, now=now))


def remove_unused(folder: Path, inside: Sequence[Path], files: Sequence[str]) -> None:
    """Remove a folder made for a mistake noticed at once: its files, unless one of the folders inside holds any."""
    parts = [part for part in inside if part.exists()]
    if any(any(part.iterdir()) for part in parts):
        return
    for part in parts:
        part.rmdir()
    for name in files:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def write_json(path: Path, value: Any) -> None:
    """Write a file in full or not at all."""
    atomic_write(path, json.dumps(value))
