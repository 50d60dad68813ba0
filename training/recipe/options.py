"""The command-line options of a recipe: its name, its data, and changes to it."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from listwright.ranking.errors import RecipeError
from listwright.ranking.stages import MOST_GOALS
from listwright.training.console.command import as_number, split_names
from listwright.training.recipe import config
from listwright.training.recipe.config import GIVEN_IS_FREE, FirstStage, GivenColumn, GivenModel, LambdaMart, Recipe
from listwright.training.recipe.data import LetorData, TableData, propensity_from
from listwright.training.recipe.model import MODEL_NAMES, FirstStageAlone

MODELS = """
models:
  qilcm                in every comparison; qilcm-v1, -v2, -v3 are the paper's ablations:
                       plain means, no confusion loss, and no query normalisation
  qilcm-paper          QILCM as its paper prints it, whatever the recipe says
  qilcm2               a stronger set model that starts from the first stage
  dlcm, dcm            recurrent: a GRU, a pointer network
  mlp                  one candidate at a time
  first_stage          LightGBM alone, no network
  A recipe says the same, and each model's own options, under [model]: kind = "dlcm".
"""
"""The values of ``--model``, for the end of a help page."""

TABLES = (".csv", ".csv.gz", ".parquet")
"""File name endings of tables."""

_LIKE_TABLES = (".pq", ".xlsx", ".xls", ".ods", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".arrow", ".orc")
"""File name endings of tables of other kinds: reading them says how to convert them."""

_TABLE_OPTIONS = (
    *("qid", "label", "weight", "categorical", "ignore", "split", "time_column", "split_column"),
    *("propensities", "position", "clip"),
)


def recipe_from(options: argparse.Namespace) -> Recipe:
    """Return the recipe that the command line of a fit or a search asks for; without data, ``demo``.

    Raises:
        RecipeError: if the recipe is unknown or an option does not fit it.
    """
    name = options.recipe or (None if options.data else "demo")
    recipe = with_data_options(recipe_for(name, options.data, seed=options.seed, fold=options.fold), options)
    first = _first_stage(recipe, options)
    changes: dict[str, object] = {"first_stage": _bound(first, options.monotone)}
    if options.model is not None:
        changes |= {"model": recipe.model_named(options.model), "name": f"{recipe.name}-{options.model}"}
    recipe = config.changed(recipe, changes)
    return recipe if options.precision is None else _in_precision(recipe, options.precision)


def _in_precision(recipe: Recipe, precision: str) -> Recipe:
    """Return the recipe with all of its networks trained in that precision."""
    if isinstance(recipe.model, FirstStageAlone):
        raise RecipeError(f"--precision {precision}: recipe {recipe.name!r} has no network; name one with --model")
    change = {"precision": precision}
    rivals = recipe.rivals.model_dump(exclude_none=True)
    changed = {kind: {**values, **change} for kind, values in rivals.items()}
    return config.changed(recipe, {"model": recipe.model.model_copy(update=change), "rivals": changed})


def _first_stage(recipe: Recipe, options: argparse.Namespace) -> FirstStage:
    own, model = recipe.first_stage, options.first_stage or options.first_stage_column
    if model is None:
        return own
    if isinstance(own, LambdaMart) and own.monotone:
        raise RecipeError(f"recipe {recipe.name!r}: {GIVEN_IS_FREE.format(model, 'monotone')}")
    if options.first_stage is not None:
        if not options.first_stage.is_file():
            raise RecipeError(f"--first-stage {options.first_stage}: there is no such file")
        return GivenModel(path=str(options.first_stage))
    return GivenColumn(column=options.first_stage_column)


def _bound(first: FirstStage, texts: Sequence[str] | None) -> FirstStage | dict[str, object]:
    """Return the first stage under the constraints of ``--monotone``, which override the recipe's."""
    if not texts:
        return first
    if not isinstance(first, LambdaMart):
        raise RecipeError(GIVEN_IS_FREE.format("the first stage", "--monotone"))
    directions: dict[str, object] = dict(first.monotone)
    for name, text in _parse_named("--monotone", texts, "1, -1 or 0").items():
        directions[name] = int(text) if text.removeprefix("-").isdecimal() else text
    return {**first.model_dump(), "monotone": directions}


def recipe_for(name: str | None, sources: Sequence[str], **changes: Any) -> Recipe:
    """Return the named recipe, or the one that fits the data: ``table`` for CSV and Parquet, by their file names, the
    set whose parts a folder holds, and ``letor`` for all else.

    Args:
        name: Name of the recipe; None to go by the data.
        sources: Values of ``--data``.
        changes: Changes for :func:`listwright.training.recipe.config.load`.

    Raises:
        RecipeError: if none was named and there are no data to tell by, or the recipe cannot be read.
    """
    if name is not None:
        return config.load(name, **changes)
    if not sources:
        raise RecipeError("name the data with --data PATH, or a recipe that makes its own with --recipe planted")
    first = Path(sources[0])
    if len(sources) == 1 and first.is_dir():
        for known in config.recipe_names():
            data = config.load(known).data
            parts = data.parts if isinstance(data, LetorData) else ()
            if parts and all(any((first / (part + end)).exists() for end in ("", ".gz")) for part in parts):
                return config.load(known, **changes)
    is_table = first.name.lower().removesuffix(".gz").endswith((*TABLES, *_LIKE_TABLES))
    return config.load("table" if is_table else "letor", **changes)


def with_data_options(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    """Return the recipe with the columns, the split by a column, and the defaults that the command line names.

    Raises:
        RecipeError: if columns are named and the recipe reads no table, two options say different things about the
            split, or a default is not spelled as one.
    """
    recipe = _with_table_options(recipe, options)
    if options.gains is not None:
        recipe = config.changed(recipe, {"data": {**recipe.data.model_dump(), "gains": tuple(options.gains)}})
    if not options.default:
        return recipe
    defaults = tuple((dict(recipe.data.defaults) | _parse_named("--default", options.default, "VALUE")).items())
    return config.changed(recipe, {"data": recipe.data.model_copy(update={"defaults": defaults})})


def _parse_named(option: str, texts: Sequence[str], expected: str) -> dict[str, str]:
    """Parse an option's ``NAME=VALUE``; the value is checked once the feature is known."""
    names: dict[str, str] = {}
    for text in texts:
        name, same, value = text.partition("=")
        if not (name and same):
            raise RecipeError(f"{option} {text}: expected NAME={expected}")
        if name in names:
            raise RecipeError(f"{option} {text}: {name!r} has {names[name]!r} already; leave one out")
        names[name] = value
    return names


def _with_table_options(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    names = [name for name in _TABLE_OPTIONS if getattr(options, name) is not None]
    if not names:
        return recipe
    if not isinstance(recipe.data, TableData):
        effect = f"--{names[0].replace('_', '-')} {'splits a table' if names[0] == 'split' else 'names a column'}"
        raise RecipeError(
            f"{effect}, but recipe {recipe.name!r} reads no table: the name of a table ends in {', '.join(TABLES)}"
        )
    changes = {
        "qid": options.qid,
        "label": options.label,
        "weight": options.weight,
        "propensity": propensity_from(options),
    }
    for name in ("categorical", "ignore"):
        changes[name] = tuple(dict.fromkeys([*getattr(recipe.data, name), *(getattr(options, name) or ())]))
    data = recipe.data.model_copy(update={name: value for name, value in changes.items() if value is not None})
    return config.changed(recipe, {"data": _split_as_asked(data, options)})


def with_goals(recipe: Recipe, texts: Sequence[str], cost: float | None) -> Recipe:
    """Return the recipe with the goals of ``--goal`` behind its own ones, and the cost of ``--cost``.

    Raises:
        RecipeError: if the recipe reads no table, a number is none of its kind, there are too many goals, or none for a
            weight, a ratio or a cost.
    """
    if not texts and cost is None:
        return recipe
    if not isinstance(recipe.data, TableData):
        raise RecipeError(f"--goal names a column, but recipe {recipe.name!r} reads no table: leave it out")
    if cost is not None and not 0.0 <= cost <= 1.0:
        raise RecipeError(f"--cost {cost:g}: expected an NDCG from 0 to 1, such as 0.005")
    goals = dict.fromkeys(recipe.data.goals)
    options: dict[str, dict[str, float]] = {"=": dict(recipe.goals.weights), ">=": dict(recipe.goals.ratios)}
    for text in texts:
        name, *limit = re.split(r"([<>]=|=)(?=[-+.\d])", text, maxsplit=1)
        if name in goals and name not in recipe.data.goals:
            raise RecipeError(f"--goal {name}: it is named twice; name it once")
        goals[name] = None
        for known in options.values():
            known.pop(name, None)
        if limit:
            relation, number = limit[0], as_number(limit[1])
            least = math.ulp(0.0) if relation == ">=" else 0.0
            if relation not in options or not least <= number < math.inf:
                raise RecipeError(f"--goal {text}: expected NAME, NAME=WEIGHT from 0, or NAME>=RATIO above 0")
            options[relation][name] = number
    if len(goals) > MOST_GOALS:
        raise RecipeError(f"--goal: {len(goals)} goals besides the label, and at most {MOST_GOALS} are possible")
    changes = {"weights": options["="], "ratios": options[">="], "cost": recipe.goals.cost if cost is None else cost}
    return config.changed(recipe, {"data": {**recipe.data.model_dump(), "goals": tuple(goals)}, "goals": changes})


def _split_as_asked(data: TableData, options: argparse.Namespace) -> TableData:
    """Return the data with the command line's split; a split column of the recipe stays excluded from the features."""
    own, by, column = data.split, options.split, None
    if options.split_column is not None:
        if by is not None or options.time_column is not None:
            raise RecipeError("--split-column says itself how to split: leave out --split and --time-column")
        by, column = "column", options.split_column
    elif options.time_column is not None:
        if (by or own.by) != "time":
            raise RecipeError(f"--time-column {options.time_column} is what --split time goes by: add --split time")
        by, column = "time", options.time_column
    elif by == own.by or by is None:
        return data
    ignored = data.ignore if own.column in (None, column, *data.ignore) else (*data.ignore, str(own.column))
    split = own.model_copy(update={"by": by, "column": column})
    return data.model_copy(update={"split": split, "ignore": ignored})


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`recipe_from` reads, and ``--data`` and ``--device``."""
    add_source_options(parser)
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"another second stage: {', '.join(MODEL_NAMES)}; see below. It is fitted like the recipe's, unless the "
        "recipe's [rivals] has settings for it. A bundle answers with it, unless it ranks the validation queries worse "
        "than the first stage",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="of the networks' matrix products in training; what is exported stays float32 (default: the recipe's)",
    )


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`add_recipe_options` that are not about the second stage."""
    parser.set_defaults(model=None, precision=None)
    recipes = ", ".join(config.recipe_names())
    parser.add_argument(
        "recipe",
        nargs="?",
        help=f"one of {recipes}; or a .toml file (default: demo; with --data, table for CSV and Parquet, else letor or "
        "the recipe whose files a folder holds)",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        action="extend",
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
    parser.add_argument("--fold", type=int, metavar="K", help="which fold, counted from 1 (default: the recipe's)")
    parser.add_argument("--device", default="auto", help="auto (CUDA if there is one), cpu or cuda")
    add_data_options(parser)
    parser.add_argument(
        "--monotone",
        action="append",
        metavar="NAME=SIGN",
        help="1: a larger value of the feature never lowers the first stage's score; -1: never raises it; repeatable",
    )
    first = parser.add_argument_group("bring your own first stage").add_mutually_exclusive_group()
    first.add_argument(
        "--first-stage",
        type=Path,
        metavar="MODEL",
        help="a model that you already run: LightGBM's text, or ONNX (XGBoost, CatBoost, torch ...), which sees the "
        "numeric features in the data's order",
    )
    first.add_argument(
        "--first-stage-column",
        metavar="COL",
        help="scores that stand in the data; the column stays a feature, which requests must send",
    )


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`with_data_options` reads."""
    table = parser.add_argument_group("tables")
    table.add_argument("--qid", metavar="COL", help="column with the query id")
    table.add_argument("--label", metavar="COL", help="column with the relevance label, whole numbers from 0")
    table.add_argument(
        "--weight", metavar="COL", help="column with the weight of a row; the weight of a query is the mean of its rows"
    )
    clicks = parser.add_argument_group("labels that are clicks")
    clicks.add_argument(
        "--propensities",
        type=Path,
        metavar="FILE",
        help="of listwright propensity: candidates that were clicked count by how seldom their place is looked at",
    )
    clicks.add_argument("--position", metavar="COL", help="column with the shown place (default: position); no feature")
    clicks.add_argument("--clip", type=float, metavar="P", help="smallest propensity that counts (default: 0.1)")
    for option, meaning in (
        ("--categorical", "number columns that are categories; text always is"),
        ("--ignore", "columns that are no features"),
    ):
        help_text = f"{meaning}; adds to the recipe's, repeatable"
        table.add_argument(option, type=split_names, action="extend", metavar="COL,COL", help=help_text)
    table.add_argument(
        "--split",
        choices=("random", "time"),
        help="of one table: at random (default), or by time with --time-column, so that the newest queries are tested",
    )
    table.add_argument("--time-column", metavar="COL", help="with --split time: column with the time; no feature")
    table.add_argument(
        "--split-column", metavar="COL", help="column that says train, valid or test of each row; no feature"
    )
    parser.add_argument(
        "--gains",
        type=split_names,
        action="extend",
        metavar="G,G",
        help="gain of label 0, 1 and so on in LambdaMART, the softmax loss and NDCG (default: 2^label - 1)",
    )
    parser.add_argument_group("features").add_argument(
        "--default",
        action="append",
        metavar="NAME=VALUE",
        help="value of a feature for requests that leave it out, a number or one of its categories; repeatable",
    )
