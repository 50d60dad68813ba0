"""``listwright served``: list the files of a served log, remove the records and events of a person."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from listwright.ranking import plain_file
from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError, RecipeError, plain_text
from listwright.ranking.served_log import files
from listwright.ranking.served_log.record import ServedRecord, hashed

SALT = "LISTWRIGHT_UNIT_SALT"
"""The service's setting, which this command reads, too."""

LEFT = 3
"""Exit code where records of the unit are left in files that are not finished, or may be in damaged ones."""

EVENTS = ("events-*.jsonl", "events-*.jsonl.part")
"""Patterns of the names of files that ``POST /ubi/events`` writes."""

T = TypeVar("T")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 when done, 1 for an unusable file, 2 for an empty salt, 3 if records are left."""
    options = _parser().parse_args(arguments)
    try:
        if options.action == "list":
            return _list(options.folder)
        return _forget(options.folder, options.unit, options.events)
    except DataError as error:
        print(f"error: {plain_text(str(error))}", file=sys.stderr)
    except RecipeError as error:
        print(f"error: {plain_text(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="listwright served",
        description="List the files of a served log, or remove the records of a unit from them.",
        epilog="examples:\n  listwright served list /var/log/served\n"
        "  listwright served forget /var/log/served --unit customer-17 --events /var/log/events\n\n"
        f"forget looks for the unit itself and, where {SALT} is set, for its salted hash. Events go if they name\n"
        "a query of the unit, or the unit as their client_id. Exit codes: 0 done, 1 a file cannot be read or\n"
        "written, 3 some are left, in files that are not finished or damaged: run it again after\n"
        "LISTWRIGHT_SERVED_FILE_S and ten minutes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="files, their records and bytes")
    forgetting = actions.add_parser("forget", help="remove the records of a unit")
    for action in (listing, forgetting):
        action.add_argument("folder", type=Path, metavar="DIR", help="folder of LISTWRIGHT_SERVED_LOG")
    forgetting.add_argument("--unit", action="append", required=True, help="as requests have sent it; repeatable")
    forgetting.add_argument(
        "--events", type=Path, metavar="DIR", help="folder of LISTWRIGHT_EVENTS_LOG: the unit's events go, too"
    )
    return parser


def _list(folder: Path) -> int:
    frames: dict[Path, files.Frame] = {}
    for path in files.log_files(folder, print):
        frame = frames[path] = files.frame(path)
        state = "open" if path.name.endswith(files.OPEN_SUFFIX) else "finished"
        state += ", cut off" if frame.cut_off else ""
        print(f"{path.relative_to(folder)}  {frame.records} records  {frame.size} bytes  {state}")
    print(f"{sum(frame.records for frame in frames.values())} records in {folder}")
    for path, frame in frames.items():
        files.check_whole(frame, path)
    return 0


def _forget(folder: Path, names: Sequence[str], events: Path | None) -> int:
    salt = os.environ.get(SALT)
    if salt is not None and not (salt := salt.strip()):  # as the service reads it
        raise RecipeError(f"{SALT} is empty, so hashed units would not be found: give it its value, or do not set it")
    units = frozenset([*names, *(hashed(unit, salt.encode()) for unit in names if salt)])
    left, awaited = 0, frozenset[str]()
    if events is not None:  # before the records, whose query ids tell the events
        left, awaited = _print_outcome(_forget_events(events, query_ids(folder, units), units), "events")
        plain_file.files_below(events, EVENTS, print)  # names what is left out
    left += _print_outcome(forget(folder, units, awaited), "records")[0]
    files.log_files(folder, print)
    if awaited:
        print(f"records of {len(awaited)} queries stay until then: they tell whose events these are")
    for path in plain_file.files_below(folder, [f"*{files.DAMAGED_SUFFIX}"]):
        left += 1
        print(f"{path.name}: damaged, and may hold records of the unit: delete it")
    return LEFT if left else 0


def _print_outcome(forgotten: Iterator[Forgotten], what: str) -> tuple[int, frozenset[str]]:
    """Print the outcome of each file; return how many records are left, and the query ids that these name."""
    removed = left = 0
    unfinished_queries: set[str] = set()
    for file in forgotten:
        if file.unfinished:
            left += file.removed
            unfinished_queries |= file.queries
            print(f"{file.path.name}: {file.removed} {what} are left: the file is not finished")
        else:
            removed += file.removed
            print(f"{file.path.name}: {file.removed} {what} removed, {file.remaining} kept")
    print(f"{removed} {what} removed" + (f", {left} left: run it again later" if left else ""))
    return left, frozenset(unfinished_queries)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The outcome for one file.

    Args:
        path: Path of the file.
        removed: Number of the unit's records that were in the file.
        remaining: Number of the other records.
        unfinished: Whether the file is still written, or was left by a killed worker: nothing of it was changed.
        queries: Query ids of events that are left in the file.
    """

    path: Path
    removed: int
    remaining: int
    unfinished: bool
    queries: frozenset[str] = frozenset()


def forget(folder: Path, units: frozenset[str], awaited: frozenset[str] = frozenset()) -> Iterator[Forgotten]:
    """Remove all records of some units from the finished files of a served log; a file that has any is written anew.

    The new file replaces the old one in one step and is on the disk by then; a file that would have no record is
    removed. An interrupted run loses nothing, and may be run again.

    Args:
        folder: Folder of the log.
        units: Units as the log has them: as they were sent, or their hashes.
        awaited: Query ids of records that stay: without them nobody knows which events are left.

    Yields:
        The outcome for each file that has records of the units, in the order of
        :func:`~listwright.ranking.served_log.files.log_files`.

    Raises:
        DataError: if the folder is not there, or a file is damaged: its name, and what to do.
        OSError: if a file cannot be written.
    """

    def drops(record: ServedRecord) -> bool:
        return record.unit in units and record.query_id not in awaited

    for listed in files.log_files(folder):
        path, of_units = _scan_records(listed, drops)
        if not any(of_units):
            continue
        unfinished = path.name.endswith(files.OPEN_SUFFIX)
        if not unfinished and all(of_units):
            path.unlink(missing_ok=True)
        elif not unfinished:
            remaining = (record for record in files.read(path) if not drops(record))
            files.write(path, remaining, mode=path.stat().st_mode & 0o777)
            _sync(path.parent)
        yield Forgotten(path, sum(of_units), len(of_units) - sum(of_units), unfinished)


def _scan_records(listed: Path, judge: Callable[[ServedRecord], T]) -> tuple[Path, list[T]]:
    """Return the file's current name, and the judgement of each of its records."""

    def scan(path: Path) -> tuple[Path, list[T]]:
        return path, [judge(record) for record in files.read(path)]

    return files.read_listed(listed, scan) or (listed, [])


def _sync(folder: Path) -> None:
    """Flush the names of a folder's files to the disk: a power failure brings no replaced file back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def query_ids(log: Path, units: frozenset[str]) -> frozenset[str]:
    """Return the query ids of all records of some units in a served log, also of files that are still written.

    Args:
        log: Folder of the served log.
        units: Units as the log has them: as they were sent, or their hashes.

    Raises:
        DataError: if the folder is not there, or a file is damaged.
    """

    def query_of(record: ServedRecord) -> str | None:
        return record.query_id if record.unit in units else None

    queries = (query for listed in files.log_files(log) for query in _scan_records(listed, query_of)[1])
    return frozenset(query for query in queries if query is not None)


def _forget_events(folder: Path, queries: frozenset[str], clients: frozenset[str]) -> Iterator[Forgotten]:
    """Remove all events of some queries or clients from the finished files of a log; each is replaced in one step."""
    if not folder.is_dir():
        raise DataError(folder, "is no folder: name the folder of LISTWRIGHT_EVENTS_LOG")
    for leftover in folder.rglob(".events-*.jsonl.*"):  # of a run that was stopped
        leftover.unlink(missing_ok=True)
    for listed in plain_file.files_below(folder, EVENTS):
        path, drops, queries_in_file = _scan_events(listed, queries, clients)
        if not any(drops):
            continue
        unfinished = path.name.endswith(".part")
        if not unfinished:
            _rewrite_events(path, drops)
        yield Forgotten(
            path, sum(drops), len(drops) - sum(drops), unfinished, queries_in_file if unfinished else frozenset()
        )


def _scan_events(
    listed: Path, queries: frozenset[str], clients: frozenset[str]
) -> tuple[Path, list[bool], frozenset[str]]:
    """Return the file's current name, whether each line is the person's, and the queries that these lines name."""

    def scan(path: Path) -> tuple[Path, list[bool], frozenset[str]]:
        with plain_file.open_file(path) as lines:
            ids = [_ids(line) for line in lines]
        drops = [query in queries or client in clients for query, client in ids]
        return path, drops, queries & {query for query, _ in ids}

    return files.read_listed(listed, scan) or (listed, [], frozenset())


def _ids(line: bytes) -> tuple[str, str]:
    """Return the query id and client id of a line; empty where it names none, or is no event."""
    try:
        event = plain_file.from_json(line)
    except ValueError:  # cut off by the end of its writer
        return "", ""
    values = [event.get(name) if isinstance(event, dict) else None for name in ("query_id", "client_id")]
    query, client = (value if isinstance(value, str) else "" for value in values)
    return query, client


def _rewrite_events(path: Path, of_person: list[bool]) -> None:
    if all(of_person):
        path.unlink(missing_ok=True)
        return
    before = path.stat()
    with (
        atomic_file(path, mode=before.st_mode & 0o777, sync=True) as file,
        plain_file.open_file(path) as lines,
    ):
        file.writelines(line for line, gone in zip(lines, of_person, strict=True) if not gone)
        file.flush()
        times = (before.st_atime_ns, before.st_mtime_ns)
        os.utime(file.fileno(), ns=times)  # the service removes a file by its last event's age
    _sync(path.parent)


if __name__ == "__main__":
    sys.exit(main())
