"""What a command line says about a recipe: its name, its data, and what is changed in it."""

from __future__ import annotations

import argparse
from pathlib import Path

from ranking.errors import RecipeError
from training import config
from training.config import GivenColumn, GivenModel, Recipe
from training.model_config import MODEL_NAMES

MODELS = """
models:
  qilcm                the default; qilcm-v1, -v2, -v3 are the paper's ablations:
                       plain means, no confusion loss, and no query normalisation
  qilcm2               a stronger set model that starts from the first stage
  dlcm, dcm            recurrent: a GRU, a pointer network
  mlp                  one candidate at a time
  first_stage          LightGBM alone, no network
  A recipe says the same, and each model's own options, under [model]: kind = "dlcm".
"""
"""What ``--model`` says, for the end of a help page."""


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
        changes |= {"model": recipe.model_named(options.model), "name": f"{recipe.name}-{options.model}"}
    return config.changed(recipe, changes)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`recipe_from` reads, and ``--data`` and ``--device``."""
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
        "--seed",
        type=int,
        metavar="N",
        help="fixes all randomness (default: the recipe's); repeats to the bit on one machine with one OMP_NUM_THREADS",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"another second stage, fitted like the recipe's unless its [rivals] says how: {', '.join(MODEL_NAMES)}; "
        "see below. The bundle answers with it unless the test split shows it to harm",
    )
    parser.add_argument("--fold", type=int, metavar="K", help="which fold, counted from 1 (default: the recipe's)")
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
