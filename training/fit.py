"""``python -m training.fit``: the command line of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ranking.errors import ListwrightError, RecipeError
from training import config
from training.command import repeatable
from training.config import GivenColumn, GivenModel, Recipe
from training.model_config import MODEL_NAMES, named
from training.workspace import next_version, partial_of

_EXAMPLES = """examples:
  python -m training.fit                      synthetic data, about a minute
  python -m training.fit mq2008 --data data/MQ2008 --fold 2
  python -m training.fit mslr --data MSLR-WEB10K.zip    read inside the archive
  python -m training.fit letor --data train=a.txt.gz valid=b.txt test=c.txt
  python -m training.fit table --data rows.parquet --qid search_id \\
      --label clicked --categorical carrier,country
  python -m training.fit letor --data rows.txt --first-stage production.txt \\
      --out models/shop/1
  python -m training.fit --out models/demo/2 --resume   after an interruption
  python -m training.fit mq2008 --data data/MQ2008 --model dlcm    a rival instead

models:
  qilcm                the default; qilcm-v1, -v2, -v3 are the paper's ablations:
                       plain means, no confusion loss, and no query normalisation
  qilcm2               a stronger set model that starts from the first stage
  dlcm, dcm            recurrent: a GRU, a pointer network
  mlp                  one candidate at a time
  first_stage          LightGBM alone, no network
  A recipe says the same, and each model's own options, under [model]: kind = "dlcm".
"""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when the bundle is published, 1 with one clear line when it is not, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    try:
        recipe = recipe_from(options)
        out = options.out or next_version(Path("models"), recipe.name)
        with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
            from training.report import show  # noqa: PLC0415
            from training.run import run  # noqa: PLC0415
        command = repeatable("training.fit", sys.argv[1:] if arguments is None else arguments)
        report = run(
            recipe, options.data, out, resume=options.resume, device=options.device, command=command, console=console
        )
    except (ListwrightError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        kept = partial_of(out).exists()
        advice = "finished steps are kept; run the same command with --resume to go on" if kept else "nothing was begun"
        console.print(f"interrupted: {advice}")
        return 130
    show(report, console)
    console.print(f"\nBundle: {out}", soft_wrap=True, markup=False)
    console.print(f"Report: {out / 'report.html'}", soft_wrap=True, markup=False)
    console.print(f"Check:  python -m ranking.bundle verify {out}", soft_wrap=True, markup=False)
    console.print(f"Serve:  LISTWRIGHT_BUNDLE={out} python -m service", soft_wrap=True, markup=False)
    return 0


def recipe_from(options: argparse.Namespace) -> Recipe:
    """The recipe that the command line asks for.

    Raises:
        RecipeError: if the recipe is unknown or an option does not fit it.
    """
    recipe = config.load(options.recipe, seed=options.seed, fold=options.fold)
    columns = {
        "qid": options.qid,
        "label": options.label,
        "categorical": _names(options.categorical),
        "ignore": _names(options.ignore),
    }
    columns = {name: value for name, value in columns.items() if value is not None}
    if columns and recipe.data.kind != "table":
        raise RecipeError(f"--{next(iter(columns))} names a column, but recipe {recipe.name!r} reads no table")
    changes: dict[str, object] = {}
    if columns:
        changes["data"] = recipe.data.model_copy(update=columns)
    if options.first_stage is not None:
        changes["first_stage"] = GivenModel(path=str(options.first_stage))
    if options.first_stage_column is not None:
        changes["first_stage"] = GivenColumn(column=options.first_stage_column)
    if options.model is not None:
        changes |= {"model": named(options.model, recipe.model), "name": f"{recipe.name}-{options.model}"}
    return config.changed(recipe, changes)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.fit",
        description="Fit a LightGBM first stage, a QILCM reranker or a rival of it and, where the recipe says so, "
        "specialists and their router; publish them as one bundle.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    recipes = ", ".join(config.recipe_names())
    parser.add_argument("recipe", nargs="?", default="demo", help=f"one of {recipes}; or a .toml file (default: demo)")
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="PATH",
        help="files, a folder or an archive; 'train=FILE valid=FILE test=FILE' says which is which, "
        "otherwise queries are split 60/20/20",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the bundle, NAME/VERSION (default: models/RECIPE/next free number)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="fixes all randomness (default: the recipe's); repeats to the bit on one machine with one OMP_NUM_THREADS",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"another second stage, fitted like the recipe's: {', '.join(MODEL_NAMES)}; see below",
    )
    parser.add_argument("--fold", type=int, metavar="K", help="which fold, counted from 1 (default: the recipe's)")
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run for the same --out")
    parser.add_argument("--device", default="auto", help="auto (CUDA if there is one), cpu or cuda")
    table = parser.add_argument_group("tables")
    table.add_argument("--qid", metavar="COL", help="column with the query id")
    table.add_argument("--label", metavar="COL", help="column with the relevance label, whole numbers from 0")
    table.add_argument("--categorical", metavar="COL,COL", help="number columns that are categories; text always is")
    table.add_argument("--ignore", metavar="COL,COL", help="columns that are no features")
    first = parser.add_argument_group("bring your own first stage").add_mutually_exclusive_group()
    first.add_argument("--first-stage", type=Path, metavar="MODEL", help="a LightGBM text model that you already run")
    first.add_argument(
        "--first-stage-column",
        metavar="COL",
        help="scores that stand in the data; the column stays a feature, which requests must send",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
