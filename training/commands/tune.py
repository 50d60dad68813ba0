"""``listwright tune``: the command line of a search for better hyperparameters."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import add_on_option
from listwright.training.console.command import command_parser, repeatable, run_command
from listwright.training.pipeline.budget import Budget
from listwright.training.recipe.options import MODELS, add_recipe_options, recipe_from

TRIALS = 30

_EXAMPLES = """examples:
  listwright tune                     synthetic data, the recipe's QILCM
  listwright tune mq2008 --data data/MQ2008 --trials 50
  listwright tune mq2008 --data data/MQ2008 --trials 50 \\
      --model first_stage                     LightGBM instead
  listwright tune mslr --data MSLR-WEB10K.zip --model dlcm
  listwright tune mslr --data MSLR-WEB10K.zip --jobs 16 --on ray://head:10001
  listwright tune --data rows.parquet --qid search_id --label clicked \\
      --study studies/shop --minutes 60

An interrupted search goes on with the same command, and so does one that is
given more --trials. The winning values are printed and written to winner.toml
in the study's folder, as a piece of a recipe. They are chosen by validation
queries; test queries are never looked at.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright tune``: 0 when the winner is written, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "finished trials are kept; the same command goes on"
    return run_command(_parser(), _tune, arguments, interrupted=advice)


def _tune(options: argparse.Namespace, console: Console) -> None:
    for name in ("trials", "jobs"):
        if getattr(options, name) < 1:
            raise RecipeError(f"--{name} {getattr(options, name)}: expected 1 or more")
    recipe, budget = recipe_from(options), Budget(options.minutes)
    folder = options.study or Path("studies") / recipe.name
    with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
        from listwright.training.console.bars import progress_bars  # noqa: PLC0415
        from listwright.training.pipeline import study  # noqa: PLC0415
        from listwright.training.pipeline.run import usable_device  # noqa: PLC0415
    device = usable_device(options.device)
    if options.on is not None and device != "cpu":
        if options.device != "auto":
            raise RecipeError(f"--device {options.device}: a trial on Ray gets a core and no GPU; leave out --on or it")
        device = "cpu"
    with progress_bars(console) as bars:
        winner, text = study.run_study(
            recipe,
            options.data,
            folder,
            trials=options.trials,
            device=device,
            on=options.on,
            jobs=options.jobs,
            budget=budget,
            command=repeatable("tune", options.arguments),
            progress=bars,
        )
    console.print()
    console.print(text, markup=False, soft_wrap=True, end="")
    if winner.first_stage_trials is not None and winner.first_stage_trials < options.trials:
        console.print(
            f"\n[yellow]Note:[/] the first stage was tuned with {winner.first_stage_trials} trials, fewer than "
            f"{options.trials}: a new --study tunes it as hard"
        )
    console.print(
        f"\nWritten to {folder / 'winner.toml'}. To fit with it, put it into a recipe: docs/tuning.md shows how",
        soft_wrap=True,
        markup=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "tune",
        "Search for better hyperparameters of a recipe's network, or of LightGBM\n"
        "where it has none (--model first_stage), by validation NDCG. Trials below the\n"
        "median of earlier ones are ended early.",
        _EXAMPLES + MODELS,
    )
    add_recipe_options(parser)
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"trials in all (default: {TRIALS})")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        metavar="N",
        help="no trial begins that would not end in time; trials of the first stage below a network get half of it; "
        "0 for no bound (default: 0)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="trials at a time, one thread each; each round of N is proposed from the rounds before (default: 1)",
    )
    add_on_option(parser)
    parser.add_argument("--study", type=Path, metavar="DIR", help="where the search is kept (default: studies/RECIPE)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
