"""Rules for taking list-relative columns, and what each would have lost on the public tables.

On each table and split LightGBM is fitted once without the columns, once with z-scores and ranks, and once with the
columns of categories as well, by the product's own functions. A rule sees the paired gains of queries that no model was
trained on, and decides; the test queries say what that is worth.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.tables.runs import Row
from listwright.ranking.relative import KINDS, NUMBER_KINDS
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.bootstrap import bootstrap_interval, percentile_interval, resample_means
from listwright.training.first_stage import lambdamart, relative
from listwright.training.first_stage.fit import FittedFirstStage, fit
from listwright.training.first_stage.relative import candidates
from listwright.training.recipe.config import LambdaMart

FOLDS = (2, 5)
"""Folds of the out-of-fold scores of the training queries."""

VIEWS = ("validation", *(f"{queries}, {folds} folds" for folds in FOLDS for queries in ("training", "both")))
"""Queries that a rule may see: "both" are validation and training queries pooled."""

BEFORE = "mean > 0.002 or interval above 0"
"""Rule of the product until decision 17."""


def _take_in_two_steps(means: Mapping[str, float]) -> str:
    better = "numbers" if means["numbers"] > means["plain"] else "plain"
    return "all" if means["all"] > means[better] else better


STEPS: Mapping[str, Callable[[Mapping[str, float]], str]] = {
    "no columns": lambda _: "plain",
    "numbers": lambda means: "numbers" if means["numbers"] > means["plain"] else "plain",
    "all at once": lambda means: "all" if means["all"] > means["plain"] else "plain",
    "numbers, then categories": _take_in_two_steps,
    "the best of the three": lambda means: max(means, key=means.__getitem__),
    "always all": lambda _: "all",
}
"""Ways of taking columns of numbers and of categories, by the mean NDCG on validation and training queries."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean paired gain by the columns over n queries, its 95 % bootstrap interval and its standard error.

    Args:
        shrunk: Mean gain, shrunk towards that of other tables.
    """

    mean: float
    low: float
    high: float
    error: float
    n: int
    shrunk: float = 0.0


Rule = Callable[[Gain], bool]
"""Function from a gain to whether the columns are taken."""


RULES: Mapping[str, Rule] = {
    "never": lambda _: False,
    "always": lambda _: True,
    "interval above 0": lambda gain: gain.low > 0.0,
    BEFORE: lambda gain: gain.mean > 0.002 or gain.low > 0.0,
    "mean > one standard error": lambda gain: gain.mean > gain.error,
    "interval above -0.001 and mean above 0": lambda gain: gain.low > -0.001 and gain.mean > 0.0,
    "mean > 0.001": lambda gain: gain.mean > 0.001,
    "mean x n / (n + 1000) > 0.001": lambda gain: gain.mean * gain.n / (gain.n + 1000) > 0.001,
    "mean > 0": lambda gain: gain.mean > 0.0,
    "mean, shrunk towards other tables, > 0": lambda gain: gain.shrunk > 0.0,
}


def shrink(gain: Gain, others: Sequence[Gain]) -> Gain:
    """Return a gain with its mean shrunk towards the mean of others: normal errors and prior, by their moments.

    Convention: fewer than two others shrink nothing.
    """
    if len(others) < 2:
        return replace(gain, shrunk=gain.mean)
    means, variances = np.array([other.mean for other in others]), np.array([other.error**2 for other in others])
    spread = max(0.0, float(means.var(ddof=1) - variances.mean()))
    share = spread / (spread + gain.error**2) if spread > 0.0 else 0.0
    return replace(gain, shrunk=share * gain.mean + (1.0 - share) * float(means.mean()))


def gain_of(values: Float[np.ndarray, " N"]) -> Gain:
    """Return the mean of paired gains, and how sure it is."""
    low, high = bootstrap_interval(values)
    return Gain(float(values.mean()), low, high, float(values.std(ddof=1)) / math.sqrt(len(values)), len(values))


def measure(splits: Splits, seed: int = 0) -> Row:
    """Return the gain by list-relative columns on the queries of every view, and on the test queries."""
    spec = LambdaMart(trials=1, folds=FOLDS[0])
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as other:
        plain, wide = (
            fit(spec.model_copy(update={"relative": kinds}), splits, seed=seed, state=Path(state))
            for kinds in ("none", KINDS)
        )
        only = spec.model_copy(update={"relative": NUMBER_KINDS})
        narrow = wide
        if any(column.kind not in NUMBER_KINDS for column in candidates(splits.train.schema, KINDS)):
            narrow = fit(only, splits, seed=seed, state=Path(other))

    def means(part: Callable[[FittedFirstStage], Sequence[Float[np.ndarray, " N"]]]) -> dict[str, float]:
        fits = {"plain": plain, "numbers": narrow, "all": wide}
        return {name: round(float(np.concatenate(part(fitted)).mean()), 5) for name, fitted in fits.items()}

    def ndcg(part: Dataset, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
        return lambdamart.query_ndcg(part, scores, spec.ndcg_at)

    steps = {
        "seen": means(lambda fit: [ndcg(splits.valid, fit.valid_scores), ndcg(splits.train, fit.train_scores)]),
        "test": means(lambda fit: [ndcg(splits.test, fit.scores_of(splits.test))]),
    }

    def gains(part: str, scores: Callable[[FittedFirstStage], Float[np.ndarray, " R"]]) -> Float[np.ndarray, " N"]:
        values = [lambdamart.query_ndcg(getattr(splits, part), scores(fit), spec.ndcg_at) for fit in (plain, wide)]
        gained: Float[np.ndarray, " N"] = values[1] - values[0]
        return gained

    views = {"validation": gains("valid", lambda fit: fit.valid_scores)}
    for folds in FOLDS:
        train = gains("train", partial(_out_of_fold, splits=splits, spec=spec, folds=folds, seed=seed))
        views[f"training, {folds} folds"] = train
        views[f"both, {folds} folds"] = np.concatenate([views["validation"], train])
    test = gains("test", lambda fit: fit.scores_of(splits.test))
    row = {view: asdict(gain_of(values)) for view, values in views.items()}
    return {"columns": len(wide.relative), "gains": row, "test": asdict(gain_of(test)), "steps": steps}


def _out_of_fold(
    fit: FittedFirstStage, splits: Splits, spec: LambdaMart, folds: int, seed: int
) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` scores of the training rows, each by a model that did not see its query."""
    if folds == spec.folds:
        return fit.train_scores
    facts: Any = {name: fit.facts[name] for name in ("params", "trees", "valid_ndcg", "trials", "members")}
    tuned = lambdamart.TunedLambdaMart(model=str(fit.model), **facts)
    train = relative.widened_part(splits.train, fit.relative)
    return lambdamart.out_of_fold_scores(train, tuned, folds=folds, seed=seed, ndcg_at=spec.ndcg_at)


def judge(rows: Sequence[Row]) -> list[Row]:
    """Return for each view and rule what it lost on the test queries, on average and at worst over tables and splits.

    Args:
        rows: Results of :func:`measure`, with ``table`` and ``split``.

    Returns:
        Row of each view and rule. Regret is the test NDCG of the better of both, less that of the one that the rule
        takes; ``over_before`` is the mean gain over the rule :data:`BEFORE` on the same view, with its 95 % bootstrap
        interval over tables.
    """
    tests = np.array([row["test"]["mean"] for row in rows])
    _, table = np.unique([row["table"] for row in rows], return_inverse=True)
    result = []
    for view in VIEWS:
        alone = [Gain(**row["gains"][view]) for row in rows]
        gains = [shrink(gain, [alone[m] for m in np.flatnonzero(table != table[n])]) for n, gain in enumerate(alone)]
        before = tests * np.array([RULES[BEFORE](gain) for gain in gains])
        for name, rule in RULES.items():
            takes = np.array([rule(gain) for gain in gains])
            regret = np.maximum(tests, 0.0) - tests * takes
            over, worst = tests * takes - before, int(np.argmax(regret))
            figures = (float(over.mean()), *percentile_interval(resample_means(over, table)))
            result.append(
                {
                    "view": view,
                    "rule": name,
                    "taken": int(takes.sum()),
                    "taken_and_harmful": int((takes & (tests < 0.0)).sum()),
                    "mean_regret": round(float(regret.mean()), 5),
                    "worst_loss": round(float(regret[worst]), 4),
                    "worst_at": f"{rows[worst]['table']}, split {rows[worst]['split']}",
                    "over_before": [round(float(value), 5) for value in figures],
                }
            )
    return result


def judge_steps(rows: Sequence[Row]) -> list[Row]:
    """Return what each way of :data:`STEPS` loses on the test queries against the best of the three, by table."""
    tables = sorted({row["table"] for row in rows})
    result = []
    for way, take in STEPS.items():
        regret = {
            table: float(
                np.mean(
                    [
                        max(row["steps"]["test"].values()) - row["steps"]["test"][take(row["steps"]["seen"])]
                        for row in rows
                        if row["table"] == table
                    ]
                )
            )
            for table in tables
        }
        by_table = {table: round(value, 5) for table, value in regret.items()}
        result.append({"way": way, "mean_regret": round(float(np.mean([*regret.values()])), 5), "tables": by_table})
    return result


def summarise(rows: Sequence[Row]) -> Row:
    """Return the rules' losses, and the mean gains that they are made of."""
    gains = [
        {
            "table": row["table"],
            "split": row["split"],
            "test": round(row["test"]["mean"], 4),
            **{view: round(row["gains"][view]["mean"], 4) for view in VIEWS},
        }
        for row in sorted(rows, key=lambda row: (row["table"], row["split"]))
    ]
    protocol = "gain in NDCG@10 by list-relative columns; LightGBM with one setting; regret against the better of both"
    return {"protocol": protocol, "rules": judge(rows), "gains": gains, "steps": judge_steps(rows)}
