"""``listwright experiment SUITE``: run a suite over seeds and folds, resumable, and write its page."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import add_on_option
from listwright.training.console.command import command_parser, in_list, repeatable, run_command, split_names
from listwright.training.data.sources import files_by_split, path_of
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import LetorData, TableData
from listwright.training.recipe.options import add_data_options, recipe_for, with_data_options

ORACLE_COUNTS = (1, 2, 5, 10)
MOST_SPECIALISTS = 100
"""Largest number of specialists of a bundle."""

SPECIALISED = ("oracle", "routing")
LISTWISE = ("table2", "table3", "anomaly", "lambda")
TUNABLE = ("table2", "table3", "anomaly")
ON_EITHER = ("table3", "anomaly")
PAPER_SEEDS = 20

_ONLY_FOR = {
    "specialists": SPECIALISED,
    "shifts": LISTWISE,
    "jobs": LISTWISE,
    "tune": TUNABLE,
    "relative": ON_EITHER,
    "methods": ("table2",),
}
"""Suites that have an option, by the option."""

_EXAMPLES = """suites:
  table2     LambdaMART with and without list-relative columns, QILCM, its rivals,
             and the ranker that listwright fit ships (Table 2 of the QILCM paper)
  table3     QILCM and its variants (Table 3); on planted data, over --shifts
  anomaly    the gap to the best baseline by anomaly score (Figure 2)
  lambda     the weight of the confusion loss
  oracle     the gain of specialists if an oracle of some accuracy chooses among them
  routing    the gain of specialists if the router chooses among them

examples:
  listwright experiment table2 --data data/MQ2008     five folds, 20 seeds
  listwright experiment table2 --data MSLR-WEB30K.zip --recipe mslr
  listwright experiment table2 --data airline --recipe airline-paper
  listwright experiment table2 --data data/MQ2008 --methods qilcm,qilcm-paper
  listwright experiment oracle --data MSLR-WEB10K.zip --recipe srm-paper
  listwright experiment table2 --data own.csv --qid search --label clicked --ignore row_id
  listwright experiment oracle --data own.csv --qid search --label clicked \\
      --split time --time-column searched_at     one fold, the newest queries
  listwright experiment table2 --data data/OHSUMED --seeds 5 --tune 6
  listwright experiment table3 --recipe shifted --seeds 3 --relative
  listwright experiment oracle --data data/MQ2008     five folds, one seed
  listwright experiment oracle --data MSLR-WEB10K.zip --recipe mslr --folds 1
  listwright experiment oracle --data train=set1.train.txt valid=set1.valid.txt test=set1.test.txt
  listwright experiment oracle --recipe planted
  listwright experiment routing --data data/OHSUMED --seeds 3
  listwright experiment table2 --data data/MQ2008 --on ray://head:10001

An interrupted experiment goes on with the same command; table2, table3, anomaly and lambda
also with more seeds, folds, shifts or methods.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright experiment``: 0 when the page is written, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "finished parts are kept; the same command goes on"
    return run_command(_parser(), _run_suite, arguments, interrupted=advice)


def _run_suite(options: argparse.Namespace, console: Console) -> None:
    _check(options)
    recipe = _measurable(with_data_options(recipe_for(options.recipe, options.data), options))
    folds = _whole_numbers("--folds", options.folds) or tuple(
        range(1, _folds_of(options.suite, recipe, options.data) + 1)
    )
    name = f"{options.suite}-{recipe.name}{'-relative' if options.relative else ''}"
    out = options.out or Path("experiments") / name
    command = repeatable("experiment", options.arguments)
    run = _run_listwise if options.suite in LISTWISE else _run_specialised
    console.print(escape(run(options, recipe, folds, out, command, console)))
    console.print(f"Page: {out / 'page.html'}", soft_wrap=True, markup=False)


def _measurable(recipe: Recipe) -> Recipe:
    """Return the recipe; raise RecipeError if it has options that the suites' figures do not support."""
    if recipe.data.gains is not None:
        raise RecipeError("the suites measure by the gain 2^label - 1: leave out gains; listwright fit has them")
    if isinstance(recipe.data, TableData) and recipe.data.weight is not None:
        raise RecipeError(
            f"the suites count every query the same: say --ignore {in_list(recipe.data.weight)} instead of a weight; "
            "listwright fit has weights"
        )
    if isinstance(recipe.data, TableData) and recipe.data.propensity is not None:
        raise RecipeError("the suites count every query the same: leave out --propensities; listwright fit has them")
    return recipe


def _check(options: argparse.Namespace) -> None:
    """Raise RecipeError for options that the suite does not have, and for invalid numbers."""
    for name in ("seeds", "ndcg_at", "jobs", "tune"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise RecipeError(f"--{name.replace('_', '-')} {value}: expected 1 or more")
    for name, suites in _ONLY_FOR.items():
        value = getattr(options, name)
        if name == "jobs" and options.on is not None:
            continue
        if value not in (None, False) and options.suite not in suites:
            text = "" if value is True else f" {','.join(value) if isinstance(value, list) else value}"
            raise RecipeError(f"--{name}{text}: suite {options.suite} has none; leave it out")


def _run_listwise(
    options: argparse.Namespace, recipe: Recipe, folds: tuple[int, ...], out: Path, command: str, console: Console
) -> str:
    with console.status("loading torch"):
        from listwright_lab.suites.listwise import suite  # noqa: PLC0415

    suite_options = suite.ListwiseOptions(
        suite=options.suite,
        recipe=recipe,
        sources=tuple(options.data),
        seeds=options.seeds or PAPER_SEEDS,
        folds=folds,
        shifts=_shifts(options.shifts),
        jobs=options.jobs,
        on=options.on,
        ndcg_at=options.ndcg_at,
        command=command,
        made_with=_made_with("scipy"),
        trials=options.tune or 0,
        relative=options.relative,
        methods=_methods(options.methods),
    )
    return suite.run(suite_options, out, [_contents(source) for source in options.data], console)


def _run_specialised(
    options: argparse.Namespace, recipe: Recipe, folds: tuple[int, ...], out: Path, command: str, console: Console
) -> str:
    counts = _whole_numbers("--specialists", options.specialists)
    if options.suite == "oracle":
        counts = tuple(sorted({1, *(counts or ORACLE_COUNTS)}))  # 1: the line that all others are compared with
    elif counts and (len(counts) > 1 or counts[0] < 2):
        raise RecipeError(f"--specialists {','.join(options.specialists)}: the routing suite takes one K, 2 or more")
    if counts and counts[-1] > MOST_SPECIALISTS:
        raise RecipeError(f"--specialists {','.join(options.specialists)}: at most {MOST_SPECIALISTS}")
    with console.status("loading torch"):
        from listwright_lab.suites import specialised  # noqa: PLC0415

    seeds = options.seeds or 1
    settings = {
        "suite": options.suite,
        "recipe": recipe.model_dump(mode="json"),
        "data": [_contents(source) for source in options.data],
        "specialists": counts,
        "seeds": seeds,
        "folds": folds,
        "ndcg_at": options.ndcg_at,
    }
    suite_options = specialised.SpecialisedOptions(
        options.suite,
        recipe,
        options.data,
        counts,
        seeds,
        folds,
        options.ndcg_at,
        command,
        _made_with("scikit-learn"),
        options.on,
        options.jobs,
    )
    return specialised.run(suite_options, out, settings, console)


def _made_with(*more: str) -> dict[str, str]:
    return {name: version(name) for name in ("listwright", "lightgbm", "numpy", *more, "torch")}


def _contents(source: str) -> list[str]:
    """Return the name of a source, with the split that it is for, and one digest of its files."""
    path = path_of(source)
    split = source.partition("=")[0] + "=" if path != Path(source) else ""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return [split + path.name, digest.hexdigest()]


def _folds_of(suite: str, recipe: Recipe, sources: list[str]) -> int:
    """Return the default number of folds: 1 where the data are already split.

    The QILCM paper splits once, 60/20/20; so do its suites, unless a set is published in parts that make its folds.
    """
    data = recipe.data
    parts = data.parts if isinstance(data, LetorData) else ()
    if suite in LISTWISE and not parts:
        return 1
    if files_by_split(sources) is not None or (isinstance(data, TableData) and data.split.by != "random"):
        return 1
    if recipe.name == "mslr":
        return 1
    return len(parts) or data.split.parts


def _methods(texts: Sequence[str] | None) -> tuple[str, ...]:
    if texts is not None and not set(texts) - {"lambdamart"}:
        raise RecipeError(
            f"--methods {','.join(texts)}: LambdaMART is there in any case; name what it is compared with"
        )
    return tuple(dict.fromkeys(texts or ()))


def _whole_numbers(option: str, texts: Sequence[str] | None) -> tuple[int, ...]:
    try:
        values = tuple(dict.fromkeys(int(text) for text in texts or ()))
    except ValueError:
        values = (0,)
    if any(value < 1 for value in values):
        raise RecipeError(f"{option} {','.join(texts or ())}: expected whole numbers from 1, separated by commas")
    return values


def _shifts(texts: Sequence[str] | None) -> tuple[float, ...]:
    try:
        shifts = tuple(sorted({float(text) for text in texts or ()}))
    except ValueError:
        shifts = (-1.0,)
    if not all(0.0 <= shift < float("inf") for shift in shifts):
        raise RecipeError(f"--shifts {','.join(texts or ())}: expected numbers from 0, separated by commas")
    return shifts


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "experiment",
        "Measure a claim over seeds and folds; leaves results.parquet, summary.json and page.html.",
        _EXAMPLES,
    )
    parser.add_argument("suite", choices=[*LISTWISE, *SPECIALISED], metavar="SUITE", help="see below")
    parser.add_argument("--data", nargs="+", action="extend", default=[], metavar="PATH", help="as for listwright fit")
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help="recipe or .toml file (default: table for CSV and Parquet, else letor or the one whose files PATH holds)",
    )
    add_data_options(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: experiments/SUITE-RECIPE")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"seeds 0 to N - 1 (default: {PAPER_SEEDS}; oracle, routing: 1)"
    )
    parser.add_argument(
        "--folds",
        type=split_names,
        action="extend",
        metavar="K,K",
        help="which folds (default: all; where the set has none of its own, fold 1, but all for oracle, routing)",
    )
    parser.add_argument(
        "--shifts",
        type=split_names,
        action="extend",
        metavar="S,S",
        help="table3 on planted data: its shifts (default: 0,0.25,0.5,1)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="fits at a time; oracle, routing: one but for --on (default: cores)"
    )
    add_on_option(parser)
    parser.add_argument(
        "--tune",
        type=int,
        metavar="N",
        help="search every network's settings in every fold, N trials each (default: the recipe's; lambda: never)",
    )
    parser.add_argument(
        "--methods",
        type=split_names,
        action="extend",
        metavar="M,M",
        help="rows of table2 beside LambdaMART (default: all)",
    )
    parser.add_argument(
        "--relative",
        action="store_true",
        help="table3, anomaly: on the first stage with list-relative columns (default: without)",
    )
    parser.add_argument(
        "--specialists",
        type=split_names,
        action="extend",
        metavar="K,K",
        help="oracle: every K (default: 1,2,5,10); routing: K",
    )
    parser.add_argument("--ndcg-at", type=int, default=10, metavar="N", help="cutoff of the NDCG (default: 10)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
