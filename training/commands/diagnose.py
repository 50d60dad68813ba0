"""``listwright diagnose``: the command line that estimates whether a second stage pays."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from listwright.ranking.atomic_file import atomic_write
from listwright.training.console.command import check_outputs, command_parser, repeatable, run_command
from listwright.training.pipeline.budget import check_minutes
from listwright.training.recipe.options import add_source_options, recipe_from

_EXAMPLES = """examples:
  listwright diagnose                 synthetic data
  listwright diagnose --data rows.csv --qid search_id --label clicked
  listwright diagnose --data rows.parquet --qid search_id \\
      --label clicked --categorical carrier --json diagnosis.json
  listwright diagnose mq2008 --data data/MQ2008 --fold 2
  listwright diagnose letor --data rows.txt \\
      --first-stage production.txt
  listwright diagnose --data rows.csv --qid search_id --label clicked \\
      --minutes 10                      ten times as many lists

It takes about a minute and fits no bundle. The last lines name the command
that does. Test queries are not looked at. docs/when-a-second-stage-pays.md
says how to read the answer.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright diagnose``: 0 with an answer, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "nothing is kept; the same command begins anew"
    return run_command(_parser(), _diagnose, arguments, interrupted=advice)


def _diagnose(options: argparse.Namespace, console: Console) -> None:
    recipe_file = Path(options.recipe) if (options.recipe or "").endswith(".toml") else None  # another is a name
    inputs = {"RECIPE": recipe_file, "--first-stage": options.first_stage}
    inputs |= {f"--data {source}": Path(source.rpartition("=")[2]) for source in options.data}
    check_outputs({"--json": options.json}, inputs | {"--propensities": options.propensities})
    check_minutes(options.minutes)
    recipe = recipe_from(options)
    with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
        from listwright.training.console.bars import progress_bars  # noqa: PLC0415
        from listwright.training.pipeline import diagnosis  # noqa: PLC0415
        from listwright.training.pipeline.run import usable_device  # noqa: PLC0415
    device = usable_device(options.device)
    with progress_bars(console) as bars:
        result = diagnosis.diagnose(recipe, options.data, device=device, progress=bars, minutes=options.minutes)
    advice = diagnosis.advice(result)
    command = fit_command(options.arguments, alone=advice.alone and recipe.router is None)  # which needs a second stage
    console.print()
    console.print(diagnosis.tables(result), markup=False, soft_wrap=True)
    console.print(f"{advice.lines}\n  {command}", markup=False, soft_wrap=True)
    if options.json is not None:
        facts = {**diagnosis.facts_of(result), "advice": advice.key, "fit": command}
        content = {"command": repeatable("diagnose", options.arguments), **facts}
        atomic_write(options.json, json.dumps(content, indent=1) + "\n")


def fit_command(arguments: Sequence[str], *, alone: bool) -> str:
    """Return the command of a fit of the same data, with paths as given."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=True)
    own.add_argument("--json")
    own.add_argument("--minutes")
    _, others = own.parse_known_args(list(arguments))
    return shlex.join(["listwright", "fit", *others, *(["--model", "first_stage"] if alone else [])])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "diagnose",
        "Estimate, before a long fit, the gains of list-relative columns and of a second\n"
        "stage: the share of each feature's variance between lists, and the gains of quick\n"
        "rankers on queries that they were not trained on, with 95 % intervals.",
        _EXAMPLES,
    )
    add_source_options(parser)
    parser.add_argument(
        "--minutes",
        type=float,
        default=1.0,
        metavar="N",
        help="compare on as many lists as take about N minutes (default: 1; 0: on all lists)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
