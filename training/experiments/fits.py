"""One unit of the listwise suites: a method fitted once, and what it is worth on every test query."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from ranking.aggregates import Aggregates
from ranking.anomaly import AnomalyScore
from ranking.errors import RecipeError
from ranking.metrics import hit, ndcg, precision, reciprocal_rank
from ranking.packed_forest import open_forest
from training import first_stage, lambdamart, second_stage
from training.anomaly import fit_anomaly
from training.batching import Lists, refined_scores
from training.bundle_schema import load
from training.config import LambdaMart, LambdaMartSettings, Recipe
from training.data.dataset import Dataset, Splits
from training.data_config import SyntheticData
from training.learn import predict
from training.model_config import FirstStageAlone, Model

NDCG_AT = (1, 3, 5, 10, 50)
HIT_AT = (1, 5)
TRUNCATED = " truncated"
"""Ends the name of an NDCG whose ideal knows only the candidates that the first stage kept."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted and measured.

    Args:
        recipe: data with their fold and shift, first stage; its own seed draws and splits the data.
        sources: of the data.
        seed: of everything that is fitted.
        method: its name.
        spec: the second stage; the first stage alone is ``lambdamart``.
        cutoff: C, which the truncated ideal knows; the same for all methods.
        anomaly: whether the test queries get their anomaly score, which the first stage alone brings.
    """

    recipe: Recipe
    sources: tuple[str, ...]
    seed: int
    method: str
    spec: Model
    cutoff: int
    anomaly: bool = False

    @property
    def shift(self) -> float | None:
        """Planted shift of the data; None where none is planted."""
        return self.recipe.data.shift if isinstance(self.recipe.data, SyntheticData) else None

    @property
    def data(self) -> str:
        """The fits that share data, and with them the settings of LambdaMART."""
        return f"{self._shift_name}fold-{self.recipe.fold}"

    @property
    def group(self) -> str:
        """The fits that share data and first stage."""
        return f"{self._shift_name}seed-{self.seed}-fold-{self.recipe.fold}"

    @property
    def _shift_name(self) -> str:
        return "" if self.shift is None else f"shift-{self.shift:g}-"

    @property
    def name(self) -> str:
        """Of the unit."""
        return f"{self.group}-{self.method}"

    @property
    def is_first_stage(self) -> bool:
        """Whether it is the one that all others of its group wait for."""
        return isinstance(self.spec, FirstStageAlone)


def measure(fit: Fit, state: Path, tuned: Path) -> pl.DataFrame:
    """Fit a method, and rank the test queries with it.

    Args:
        fit: what to do.
        state: folder of the group, for the first stage that it shares and for checkpoints.
        tuned: file for LambdaMART's settings, which all seeds on these data share.

    Returns:
        One row per test query: where it comes from, every metric (NDCG is null for a query without a relevant
        candidate), and what the fit was like.
    """
    splits = _splits(fit.recipe, fit.sources)
    test = splits.test
    started = time.perf_counter()
    first = first_stage.fit(_tuned(fit, splits, tuned), splits, seed=fit.seed, state=state)
    assert isinstance(first.model, str)
    scores = lambdamart.scores_of(first.model, test)
    checkpoint = state / f"{fit.method}.pt"
    fitted = second_stage.fit(fit.spec, splits, first, seed=fit.seed, checkpoint=checkpoint)
    lists = Lists(test, scores, cutoff=fit.cutoff, append_score=fitted is not None and fitted.spec.first_stage_score)
    if fitted is None:
        logits = [scores[test.slice(n)][lists.kept(n)] for n in range(len(test))]
    else:
        logits = predict(fitted.module, lists)
    seconds = time.perf_counter() - started
    rows = [_measured(test, lists, scores, logits[n], n) for n in range(len(test))]
    anomaly = _anomaly(splits, first.train_scores, scores, fit.seed) if fit.anomaly and fitted is None else None
    checkpoint.unlink(missing_ok=True)
    return pl.DataFrame(
        {
            "shift": pl.Series([fit.shift] * len(test), dtype=pl.Float64),
            "seed": [fit.seed] * len(test),
            "fold": [fit.recipe.fold] * len(test),
            "method": [fit.method] * len(test),
            "qid": list(test.qids),
            "candidates": test.lengths,
            "relevant": [int((labels > 0).sum()) for _, labels in test.lists()],
            "anomaly": pl.Series(anomaly, dtype=pl.Float64) if anomaly is not None else _nothing(len(test)),
            **{name: pl.Series([row[name] for row in rows], dtype=pl.Float64).fill_nan(None) for name in rows[0]},
            "epochs": [0 if fitted is None else len(fitted.history)] * len(test),
            "best_epoch": [0 if fitted is None else fitted.best_epoch] * len(test),
            "lambda_of_eq_10": [0.0 if fitted is None else fitted.equivalent_lambda] * len(test),
            "trees": [first.facts["trees"]] * len(test),
            "seconds": [seconds] * len(test),
            "all_queries": [sum(len(part) for part in (splits.train, splits.valid, test))] * len(test),
            "features": [len(test.schema) + len(splits.dropped)] * len(test),
        }
    )


def _tuned(fit: Fit, splits: Splits, file: Path) -> LambdaMart:
    """LambdaMART with the settings that were found on these data; the number of trees is the seed's own."""
    spec = fit.recipe.first_stage
    if not isinstance(spec, LambdaMart):
        raise RecipeError(f"recipe {fit.recipe.name!r} brings its own first stage; this suite fits LambdaMART itself")
    if not file.exists():
        found = lambdamart.search_settings(
            splits.train, splits.valid, spec, seed=fit.recipe.seed, journal=file.with_suffix(".journal")
        )
        temporary = file.with_suffix(".tmp")
        temporary.write_text(LambdaMartSettings.model_validate(found.values).model_dump_json(), encoding="utf-8")
        temporary.replace(file)
    settings = LambdaMartSettings.model_validate_json(file.read_bytes())
    return spec.model_copy(update={"settings": settings, "trials": 1})


@functools.lru_cache(maxsize=1)
def _splits(recipe: Recipe, sources: tuple[str, ...]) -> Splits:
    """The data, once for all fits that a process makes in a row."""
    return load(recipe, sources)


def _nothing(count: int) -> pl.Series:
    return pl.Series([None] * count, dtype=pl.Float64)


def _measured(
    test: Dataset, lists: Lists, first_scores: Float[np.ndarray, " R"], logits: Float[np.ndarray, " C"], n: int
) -> dict[str, float]:
    rows = test.slice(n)
    labels: Int[np.ndarray, " L"] = test.labels[rows]
    kept = lists.kept(n)
    scores = refined_scores(logits, kept, first_scores[rows])
    known = np.zeros(len(labels), dtype=bool)
    known[kept] = True
    found = {f"ndcg@{k}": ndcg(scores, labels, cutoff=k) for k in NDCG_AT}
    found |= {f"ndcg@{k}{TRUNCATED}": ndcg(scores, labels, cutoff=k, kept=known) for k in NDCG_AT}
    found |= {f"hit@{k}": hit(scores, labels, cutoff=k) for k in HIT_AT}
    return found | {"precision@5": precision(scores, labels, cutoff=5), "mrr": reciprocal_rank(scores, labels)}


def _anomaly(
    splits: Splits, train_scores: Float[np.ndarray, " R"], test_scores: Float[np.ndarray, " S"], seed: int
) -> Float[np.ndarray, " N"]:
    """``(N,)`` anomaly score of every test query, by a forest fitted on the training queries."""
    fitted = fit_anomaly(splits.train, train_scores, seed=seed)
    if fitted is None:
        raise RecipeError("the anomaly score looks at numeric features, and these data have none")
    seen = Aggregates(splits.train.schema, 0)
    score = AnomalyScore(seen, open_forest(fitted.graph, seen.numeric, columns=1, name="anomaly score"))
    return np.array(
        [score.of(features, test_scores[splits.test.slice(n)]) for n, (features, _) in enumerate(splits.test.lists())]
    )
