"""``listwright estimate``: what bundles would have got on logged lists, from the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import files_below
from listwright.ranking.remote import local_copy, location_argument
from listwright.training.console.bars import elapsed_bars
from listwright.training.console.command import check_outputs, command_parser, repeatable, run_command, write_output

_EXAMPLES = """examples:
  listwright estimate models/shop-next/1 models/shop-next/2 --data november/ \\
      --propensities propensities.json --metric gain --out estimate.html --json estimate.json

The rows are those of listwright join --unshown, on which no bundle was fitted; listwright
propensity makes the propensities. docs/estimate.md says when an answer can be believed.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright estimate``: 0 with an answer, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "nothing is written; the same command begins anew"
    return run_command(_parser(), _estimate, arguments, interrupted=advice)


def _estimate(options: argparse.Namespace, console: Console) -> None:
    inputs = {"--data": options.data, "--propensities": options.propensities}
    check_outputs({"--out": options.out, "--json": options.json}, inputs, options.bundles)
    if options.jobs is not None and options.jobs < 1:
        raise RecipeError(f"--jobs {options.jobs}: expected 1 or more")
    if not 0.0 <= options.clip <= 1.0:
        raise RecipeError(f"--clip {options.clip:g}: expected a propensity from 0 to 1")
    if twice := [location for n, location in enumerate(options.bundles) if location in options.bundles[:n]]:
        raise RecipeError(f"{twice[0]} is there twice: name each bundle once")
    with console.status("loading"):
        from listwright.training.data.tables.judged import JUDGED  # noqa: PLC0415
        from listwright.training.traffic.estimate.estimate import estimate  # noqa: PLC0415 - --help need not wait
        from listwright.training.traffic.estimate.text import page, text  # noqa: PLC0415
    paths = tuple(map(local_copy, options.bundles)), options.data, options.propensities
    choices = {name: getattr(options, name) for name in ("estimator", "metric", "clip", "jobs")}
    with elapsed_bars(console) as bars:
        files_below(options.data, [JUDGED], bars.remark)
        estimated = estimate(*paths, **choices, progress=bars)
    command = repeatable("estimate", options.arguments, names=[str(location) for location in options.bundles])
    facts = {"command": command, **estimated}
    console.print(text(facts), markup=False, soft_wrap=True)
    write_output(options.out, lambda: page(facts), console)
    write_output(options.json, lambda: json.dumps(facts, indent=1) + "\n", console)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "estimate",
        "Estimate from a log what other bundles would have got in its lists: clicks, compared\n"
        "with the ranker that was logged. Refuse where the log cannot say.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("bundles", type=location_argument, nargs="+", metavar="BUNDLE", help="folder or URL of a bundle")
    add("--data", type=Path, required=True, metavar="ROWS", help="judged rows: a Parquet file, or a folder of them")
    add("--propensities", type=Path, required=True, metavar="FILE", help="propensities of listwright propensity")
    add(
        "--estimator",
        choices=("dr", "ips", "snips", "dm", "cascade-dr"),
        default="dr",
        help="estimator of the verdicts: doubly robust (default), inverse propensities, self-normalised ones, the "
        "click model alone, or, for --metric gain and one click a list, a cascade",
    )
    add(
        "--metric",
        choices=("clicks", "gain"),
        default="clicks",
        help="clicks of a list (default), or the attraction of its candidates, discounted as in DCG",
    )
    add("--clip", type=float, default=0.0, metavar="P", help="smallest propensity that dr divides by (default: none)")
    add("--out", type=Path, metavar="PAGE", help="write a page with figures")
    add("--json", type=Path, metavar="FILE", help="write the numbers")
    add("--jobs", type=int, metavar="N", help="parts at a time (default: cores)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
