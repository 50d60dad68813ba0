"""``python -m benchmarks.quality RECIPE --data PATH``: all folds of a real set, pooled over their test queries.

Every fold is one ``training.fit`` run; its test queries are ranked through its own sealed bundle. With five folds
every query of the set is tested exactly once, so the intervals are over all of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from ranking.errors import ListwrightError
from training import config
from training.evaluate import pooled
from training.report import HEADLINE, Report, conventions, show
from training.run import run


def measure(recipe: config.Recipe, sources: list[str], folds: int, console: Console) -> tuple[Report, list[Report]]:
    """Run the folds and pool their queries."""
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for fold in range(1, folds + 1):
            out = Path(folder) / recipe.name / str(fold)
            one = recipe.model_copy(update={"fold": fold})
            reports.append(run(one, sources, out, as_fitted=True, console=console))
    evaluation = pooled([report.evaluation for report in reports])
    seconds = {step: sum(report.seconds[step] for report in reports) for step in reports[0].seconds}
    whole = Report(
        evaluation=evaluation,
        metrics=evaluation.metrics(),
        data=f"{folds} folds, every test query once; fold 1: {reports[0].data}",
        first_stage={"by_fold": [dict(report.first_stage) for report in reports]},
        model={"title": reports[0].model["title"], "by_fold": [dict(report.model) for report in reports]},
        recipe=recipe.model_dump(mode="json"),
        seconds=seconds,
    )
    return whole, reports


def main() -> int:
    """Command line; writes ``benchmarks/results/quality_RECIPE.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--data", nargs="+", required=True, metavar="PATH")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(highlight=False)
    try:
        recipe = config.load(options.recipe, seed=options.seed)
        whole, reports = measure(recipe, options.data, options.folds, console)
    except ListwrightError as error:
        console.print(f"error: {error}", markup=False)
        return 1
    show(whole, console)
    gains = {
        metric: dict(zip(("mean", "low", "high"), whole.evaluation.gain(metric, "qilcm", "first_stage"), strict=True))
        for metric in ("ndcg@1", "ndcg@3", "ndcg@5", HEADLINE, "hit@1", "hit@5", "mrr")
    }
    result = {
        "recipe": recipe.model_dump(mode="json"),
        "data": whole.data,
        "protocol": str(whole.evaluation.protocol),
        "interval": "95 % percentile bootstrap over the pooled test queries; gains are paired",
        "folds": options.folds,
        "queries": whole.evaluation.queries,
        "empty_queries": whole.evaluation.empty_queries,
        "metrics": [metric.model_dump() for metric in whole.metrics],
        "gain_of_qilcm_over_first_stage": gains,
        "ndcg@10_by_empty_query_convention": conventions(whole.evaluation),
        "seconds": {step: round(value, 1) for step, value in whole.seconds.items()},
        "first_stage_by_fold": [dict(report.first_stage) for report in reports],
        "model_by_fold": [dict(report.model) for report in reports],
    }
    command = f"python -m benchmarks.quality {options.recipe} --data PATH --folds {options.folds} --seed {options.seed}"
    print(machine.save(f"quality_{recipe.name}", command, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
