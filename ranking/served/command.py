"""``listwright served``: list the files of a served log, remove a person's records."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from listwright.ranking.errors import DataError
from listwright.ranking.served import files
from listwright.ranking.served.forgetting import forget
from listwright.ranking.served.units import hashed

SALT = "LISTWRIGHT_UNIT_SALT"
"""The service's setting, which this command reads, too."""

LEFT = 3
"""Exit code where records of the unit are left in files that are not finished."""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when done, 1 for files that cannot be read or written, 3 if records of the unit are left."""
    options = _parser().parse_args(arguments)
    try:
        return _list(options.folder) if options.action == "list" else _forget(options.folder, options.unit)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="listwright served",
        description="List the files of a served log, or remove the records of one unit from them.",
        epilog="examples:\n  listwright served list /var/log/served\n"
        "  listwright served forget /var/log/served --unit customer-17\n\n"
        f"forget looks for the unit itself and, where {SALT} is set, for its salted hash. Exit codes: 0 done,\n"
        "1 a file cannot be read or written, 3 records are left in files that are not finished: run it again\n"
        "after LISTWRIGHT_SERVED_FILE_S.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="files, their records and bytes")
    forgetting = actions.add_parser("forget", help="remove the records of one unit")
    for action in (listing, forgetting):
        action.add_argument("folder", type=Path, metavar="DIR", help="folder of LISTWRIGHT_SERVED_LOG")
    forgetting.add_argument("--unit", required=True, help="as requests have sent it")
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


def _forget(folder: Path, unit: str) -> int:
    salt = os.environ.get(SALT)
    units = {unit} if not salt else {unit, hashed(unit, salt.encode())}
    removed = left = 0
    for found in forget(folder, frozenset(units)):
        if found.unfinished:
            left += found.removed
            print(f"{found.path.name}: {found.removed} records are left: the file is not finished")
        else:
            removed += found.removed
            print(f"{found.path.name}: {found.removed} records removed, {found.kept} kept")
    print(f"{removed} records removed" + (f", {left} left: run it again later" if left else ""))
    return LEFT if left else 0


if __name__ == "__main__":
    sys.exit(main())
