"""``listwright served``: list the files of a served log, remove a person's records."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.served import files
from listwright.ranking.served.event_forgetting import forget_events, query_ids
from listwright.ranking.served.forgetting import Forgotten, forget
from listwright.ranking.served.units import hashed

SALT = "LISTWRIGHT_UNIT_SALT"
"""The service's setting, which this command reads, too."""

LEFT = 3
"""Exit code where records of the unit are left in files that are not finished, or may be in damaged ones."""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when done, 1 for a file that cannot be used, 2 for an empty salt, 3 if records are left."""
    options = _parser().parse_args(arguments)
    try:
        if options.action == "list":
            return _list(options.folder)
        return _forget(options.folder, options.unit, options.events)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
    except RecipeError as error:
        print(f"error: {error}", file=sys.stderr)
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
    total = 0
    for path in files.log_files(folder):
        frame = files.frame(path)
        state = "open" if path.name.endswith(files.OPEN_SUFFIX) else "finished"
        state += ", cut off" if frame.cut_off else ""
        print(f"{path.name}  {frame.records} records  {frame.size} bytes  {state}")
        total += frame.records
    print(f"{total} records in {folder}")
    return 0


def _forget(folder: Path, given: Sequence[str], events: Path | None) -> int:
    salt = os.environ.get(SALT)
    if salt is not None and not (salt := salt.strip()):  # as the service reads it
        raise RecipeError(f"{SALT} is empty, so hashed units would not be found: give it its value, or do not set it")
    units = frozenset([*given, *(hashed(unit, salt.encode()) for unit in given if salt)])
    left, awaited = 0, frozenset[str]()
    if events is not None:  # before the records, whose query ids tell the events
        left, awaited = _tell(forget_events(events, query_ids(folder, units), units), "events")
    left += _tell(forget(folder, units, awaited), "records")[0]
    if awaited:
        print(f"records of {len(awaited)} queries stay until then: they tell whose events these are")
    for path in files.damaged_files(folder):
        left += 1
        print(f"{path.name}: damaged, and may hold records of the unit: delete it")
    return LEFT if left else 0


def _tell(forgotten: Iterator[Forgotten], what: str) -> tuple[int, frozenset[str]]:
    """Print what became of each file; how many are left, and the query ids that these name."""
    removed = left = 0
    named: set[str] = set()
    for found in forgotten:
        if found.unfinished:
            left += found.removed
            named |= found.queries
            print(f"{found.path.name}: {found.removed} {what} are left: the file is not finished")
        else:
            removed += found.removed
            print(f"{found.path.name}: {found.removed} {what} removed, {found.kept} kept")
    print(f"{removed} {what} removed" + (f", {left} left: run it again later" if left else ""))
    return left, frozenset(named)


if __name__ == "__main__":
    sys.exit(main())
