"""``listwright fit``: the command line of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.ranking.plain_file import read_object
from listwright.training.budget import FITS, LEAST_S, Budget
from listwright.training.cluster.connection import add_on_option, connected
from listwright.training.cluster.group import Workers
from listwright.training.command import repeatable
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, LambdaMart, Recipe
from listwright.training.recipe.options import MODELS, add_recipe_options, recipe_from
from listwright.training.workspace import next_version, partial_of

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
  listwright fit --out models/demo/2 --resume   after an interruption
  listwright fit mq2008 --data data/MQ2008 --model dlcm    a rival instead
  listwright fit mslr --data MSLR-WEB10K.zip --on ray://head:10001 --workers 4
"""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when the bundle is published, 1 with one clear line when it is not, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    try:
        recipe = _as_asked(recipe_from(options), options)
        budget = _budget(recipe, options)
        out = options.out or next_version(Path("models"), recipe.name)
        with console.status("loading torch"):  # seconds, which --help and mistyped options need not wait for
            from listwright.training.reporting.report import show  # noqa: PLC0415
            from listwright.training.run import run  # noqa: PLC0415
        command = repeatable("fit", sys.argv[1:] if arguments is None else arguments)
        with _workers(options) as workers:
            report = run(
                recipe,
                options.data,
                out,
                resume=options.resume,
                device=options.device,
                command=command,
                shards=options.shards,
                workers=workers,
                budget=budget,
                console=console,
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
    console.print(f"Check:  listwright verify {out}", soft_wrap=True, markup=False)
    console.print(f"Serve:  listwright serve {out}", soft_wrap=True, markup=False)
    return 0


def _as_asked(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    """A model that is asked for is not compared, and a quick fit compares nothing."""
    if options.quick:
        first = recipe.first_stage
        if isinstance(first, LambdaMart) and first.relative == "auto":
            first = first.model_copy(update={"relative": "none"})
        return config.changed(recipe, {"first_stage": first, "choice": None})
    if options.model is not None:
        return config.changed(recipe, {"choice": None})
    return recipe if recipe.choice is not None else config.changed(recipe, {"choice": Choice()})


def _budget(recipe: Recipe, options: argparse.Namespace) -> Budget:
    """The time that the command line gives, or else the recipe."""
    if options.replay is not None:
        if options.minutes is not None:
            raise RecipeError("--replay repeats what another fit did, however long that takes: leave out --minutes")
        return Budget(replay=_decisions(options.replay, recipe))
    minutes = recipe.minutes if options.minutes is None else options.minutes
    if recipe.specialists is None:
        return Budget(minutes)
    if minutes:
        fits = f"recipe {recipe.name!r} fits specialists"
        raise RecipeError(f"--minutes {minutes:g}: {fits}, whose time cannot be planned: leave it out, or say 0")
    return Budget()


def _decisions(report: Path, recipe: Recipe) -> dict[str, Any]:
    content = read_object(report)
    found = content.get("budget")
    if not isinstance(found, dict):
        raise RecipeError(f"--replay {report}: that fit had no bound; the same command with --minutes 0 repeats it")
    if content.get("recipe") != recipe.model_dump(mode="json"):
        raise RecipeError(f"--replay {report}: that fit had another recipe: repeat its command, and add --replay")
    return found


@contextmanager
def _workers(options: argparse.Namespace) -> Iterator[Workers | None]:
    """Of a data-parallel fit; None without ``--on``."""
    if options.on is None:
        if options.workers is not None:
            raise RecipeError(f"--workers {options.workers}: workers are processes of Ray; name it with --on")
        yield None
        return
    if options.workers is not None and options.workers < 1:
        raise RecipeError(f"--workers {options.workers}: expected 1 or more")
    from listwright.training.run import usable_device  # noqa: PLC0415

    device = usable_device(options.device)
    with connected(options.on, options.workers) as (ray, cores):
        most = min(cores, _gpus(ray, options)) if device.startswith("cuda") else cores
        yield Workers(ray, options.workers or most, device)


def _gpus(ray: Any, options: argparse.Namespace) -> int:
    """Of the cluster; each worker needs one."""
    found, wanted = int(ray.cluster_resources().get("GPU", 0)), options.workers or 1
    if found < wanted:
        said = f"--on {options.on}: a worker on CUDA needs a GPU, and the nodes have {found} for {wanted}"
        raise RecipeError(f"{said}: take fewer --workers, or --device cpu")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="listwright fit",
        description="Compare LightGBM with and without list-relative columns, and the second stages, on\n"
        "queries that none was trained on. Publish a bundle; its default is the simplest ranker that\n"
        "no second stage beats.",
        epilog=_EXAMPLES + MODELS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_recipe_options(parser)
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
        help=f"the fit ends by then, with a published bundle; 0 for no bound (default: {FITS} LightGBM fits on these "
        f"data, at least {LEAST_S:.0f} seconds)",
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
    add_on_option(parser)
    parser.add_argument(
        "--workers", type=int, metavar="N", help="with --on: workers that share the training queries (default: cores)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run for the same --out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
