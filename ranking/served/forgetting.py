"""Files of the served log without the records of one unit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from listwright.ranking.served import files
from listwright.ranking.served.record import ServedRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of one file.

    Args:
        path: of the file.
        removed: records of the unit that were in it.
        kept: other records.
        unfinished: whether it is still written, or was left by a killed worker: nothing of it was changed.
        queries: query ids of events that are left in it.
    """

    path: Path
    removed: int
    kept: int
    unfinished: bool
    queries: frozenset[str] = frozenset()


def forget(folder: Path, units: frozenset[str], awaited: frozenset[str] = frozenset()) -> Iterator[Forgotten]:
    """Remove all records of some units from the finished files of a served log; a file that has any is written anew.

    The new file replaces the old one in one step and is on the disk by then; a file that would have no record is
    removed. An interrupted run loses nothing, and may be run again.

    Args:
        folder: of the log.
        units: as they stand in the log: as they were sent, or their hashes.
        awaited: query ids of records that stay: without them nobody knows which events are left.

    Yields:
        Of each file that has records of the units, in the order of :func:`~listwright.ranking.served.files.log_files`.

    Raises:
        DataError: if the folder is not there, or a file is damaged: its name, and what to do.
        OSError: if a file cannot be written.
    """

    def goes(record: ServedRecord) -> bool:
        return record.unit in units and record.query_id not in awaited

    for listed in files.log_files(folder):
        path, of_units = looked_through(listed, goes)
        if not any(of_units):
            continue
        unfinished = path.name.endswith(files.OPEN_SUFFIX)
        if not unfinished:
            _rewrite(path, goes, some_stay=not all(of_units))
        yield Forgotten(path, sum(of_units), len(of_units) - sum(of_units), unfinished)


def looked_through(listed: Path, said: Callable[[ServedRecord], T]) -> tuple[Path, list[T]]:
    """The file's name now, and what is said of each of its records; the service may finish the file, or remove it by
    its limits, at any moment.

    Raises:
        DataError: if it is damaged.
    """
    for path in files.names_of(listed):
        try:
            return path, [said(record) for record in files.read(path)]
        except files.GoneError:
            continue
    return listed, []


def _rewrite(path: Path, goes: Callable[[ServedRecord], bool], *, some_stay: bool) -> None:
    if not some_stay:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f".{path.name}.without")
    files.write(new, (record for record in files.read(path) if not goes(record)), mode=path.stat().st_mode & 0o777)
    replace_durably(new, path)


def replace_durably(new: Path, path: Path) -> None:
    """Put a file in the place of another one of its folder, in one step that a power failure does not undo."""
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
