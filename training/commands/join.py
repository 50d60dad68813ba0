"""``listwright join``: the served log and events as judged rows for a fit."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import timedelta
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from listwright.ranking import bundle
from listwright.ranking.errors import RecipeError
from listwright.training.console.bars import elapsed_bars
from listwright.training.console.command import command_parser, run_command
from listwright.training.traffic.join.events import COUNTED, NO_NUMBER, OTHER_PLACE, Cause, read_labels
from listwright.training.traffic.join.job import JoinJob, JoinResult, join
from listwright.training.traffic.join.replay import replay

_EXAMPLES = """examples:
  listwright join --served served/ --events events/ --labels labels.toml --out rows.parquet
  listwright join --served served/ --events clicks.csv orders.parquet --labels labels.toml \\
      --window 2d --out rows.parquet
  listwright join --served served/ --events events/ --labels labels.toml \\
      --out rows.parquet --resume    after an interruption
  listwright join --served served/ --replay 1000 --bundle models/shop/7
  listwright fit --data rows.parquet --split time    the rows say which columns are features

labels.toml:
  seen = ["impression"]    # optional: only candidates with such an event, or a label, were seen
  [labels]
  purchase = 3
  click = 1
  [sums]    # optional: further columns
  revenue = { action = "purchase", field = "event_attributes.object.price" }

Events are UBI's, as JSON lines, CSV or Parquet; a folder's files are read by name.
Every event is counted once: with its label, or under the cause why it does not count.
"""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WINDOW = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd])")


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright join``: 0 when the file is written, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "finished parts are kept; the same command with --resume continues"
    return run_command(_parser(), _join, arguments, interrupted=advice)


def _join(options: argparse.Namespace, console: Console) -> int:
    if options.replay is not None:
        return _replay(options, console)
    missing = [name for name in ("events", "labels", "out") if not getattr(options, name)]
    if missing:
        raise RecipeError(f"--{missing[0]} is missing: see listwright join --help")
    job = JoinJob(
        options.served,
        tuple(options.events),
        read_labels(options.labels),
        _window_of(options.window),
        options.out,
        options.prefix,
        options.unshown,
    )
    began = perf_counter()
    with elapsed_bars(console) as bars:
        joined = join(job, resume=options.resume, progress=bars)
    _show(job, joined, perf_counter() - began, console)
    return 0


def _replay(options: argparse.Namespace, console: Console) -> int:
    if options.replay < 1:
        raise RecipeError(f"--replay {options.replay}: expected 1 or more")
    if options.bundle is None:
        raise RecipeError("--replay ranks records again: name the bundle with --bundle DIR")
    ranked = replay(options.served, bundle.load(options.bundle), options.replay)
    console.print(f"{ranked.same:,} records ranked again: scores and order are the logged ones, to the bit")
    if ranked.degraded or ranked.others:
        left_out = f"{ranked.degraded:,} degraded, {ranked.others:,} of other bundles, experiments or rules"
        console.print(f"left out: {left_out}")
    if ranked.differing:
        console.print(f"[bold red]error:[/] {ranked.differing:,} records differ: {escape(', '.join(ranked.different))}")
        return 1
    return 0


def _window_of(text: str) -> timedelta:
    """Parse a length of time such as ``30m``; raise RecipeError if it is none."""
    match = _WINDOW.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise RecipeError(f"--window {text}: expected a number above 0 and s, m, h or d, such as 30m")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _show(job: JoinJob, joined: JoinResult, seconds: float, console: Console) -> None:
    grid = Grid(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(justify="right")
    for name in (COUNTED, *Cause):
        if joined.counts[name] or name == COUNTED:
            grid.add_row(f"events {name}" if name == COUNTED else f"  not counted: {name}", f"{joined.counts[name]:,}")
    grid.add_row("served records", f"{joined.served:,}")
    if joined.again:
        grid.add_row("  left out: the query was served again later", f"{joined.again:,}")
    for label, rows in joined.labelled.items():
        grid.add_row("rows below top_n" if label is None else f"rows of label {label}", f"{rows:,}")
    console.print(grid)
    if joined.first_fault:
        console.print(f"[yellow]Note:[/] the first that is no event: {escape(joined.first_fault)}", soft_wrap=True)
    for count, text in (
        (joined.gone, "files were removed before they were read: the service's limits of bytes or age are low"),
        (joined.counts[OTHER_PLACE], "counted events name another place than the shown one; the log's counts"),
        (joined.counts[NO_NUMBER], "counted events lack a number that [sums] names; they add 0"),
    ):
        if count:
            console.print(f"[yellow]Note:[/] {count:,} {escape(text)}", soft_wrap=True)
    line = f"{job.out}: {joined.rows:,} rows of {joined.queries:,} queries in {seconds:.1f} s"
    console.print(line, soft_wrap=True, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "join", "Join a served log with events into judged rows, one row a shown candidate.", _EXAMPLES
    )
    add = parser.add_argument
    add("--served", type=Path, required=True, metavar="DIR", help="folder of LISTWRIGHT_SERVED_LOG, or a file of it")
    add("--events", type=Path, nargs="+", action="extend", metavar="PATH", help="files or folders of events")
    add("--labels", type=Path, metavar="FILE", help="TOML file with the label of each action, see below")
    add("--window", default="30m", metavar="TIME", help="how long after serving an event counts: 30m (default), 2h, 7d")
    add("--out", type=Path, metavar="FILE", help="the .parquet file to write")
    add(
        "--unshown",
        action="store_true",
        help="write candidates below top_n, too, without place and label: listwright estimate needs them",
    )
    add("--prefix", default="", metavar="TEXT", help="before the names of all columns but the features")
    add("--resume", action="store_true", help="continue an interrupted join")
    again = parser.add_argument_group("rank again")
    again.add_argument("--replay", type=int, metavar="N", help="rank N logged records again, and compare to the bit")
    again.add_argument("--bundle", type=Path, metavar="DIR", help="with --replay: the bundle that ranked them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
