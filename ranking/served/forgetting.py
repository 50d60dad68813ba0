"""Files of the served log without the records of one unit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from listwright.ranking.served import files
from listwright.ranking.served.record import ServedRecord


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of one file.

    Args:
        path: of the file.
        removed: records of the unit that were in it.
        kept: other records.
        unfinished: whether it is still written, or was left by a killed worker: nothing of it was changed.
    """

    path: Path
    removed: int
    kept: int
    unfinished: bool


def forget(folder: Path, units: frozenset[str]) -> Iterator[Forgotten]:
    """Remove all records of some units from the finished files of a served log; a file that has any is written anew.

    The new file replaces the old one in one step and is on the disk by then; a file that would have no record is
    removed. An interrupted run loses nothing, and may be run again.

    Args:
        folder: of the log.
        units: as they stand in the log: as they were sent, or their hashes.

    Yields:
        Of each file that has records of the units, in the order of :func:`~listwright.ranking.served.files.log_files`.

    Raises:
        DataError: if the folder is not there, or a file is damaged: its name, and what to do.
        OSError: if a file cannot be written.
    """
    for listed in files.log_files(folder):
        path, of_units = _looked_through(listed, units)
        if not any(of_units):
            continue
        unfinished = path.name.endswith(files.OPEN_SUFFIX)
        if not unfinished:
            _rewrite(path, units, some_stay=not all(of_units))
        yield Forgotten(path, sum(of_units), len(of_units) - sum(of_units), unfinished)


def _looked_through(listed: Path, units: frozenset[str]) -> tuple[Path, list[bool]]:
    """The file's name now, and of each of its records whether it is of the units; the service may finish the file, or
    remove it by its limits, at any moment.
    """
    finished = listed.with_name(listed.name.removesuffix(files.OPEN_SUFFIX) + files.SUFFIX)
    for path in (listed, finished) if listed.name.endswith(files.OPEN_SUFFIX) else (listed,):
        try:
            return path, [record.unit in units for record in files.read(path)]
        except files.GoneError:
            continue
    return listed, []


def _rewrite(path: Path, units: frozenset[str], *, some_stay: bool) -> None:
    if not some_stay:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f".{path.name}.without")
    files.write(new, _others(path, units), mode=path.stat().st_mode & 0o777)
    replace_durably(new, path)


def replace_durably(new: Path, path: Path) -> None:
    """Put a file in the place of another one of its folder, in one step that a power failure does not undo."""
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _others(path: Path, units: frozenset[str]) -> Iterator[ServedRecord]:
    return (record for record in files.read(path) if record.unit not in units)
