"""Files of events without those of one person."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from listwright.ranking import plain_file
from listwright.ranking.errors import DataError
from listwright.ranking.served import files
from listwright.ranking.served.forgetting import Forgotten, looked_through, replace_durably
from listwright.ranking.served.record import ServedRecord

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

    def query_of(record: ServedRecord) -> str | None:
        return record.query_id if record.unit in units else None

    found = (query for listed in files.log_files(log) for query in looked_through(listed, query_of)[1])
    return frozenset(query for query in found if query is not None)


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
        DataError: if the folder is not there, or a file cannot be read.
        OSError: if a file cannot be written.
    """
    if not folder.is_dir():
        raise DataError(folder, "is no folder: name the folder of LISTWRIGHT_EVENTS_LOG")
    for leftover in folder.glob(f".events-*{WITHOUT}"):  # of a run that was stopped
        leftover.unlink(missing_ok=True)
    for listed in sorted((*folder.glob(f"events-*{FINISHED}"), *folder.glob(f"events-*{PART}"))):
        path, goes, named = _looked_through(listed, queries, clients)
        if not any(goes):
            continue
        unfinished = path.name.endswith(PART)
        if not unfinished:
            _rewrite(path, goes)
        yield Forgotten(path, sum(goes), len(goes) - sum(goes), unfinished, named if unfinished else frozenset())


def _looked_through(
    listed: Path, queries: frozenset[str], clients: frozenset[str]
) -> tuple[Path, list[bool], frozenset[str]]:
    """The file's name now, of each of its lines whether it is the person's, and the queries that these lines name; the
    service may finish the file, or remove it by its limits, at any moment.
    """
    goes: list[bool] = []
    named: set[str] = set()
    for path in files.names_of(listed):
        try:
            with plain_file.open_file(path) as lines:
                for line in lines:
                    query, client = _ids(line)
                    goes.append(query in queries or client in clients)
                    named |= {query} & queries
            return path, goes, frozenset(named)
        except DataError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return listed, [], frozenset()


def _ids(line: bytes) -> tuple[str, str]:
    """Query id and client id of a line; empty where it names none, or is no event."""
    try:
        event = plain_file.from_json(line)
    except ValueError:  # cut off by the end of its writer
        return "", ""
    found = [event.get(name) if isinstance(event, dict) else None for name in ("query_id", "client_id")]
    query, client = (value if isinstance(value, str) else "" for value in found)
    return query, client


def _rewrite(path: Path, of_person: list[bool]) -> None:
    if all(of_person):
        path.unlink(missing_ok=True)
        return
    new, before = path.with_name(f".{path.name}{WITHOUT}"), path.stat()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, before.st_mode & 0o777)
    with os.fdopen(descriptor, "wb") as written, plain_file.open_file(path) as lines:
        written.writelines(line for line, gone in zip(lines, of_person, strict=True) if not gone)
        written.flush()
        os.fsync(descriptor)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))  # the service removes a file by its last event's age
    replace_durably(new, path)
