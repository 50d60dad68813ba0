"""``python -m training.experiment SUITE``: measured over seeds and folds, resumable, one page at the end."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ranking.errors import ListwrightError, RecipeError
from training import config
from training.command import repeatable
from training.config import Recipe, Router, Srm
from training.data_config import LetorData

if TYPE_CHECKING:
    import polars as pl

    from training.experiments.store import Store

ORACLE_COUNTS = (1, 2, 5, 10)
ROUTING_COUNT = 3
MOST_SPECIALISTS = 100
"""As many as a bundle holds."""

_EXAMPLES = """examples:
  python -m training.experiment oracle --data data/MQ2008     five folds, one seed
  python -m training.experiment oracle --data MSLR-WEB10K.zip --recipe mslr --folds 1
  python -m training.experiment oracle --data train=set1.train.txt valid=set1.valid.txt test=set1.test.txt
  python -m training.experiment oracle --recipe planted
  python -m training.experiment routing --data data/OHSUMED --seeds 3

An interrupted experiment goes on with the same command.
"""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when the page is written, 1 with one clear line when it is not, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    try:
        for name in ("seeds", "ndcg_at"):
            if getattr(options, name) < 1:
                raise RecipeError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected 1 or more")
        recipe = recipe_for(options.recipe, options.data)
        counts = _numbers(options.specialists)
        if options.suite == "oracle":
            counts = tuple(sorted({1, *(counts or ORACLE_COUNTS)}))  # 1: the line that all others are compared with
        elif counts and (len(counts) > 1 or counts[0] < 2):
            raise RecipeError(f"--specialists {options.specialists}: the routing suite takes one K, 2 or more")
        if counts and counts[-1] > MOST_SPECIALISTS:
            raise RecipeError(f"--specialists {options.specialists}: at most {MOST_SPECIALISTS}")
        folds = _numbers(options.folds) or tuple(range(1, _folds_of(recipe, options.data) + 1))
        out = options.out or Path("experiments") / f"{options.suite}-{recipe.name}"
        with console.status("loading torch"):
            from training.experiments.store import Store  # noqa: PLC0415
        settings = {
            "suite": options.suite,
            "recipe": recipe.model_dump(mode="json"),
            "data": [_contents(source) for source in options.data],
            "specialists": counts,
            "seeds": options.seeds,
            "folds": folds,
            "ndcg_at": options.ndcg_at,
        }
        with Store(out, settings) as store:
            results = _measure_all(options, recipe, counts, folds, store, console)
            command = repeatable("training.experiment", sys.argv[1:] if arguments is None else arguments)
            _tell(options, recipe, results, store, command, console)
    except (ListwrightError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: finished parts are kept; the same command goes on")
        return 130
    return 0


def recipe_for(name: str | None, sources: list[str]) -> Recipe:
    """The recipe that was named, or the one whose files ``--data`` holds.

    Raises:
        RecipeError: if none was named and there are no data to tell by.
    """
    if name is not None:
        return config.load(name)
    if not sources:
        raise RecipeError("name the data with --data PATH, or a recipe that makes its own with --recipe planted")
    first = Path(sources[0])
    if len(sources) == 1 and first.is_dir():
        for known in (config.load(known) for known in config.recipe_names()):
            parts = known.data.parts if isinstance(known.data, LetorData) else ()
            if parts and all(any((first / (part + end)).exists() for end in ("", ".gz")) for part in parts):
                return known
    if first.suffix in (".csv", ".parquet") or first.name.endswith(".csv.gz"):
        return config.load("table")
    return config.load("letor")


def _contents(source: str) -> list[str]:
    """Name of a source, and one digest of the files there."""
    path = Path(source.rpartition("=")[2])
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return [path.name, digest.hexdigest()]


def _folds_of(recipe: Recipe, sources: list[str]) -> int:
    """How many folds there are without asking for one: 1 where the data come split already."""
    if isinstance(recipe.data, LetorData) and not recipe.data.parts and (len(sources) > 1 or recipe.name == "mslr"):
        return 1
    parts = recipe.data.parts if isinstance(recipe.data, LetorData) else ()
    return len(parts) or recipe.data.split.parts


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        numbers = () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise RecipeError(f"{text!r}: expected whole numbers from 1, separated by commas")
    return numbers


def _measure_all(
    options: argparse.Namespace,
    recipe: Recipe,
    counts: tuple[int, ...],
    folds: tuple[int, ...],
    store: Store,
    console: Console,
) -> pl.DataFrame:
    """Every unit that is not done yet, then all of them together."""
    import polars as pl  # noqa: PLC0415

    from training.experiments import units  # noqa: PLC0415

    work = {f"seed-{seed}-fold-{fold}": (seed, fold) for seed in range(options.seeds) for fold in folds}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(options.suite, total=len(work))
        for unit, (seed, fold) in work.items():
            if not store.has(unit):
                part = recipe.model_copy(update={"seed": seed, "fold": fold})

                def tell(text: str, unit: str = unit) -> None:
                    bar.update(task, description=f"{unit}: {text}")

                if options.suite == "oracle":
                    found = units.oracle(part, options.data, counts, store.state(unit), options.ndcg_at, tell)
                else:
                    routed = _with_router(part, counts, options.ndcg_at)
                    found = units.routing(routed, options.data, store.state(unit), tell)
                found = found.with_columns(pl.lit(seed).alias("seed"), pl.lit(fold).alias("fold"))
                store.add(unit, found)
                shutil.rmtree(store.state(unit))
            bar.advance(task)
        bar.update(task, description=options.suite)
    return store.join(list(work))


def _with_router(recipe: Recipe, counts: tuple[int, ...], ndcg_at: int) -> Recipe:
    specialists = recipe.specialists or Srm(specialists=ROUTING_COUNT)
    if counts:
        specialists = specialists.model_copy(update={"specialists": counts[0]})
    router = (recipe.router or Router()).model_copy(update={"ndcg_at": ndcg_at})
    return Recipe.model_validate({**recipe.model_dump(), "specialists": specialists, "router": router})


def _tell(
    options: argparse.Namespace, recipe: Recipe, results: pl.DataFrame, store: Store, command: str, console: Console
) -> None:
    """The page, the summary, and the sentence on the terminal."""
    from training.experiments import oracle, pages, routing  # noqa: PLC0415
    from training.report import verdict  # noqa: PLC0415

    made_with = {name: version(name) for name in ("listwright", "lightgbm", "numpy", "scikit-learn", "torch")}
    facts = [
        f"Data: {recipe.name}; folds: {results['fold'].n_unique()}; seeds: {results['seed'].n_unique()}.",
        f"NDCG@{options.ndcg_at}: gain 2^y - 1, full ideal; a query without a relevant candidate counts 0.",
        "Intervals: 95 % percentile bootstrap over queries.",
        "Made with " + ", ".join(f"{name} {number}" for name, number in made_with.items()) + ".",
    ]
    repeat = {"command": command, "facts": facts, "settings": json.dumps(recipe.model_dump(mode="json"), indent=1)}
    if options.suite == "oracle":
        summary = oracle.summarise(results)
        page = pages.oracle_page(recipe.name, summary, ndcg_at=options.ndcg_at, **repeat)
        said, sentence = summary.facts(), pages.oracle_sentence(summary)
    else:
        found = routing.from_frame(results)
        page = pages.routing_page(recipe.name, found, ndcg_at=options.ndcg_at, **repeat)
        said = found.facts() | {"calibration_error": routing.calibration(found).error}
        sentence = verdict(found)
    (store.folder / "page.html").write_text(page, encoding="utf-8")
    summary_text = json.dumps({"command": command, "made_with": made_with, "sentence": sentence, **said}, indent=1)
    (store.folder / "summary.json").write_text(summary_text + "\n", encoding="utf-8")
    console.print(escape(sentence))
    console.print(f"Page: {store.folder / 'page.html'}", soft_wrap=True, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.experiment",
        description="Measure a claim over seeds and folds; leaves results.parquet, summary.json and page.html.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suite",
        choices=["oracle", "routing"],
        help="oracle: specialists behind a noisy oracle; routing: does a router that sees only the list pay?",
    )
    parser.add_argument("--data", nargs="+", default=[], metavar="PATH", help="as for training.fit")
    parser.add_argument(
        "--recipe", metavar="NAME", help="recipe or .toml file (default: the one whose files PATH holds)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: experiments/SUITE-RECIPE")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (default: 1)")
    parser.add_argument("--folds", metavar="K,K", help="which folds (default: all of the recipe's)")
    parser.add_argument("--specialists", metavar="K,K", help="oracle: every K (default: 1,2,5,10); routing: K")
    parser.add_argument("--ndcg-at", type=int, default=10, metavar="N", help="cutoff of the NDCG (default: 10)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
