"""``python -m training.fit``: from ranking data to a sealed bundle, as one straight line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ranking import bundle
from ranking.errors import ListwrightError, RecipeError
from training import bring_your_own, config, first_stage
from training.bundling import write_bundle
from training.config import GivenColumn, GivenModel, LambdaMart, Recipe
from training.data.dataset import Splits
from training.data.load import describe, load
from training.evaluate import evaluate
from training.first_stage import FittedFirstStage
from training.learn import Epoch, FittedQilcm, fit_qilcm
from training.report import Report, show
from training.workspace import Workspace, next_version


@dataclass
class Stopwatch:
    """Wall-clock seconds by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def run(
    recipe: Recipe, sources: Sequence[str], out: Path, *, resume: bool = False, device: str = "auto", console: Console
) -> Report:
    """Fit a recipe and publish the bundle at ``out``.

    Args:
        recipe: what to fit.
        sources: files, folders or archives with the data; see ``--data``.
        out: the bundle's folder, ``.../NAME/VERSION``; must not exist.
        resume: go on with an interrupted run for the same ``out``.
        device: ``auto`` takes CUDA where there is one; or a torch device.
        console: where progress and the table go.

    Returns:
        The held-out result, measured through the sealed bundle.

    Raises:
        ListwrightError: with the place and the remedy; nothing is published, checkpoints stay.
    """
    workspace = Workspace(out, recipe, resume=resume)
    watch = Stopwatch()
    with _progress(console) as bars:
        with watch.step("data"):
            splits = _under_first_stage(recipe, load(recipe, sources, progress=bars))
            for read in bars.tasks:  # compressed text is longer than its file: only now is the end known
                bars.update(read.id, total=read.completed)
            workspace.belongs_to(splits)
        bars.console.print(f"[bold]{escape(recipe.name)}[/]: {escape(splits.how)}")
        bars.console.print(escape(describe(splits.train.schema)))
        with watch.step("first stage"):
            first = _fit_first_stage(recipe, splits, workspace, bars)
        with watch.step("QILCM"):
            fitted = _fit_second_stage(recipe, splits, first, workspace, bars, device)
        with watch.step("export and parity"):
            manifest = write_bundle(workspace.bundle, out, recipe, splits, first, fitted)
        with watch.step("evaluation"):
            served = bundle.load(workspace.bundle)
            task = bars.add_task("Scoring the test split", total=len(splits.test))
            evaluation = evaluate(served.reranker, splits.test, on_query=lambda done: bars.update(task, completed=done))
    report = Report(
        evaluation=evaluation,
        metrics=evaluation.metrics(),
        data=splits.how,
        first_stage=first.facts,
        model=_model_facts(fitted),
        recipe=recipe.model_dump(mode="json"),
        seconds=watch.seconds,
    )
    (workspace.bundle / "report.json").write_text(report.to_json(), encoding="utf-8")
    files = [file.name for file in manifest.files]
    bundle.seal(workspace.bundle, manifest.model_copy(update={"metrics": report.metrics}), [*files, "report.json"])
    bundle.publish(workspace.bundle, out)
    workspace.discard()
    return report


def _under_first_stage(recipe: Recipe, splits: Splits) -> Splits:
    """The splits under the categories of a model that was brought along."""
    if not isinstance(recipe.first_stage, GivenModel):
        return splits
    model = bring_your_own.read_model(Path(recipe.first_stage.path))
    schema = bring_your_own.under_model_categories(model, splits.train.schema)
    return Splits(splits.train.under(schema), splits.valid.under(schema), splits.test.under(schema), splits.how)


def _fit_first_stage(recipe: Recipe, splits: Splits, workspace: Workspace, bars: Progress) -> FittedFirstStage:
    spec = recipe.first_stage
    if not isinstance(spec, LambdaMart):
        bars.console.print(f"[yellow]Note:[/] {bring_your_own.WARNING}")
        return first_stage.fit(spec, splits, seed=recipe.seed, state=workspace.state)
    tuning = bars.add_task("Tuning LambdaMART", total=spec.trials)
    folding = bars.add_task("Out-of-fold scores", total=spec.folds)

    def on_trial(done: int, best: float) -> None:
        text = f"Tuning LambdaMART, held-out NDCG@{spec.ndcg_at} {best:.4f}"
        bars.update(tuning, completed=done, description=text)

    fitted = first_stage.fit(
        spec,
        splits,
        seed=recipe.seed,
        state=workspace.state,
        on_trial=on_trial,
        on_fold=lambda done: bars.update(folding, completed=done),
    )
    bars.update(tuning, completed=spec.trials)
    bars.update(folding, completed=spec.folds)
    return fitted


def _fit_second_stage(
    recipe: Recipe, splits: Splits, first: FittedFirstStage, workspace: Workspace, bars: Progress, device: str
) -> FittedQilcm:
    spec = recipe.model
    if first.is_column:  # the score is one of the features already
        spec = spec.model_copy(update={"first_stage_score": False})
    task = bars.add_task("Training QILCM", total=spec.max_epochs)

    def on_epoch(epoch: Epoch) -> None:
        text = f"Training QILCM, valid NDCG@{spec.ndcg_at} {epoch.valid_ndcg:.4f} (best {epoch.best_ndcg:.4f})"
        bars.update(task, completed=epoch.number, description=text)

    fitted = fit_qilcm(
        spec,
        splits.train,
        splits.valid,
        first.train_scores,
        first.valid_scores,
        seed=recipe.seed,
        checkpoint=workspace.state / "qilcm.pt",
        device=("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device,
        on_epoch=on_epoch,
    )
    bars.update(task, total=len(fitted.history), completed=len(fitted.history))
    return fitted


def _model_facts(fitted: FittedQilcm) -> dict[str, object]:
    return {
        "kind": "qilcm",
        "epochs": len(fitted.history),
        "best_epoch": fitted.best_epoch,
        "valid_ndcg": max(epoch.valid_ndcg for epoch in fitted.history),
        "lambda_of_eq_10": fitted.equivalent_lambda,
        "parameters": sum(parameter.numel() for parameter in fitted.module.parameters()),
    }


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),  # all columns fit the 80 of a plain terminal
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    )


_EXAMPLES = """examples:
  python -m training.fit                                          synthetic data, about a minute
  python -m training.fit mq2008 --data data/MQ2008 --fold 2       a public set, its own folds
  python -m training.fit mslr --data MSLR-WEB10K.zip              read inside the publisher's archive
  python -m training.fit letor --data train=a.txt.gz valid=b.txt.gz test=c.txt.gz
  python -m training.fit table --data rows.parquet --qid search_id --label clicked --categorical carrier,country
  python -m training.fit letor --data rows.txt --first-stage production.txt --out models/shop/1
  python -m training.fit --out models/demo/2 --resume             go on after an interruption
"""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when the bundle is published, 1 with one clear line when it is not, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    try:
        recipe = recipe_from(options)
        out = options.out or next_version(Path("models"), recipe.name)
        report = run(recipe, options.data, out, resume=options.resume, device=options.device, console=console)
    except ListwrightError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: finished steps are kept; run the same command with --resume to go on")
        return 130
    show(report, console)
    console.print(f"\nBundle: {out}   (check it: python -m ranking.bundle verify {out})", soft_wrap=True)
    console.print(f"Serve it: LISTWRIGHT_BUNDLE={out} python -m service", soft_wrap=True)
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
    return recipe.model_copy(update=changes)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.fit",
        description="Fit a LightGBM first stage and a QILCM reranker, and publish them as one sealed bundle.",
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
    parser.add_argument("--seed", type=int, metavar="N", help="the only source of randomness (default: the recipe's)")
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
    first.add_argument("--first-stage-column", metavar="COL", help="scores that stand in the data")
    return parser


if __name__ == "__main__":
    sys.exit(main())
