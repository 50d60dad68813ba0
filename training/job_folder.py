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
from typing import Any

from filelock import FileLock, Timeout

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.plain_file import read_object


@contextmanager
def disk_full_as_data_error(folder: Path, remedy: str) -> Iterator[None]:
    """Raise DataError where a write below a folder fails because the disk is full.

    Args:
        folder: that is named where no room is left.
        remedy: what to do then.

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


_JOB, _LOCK = "job.json", "lock"


class WorkerStoppedError(RecipeError):
    """A worker process was killed from outside: the job's folder stays as it is."""


def folder_of(out: Path) -> Path:
    """Return the folder of a job's parts until it publishes ``out``; it exists while the job can be resumed."""
    return out.with_name(f".{out.name}.partial")


@contextmanager
def job_folder(out: Path, facts: Mapping[str, Any], *, resume: bool, keep_pattern: str) -> Iterator[Path]:
    """Lock the hidden folder next to ``out`` against other jobs.

    Args:
        out: the file or folder that will be published.
        facts: what the parts depend on, as JSON has it; a job is resumed under the same only.
        resume: whether an interrupted job goes on.
        keep_pattern: pattern of file names; after an error the folder stays if it has such a file.

    Raises:
        RecipeError: if there is nothing to resume, or an interrupted job and ``resume`` is False, or other facts, or
            another process writes ``out``.
    """
    folder = folder_of(out)
    begun = folder.exists()
    if resume and not begun:
        raise RecipeError(f"nothing to resume for {out}: there is no {folder}; run without --resume")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / _LOCK, timeout=0):
            if begun and not resume:
                message = "holds an interrupted job: continue it with --resume, or delete that folder"
                raise RecipeError(f"{folder} {message}")
            _check_same(folder / _JOB, facts)
            try:
                yield folder
            except WorkerStoppedError:
                raise
            except Exception:
                if not any(folder.glob(keep_pattern)):
                    shutil.rmtree(folder)
                raise
    except Timeout:
        raise RecipeError(f"{folder} is in use: another process writes {out}") from None


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


def _check_same(path: Path, facts: Mapping[str, Any]) -> None:
    """Store what the parts depend on, or compare it with what an earlier job stored."""
    if not path.exists():
        write_json(path, dict(facts))
        return
    before = read_object(path)
    changed = [name for name, value in facts.items() if before.get(name) != value]
    if changed:
        raise RecipeError(
            f"{changed[0]} was {before.get(changed[0])!r} when the job was interrupted, and is {facts[changed[0]]!r}: "
            f"resume with what it was, or delete {path.parent}"
        )
