"""``listwright diagnose``: the command line of the question whether a second stage pays."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.training.budget import check_minutes
from listwright.training.command import repeatable
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
    """Command line; 0 with an answer, 1 with one clear line without one, 130 after Ctrl-C."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(words)
    console = Console(highlight=False)
    try:
        if options.json is not None and not options.json.absolute().parent.is_dir():
            raise RecipeError(f"--json {options.json}: there is no folder {options.json.parent}; make it first")
        found, text, advice = _diagnosed(options, words, console)
        console.print()
        console.print(text, markup=False, soft_wrap=True)
        console.print(advice, markup=False, soft_wrap=True)
        if options.json is not None:
            _write(options.json, {"command": repeatable("diagnose", words), **found})
    except (ListwrightError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: nothing is kept; the same command begins anew")
        return 130
    return 0


def _diagnosed(
    options: argparse.Namespace, words: Sequence[str], console: Console
) -> tuple[dict[str, object], str, str]:
    """Numbers, tables and advice."""
    check_minutes(options.minutes)
    recipe = recipe_from(options)
    with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
        from listwright.training.bars import progress_bars  # noqa: PLC0415
        from listwright.training.diagnosis import text as diagnosis_text  # noqa: PLC0415
        from listwright.training.diagnosis.diagnosis import diagnose  # noqa: PLC0415
        from listwright.training.run import usable_device  # noqa: PLC0415
    device = usable_device(options.device)
    with progress_bars(console) as bars:
        found = diagnose(recipe, options.data, device=device, progress=bars, minutes=options.minutes)
    advice = diagnosis_text.advice(found)
    command = fit_command(words, alone=advice.alone and recipe.router is None)  # which needs a second stage
    numbers = {**diagnosis_text.numbers(found), "advice": advice.key, "fit": command}
    return numbers, diagnosis_text.tables(found), f"{advice.lines}\n  {command}"


def fit_command(words: Sequence[str], *, alone: bool) -> str:
    """The fit of the same data, paths as they were given."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=True)
    own.add_argument("--json")
    own.add_argument("--minutes")
    _, kept = own.parse_known_args(list(words))
    return shlex.join(["listwright", "fit", *kept, *(["--model", "first_stage"] if alone else [])])


def _write(path: Path, found: dict[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="listwright diagnose",
        description="Estimate, before a long fit, the gains of list-relative columns and of a second\n"
        "stage: the share of each feature's variance between lists, and the gains of quick\n"
        "rankers on queries that they were not trained on, with 95 % intervals.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
