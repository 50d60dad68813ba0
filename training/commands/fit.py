"""``listwright fit``: the command line of a run."""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import Workers, add_on_option, connected_workers
from listwright.training.console.command import command_parser, repeatable, run_command
from listwright.training.job_folder import folder_of
from listwright.training.pipeline.budget import LEAST_S, MOST_S, USUAL_S, budget_of
from listwright.training.pipeline.tracking import Tracker
from listwright.training.pipeline.workspace import next_version
from listwright.training.recipe.config import with_comparisons
from listwright.training.recipe.options import MODELS, add_recipe_options, recipe_from, with_goals

_EXAMPLES = """examples:
  listwright fit                      synthetic data, about a minute
  listwright fit --quick              the same, comparing nothing
  listwright fit mq2008 --data data/MQ2008 --fold 2
  listwright fit mslr --data MSLR-WEB10K.zip    read inside the archive
  listwright fit letor --data train=a.txt.gz valid=b.txt test=c.txt
  listwright fit --data rows.parquet --qid search_id --label clicked \\
      --categorical carrier,country --ignore row_id
  listwright fit --data rows.csv --qid search_id --label clicked \\
      --split time --time-column searched_at    the newest queries are tested
  listwright fit --data train=a.csv valid=b.csv test=c.parquet \\
      --qid search_id --label clicked
  listwright fit letor --data rows.txt --first-stage production.txt \\
      --out models/shop/1
  listwright fit --data rows.parquet --qid search_id --label clicked \\
      --shards always --quick    rows stay on disk, whatever their size
  listwright fit --data rows.parquet --qid search_id --label clicked \\
      --minutes 30    (0 tries all that there is)
  listwright fit --data rows.parquet --qid search_id --label booked \\
      --goal margin --goal "eco>=1.02" --ignore row_id    several goals
  listwright fit --out models/demo/2 --resume   after an interruption
  listwright fit --out models/shop/1 --track sqlite:///runs.db    in MLflow
  listwright fit mq2008 --data data/MQ2008 --model dlcm    a rival instead
  listwright fit mslr --data MSLR-WEB10K.zip --on ray://head:10001 --workers 4
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright fit``: 0 when the bundle is published, 1 with one line if it fails, 130 after Ctrl-C."""
    return run_command(_parser(), _fit, arguments, interrupted=_what_is_left)


def _fit(options: argparse.Namespace, console: Console) -> None:
    recipe = with_goals(recipe_from(options), options.goal, options.cost)
    recipe = with_comparisons(recipe, quick=options.quick, model=options.model)
    budget = budget_of(recipe, options.minutes, options.replay)
    out = options.out = options.out or next_version(Path("models"), recipe.name)
    with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
        from listwright.training.pipeline.run import run  # noqa: PLC0415
        from listwright.training.reporting.report import show  # noqa: PLC0415

        tracker = None if options.track is None else Tracker(options.track)
    with _workers(options) as workers:
        report = run(
            recipe,
            options.data,
            out,
            resume=options.resume,
            device=options.device,
            command=repeatable("fit", options.arguments),
            shards=options.shards,
            workers=workers,
            budget=budget,
            tracker=tracker,
            console=console,
        )
    show(report, console)
    console.print(f"\nBundle: {out}", soft_wrap=True, markup=False)
    console.print(f"Report: {out / 'report.html'}", soft_wrap=True, markup=False)
    console.print(f"Check:  listwright verify {out}", soft_wrap=True, markup=False)
    console.print(f"Serve:  listwright serve {out}", soft_wrap=True, markup=False)


def _what_is_left(options: argparse.Namespace) -> str:
    """Return how to go on after an interrupted fit."""
    if options.out is not None and folder_of(options.out).exists():
        return "finished steps are kept; run the same command with --resume to go on"
    if options.out is not None and options.out.exists():
        return f"the bundle is published: {options.out}"
    return "nothing was begun"


def _workers(options: argparse.Namespace) -> AbstractContextManager[Workers | None]:
    """Connect the workers of a data-parallel fit; None without ``--on``."""
    if options.on is not None:
        from listwright.training.pipeline.run import usable_device  # noqa: PLC0415

        return connected_workers(options.on, options.workers, usable_device(options.device))
    if options.workers is not None:
        raise RecipeError(f"--workers {options.workers}: workers are processes of Ray; name it with --on")
    return nullcontext()


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "fit",
        "Compare LightGBM with and without list-relative columns, and the second stages, on\n"
        "queries that none was trained on. Publish a bundle. The default is the simplest ranker. A second\n"
        "stage replaces it only if its gain is statistically significant.",
        _EXAMPLES + MODELS,
    )
    add_recipe_options(parser)
    goals = parser.add_argument_group("several goals")
    goals.add_argument(
        "--goal",
        action="append",
        default=[],
        metavar="NAME",
        help="a further column to rank for, with values from 0, larger is better; NAME=WEIGHT: how much it counts "
        "beside the label's 1; NAME>=RATIO: its least NDCG, as a multiple of that of ranking for the label alone; "
        "repeatable",
    )
    goals.add_argument(
        "--cost",
        type=float,
        metavar="C",
        help="NDCG of the label that a goal without WEIGHT and RATIO may cost (default: 0.005)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the bundle, NAME/VERSION (default: models/RECIPE/next free number)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compare nothing: fit LightGBM on the features alone, and the recipe's second stage, which answers",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="the fit ends by then, with a published bundle; 0 for no bound (default: what it takes to try every kind "
        f"of ranker once, {LEAST_S / 60:.0f} minute to {USUAL_S / 60:.0f}, on large data to {MOST_S / 60:.0f})",
    )
    parser.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="report.json of a fit with a bound: repeat what its clock decided, for the same bundle to the bit",
    )
    parser.add_argument(
        "--shards",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether rows stay on disk, in shards in the cache ($LISTWRIGHT_CACHE), and are read as they are needed; "
        "auto (default): if they may not fit into memory",
    )
    parser.add_argument(
        "--track",
        metavar="URI",
        help="log the fit in MLflow (http://HOST:PORT, sqlite:///FILE) or TensorBoard (tensorboard:DIR)",
    )
    add_on_option(parser)
    parser.add_argument(
        "--workers", type=int, metavar="N", help="with --on: workers that share the training queries (default: cores)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run for the same --out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
