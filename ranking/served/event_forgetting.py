"""Files of events without those of one person."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from listwright.ranking.errors import DataError
from listwright.ranking.served import files
from listwright.ranking.served.forgetting import Forgotten, replace_durably

FINISHED, PART = ".jsonl", ".jsonl.part"
"""Of files that ``POST /ubi/events`` writes."""

WITHOUT = ".without"
"""Ends the name of a file that is being written anew."""


def query_ids(log: Path, units: frozenset[str]) -> frozenset[str]:
    """Query ids of all records of some units in a served log, files that are still written among them.

    Args:
        log: folder of the served log.
        units: as they stand in it.

    Raises:
        DataError: if the folder is not there, or a file is damaged.
    """
    return frozenset(record.query_id for record in files.records(files.log_files(log)) if record.unit in units)


def forget_events(folder: Path, queries: frozenset[str], clients: frozenset[str]) -> Iterator[Forgotten]:
    """Remove all events of some queries or clients from the finished files of a log of events.

    A file that has any is written anew, and replaces the old one in one step. Lines that are no events stay.

    Args:
        folder: of the log of events.
        queries: their query ids.
        clients: their client ids.

    Yields:
        Of each file that has such events, by name.

    Raises:
        DataError: if the folder is not there.
        OSError: if a file cannot be read or written.
    """
    if not folder.is_dir():
        raise DataError(folder, "is no folder: name the folder of LISTWRIGHT_EVENTS_LOG")
    for leftover in folder.glob(f".events-*{WITHOUT}"):  # of a run that was stopped
        leftover.unlink(missing_ok=True)
    for listed in sorted((*folder.glob(f"events-*{FINISHED}"), *folder.glob(f"events-*{PART}"))):
        path, of_person = _looked_through(listed, queries, clients)
        if not any(of_person):
            continue
        unfinished = path.name.endswith(PART)
        if not unfinished:
            _rewrite(path, of_person)
        yield Forgotten(path, sum(of_person), len(of_person) - sum(of_person), unfinished)


def _looked_through(listed: Path, queries: frozenset[str], clients: frozenset[str]) -> tuple[Path, list[bool]]:
    """The file's name now, and of each of its lines whether it is the person's; the service may finish the file, or
    remove it by its limits, at any moment.
    """
    finished = listed.with_name(listed.name.removesuffix(PART) + FINISHED) if listed.name.endswith(PART) else listed
    for path in dict.fromkeys((listed, finished)):
        try:
            with path.open("rb") as lines:
                return path, [_is_of(line, queries, clients) for line in lines]
        except FileNotFoundError:
            continue
    return listed, []


def _is_of(line: bytes, queries: frozenset[str], clients: frozenset[str]) -> bool:
    try:
        event = json.loads(line)
    except ValueError:  # cut off by the end of its writer
        return False
    return isinstance(event, dict) and (_named(event, "query_id", queries) or _named(event, "client_id", clients))


def _named(event: dict[str, object], name: str, sought: frozenset[str]) -> bool:
    value = event.get(name)
    return isinstance(value, str) and value in sought


def _rewrite(path: Path, of_person: list[bool]) -> None:
    if all(of_person):
        path.unlink(missing_ok=True)
        return
    new, before = path.with_name(f".{path.name}{WITHOUT}"), path.stat()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, before.st_mode & 0o777)
    with os.fdopen(descriptor, "wb") as written, path.open("rb") as lines:
        written.writelines(line for line, gone in zip(lines, of_person, strict=True) if not gone)
        written.flush()
        os.fsync(descriptor)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))  # the service removes a file by its last event's age
    replace_durably(new, path)
