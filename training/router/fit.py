"""The router: which specialist for a list that nobody has judged, and whether any is worth leaving the generalist for.

One forest has two heads: each specialist's chance of being the best, calibrated by a temperature, and its NDCG above
the generalist's. Temperature and margin are chosen on lists that neither the rankers nor the forest saw the labels of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize_scalar
from scipy.stats import t as student
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline

from listwright.ranking.errors import DataError, ScoringError
from listwright.ranking.router import SMALLEST_SHARE
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import RouterStage
from listwright.training.export.forest import forest_graph
from listwright.training.recipe.config import Router as RouterSpec

FOLDS = 5
"""Of the forest's own cross-fitting."""

COVERAGES = tuple(share / 10 for share in range(1, 11))
"""Shares of the lists with a positive estimated gain that are tried as routed."""

TOLERANCE = 1e-5
"""Largest difference of an estimate between the fitted and the exported forest."""

FEWEST = 20
"""Routed lists below which no bound on their mean gain is believed."""


@dataclass(frozen=True, slots=True)
class JudgedLists:
    """What a router learns from: N lists that the specialists and the generalist did not see.

    Args:
        aggregates: ``(N, A)`` as :class:`listwright.ranking.aggregates.Aggregates` gives them.
        specialists: ``(N, K)`` NDCG of every specialist.
        generalist: ``(N,)`` NDCG of the generalist.
    """

    aggregates: Float[np.ndarray, "N A"]
    specialists: Float[np.ndarray, "N K"]
    generalist: Float[np.ndarray, " N"]

    @property
    def gains(self) -> Float[np.ndarray, "N K"]:
        """``(N, K)`` of every specialist over the generalist."""
        gains: Float[np.ndarray, "N K"] = self.specialists - self.generalist[:, None]
        return gains

    @property
    def best(self) -> Float[np.ndarray, "N K"]:
        """``(N, K)`` 1 for the best specialist; equal bests share it."""
        best = bests(self.specialists)
        shares: Float[np.ndarray, "N K"] = best / best.sum(axis=1, keepdims=True)
        return shares


def bests(specialists: Float[np.ndarray, "N K"]) -> Bool[np.ndarray, "N K"]:
    """Which specialists are a list's best, up to rounding."""
    found: Bool[np.ndarray, "N K"] = specialists >= specialists.max(axis=1, keepdims=True) - 1e-12
    return found


@dataclass(frozen=True, slots=True)
class FittedRouter:
    """A fitted router.

    Args:
        graph: ONNX, ``(1, A) -> (1, 2 K)``.
        stage: how the manifest names it.
        facts: what the report says about it.
    """

    graph: bytes
    stage: RouterStage
    facts: dict[str, object]


def fit_router(spec: RouterSpec, lists: JudgedLists, *, seed: int) -> FittedRouter:
    """Fit the forest, calibrate it, and choose the margin.

    Args:
        spec: of the recipe.
        lists: cross-fitted.
        seed: fixes folds and trees.

    Raises:
        DataError: if there are fewer lists than folds.
    """
    count, (rows, width) = lists.specialists.shape[1], lists.aggregates.shape
    if rows < 2 * FOLDS:
        raise DataError("training split", f"{rows} queries are too few for a router: give more, or leave out [router]")
    held_out = np.empty((rows, 2 * count))
    for kept, left in KFold(FOLDS, shuffle=True, random_state=seed).split(lists.aggregates):
        held_out[left] = _fit_forest(spec, lists, kept, seed=seed).predict(lists.aggregates[left])
    shares, gains = np.split(held_out, 2, axis=1)
    temperature = calibrate(shares, lists.best)
    chosen = np.argmax(shares, axis=1)
    each = np.arange(rows)
    margin, bound = choose_margin(gains[each, chosen], lists.gains[each, chosen], confidence=spec.confidence)
    stage = RouterStage(temperature=temperature, margin=margin)
    forest = _fit_forest(spec, lists, each, seed=seed)
    routed = np.zeros(rows, dtype=bool) if margin is None else gains[each, chosen] > margin
    facts: dict[str, object] = {
        "lists": rows,
        "aggregates": width,
        "temperature": temperature,
        "margin": margin,
        "lower_bound_of_gain": bound,
        "coverage": float(routed.mean()),
        "gain_where_routed": float(lists.gains[each, chosen][routed].mean()) if routed.any() else None,
        "top1": float((lists.best[each, chosen] > 0).mean()),
    }
    graph = forest_graph(forest, width, 2 * count).SerializeToString()
    _check_parity(forest, graph, lists.aggregates)
    return FittedRouter(graph, stage, facts)


def _check_parity(forest: Pipeline, graph: bytes, aggregates: Float[np.ndarray, "N A"]) -> None:
    """Raise ScoringError if the exported forest does not compute what was fitted."""
    expected = forest.predict(aggregates)
    scorer = OnnxScorer(graph, aggregates.shape[1], columns=expected.shape[1], name="router")
    worst = float(np.abs(scorer.score(aggregates) - expected).max())
    if worst > TOLERANCE:
        raise ScoringError(f"parity, router: exported and fitted estimates differ by {worst:.2g} (limit {TOLERANCE})")


def _fit_forest(spec: RouterSpec, lists: JudgedLists, rows: np.ndarray, *, seed: int) -> Pipeline:
    """Shares and gains in one forest, both heads with the same say in every split."""
    best, gains = lists.best[rows], lists.gains[rows]
    spread, wanted = float(gains.var(axis=0).sum()), float(best.var(axis=0).sum())
    scale = float(np.sqrt(wanted / spread)) if min(spread, wanted) > 1e-12 else 1.0
    forest = ExtraTreesRegressor(
        spec.trees,
        max_depth=spec.max_depth,
        min_samples_leaf=max(5, len(rows) // 100),
        max_features=1 / 3,
        random_state=seed,
    )
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    fitted = make_pipeline(imputer, forest).fit(lists.aggregates[rows], np.column_stack([best, gains * scale]))
    for tree in forest.estimators_:
        tree.tree_.value[:, best.shape[1] :] /= scale
    return fitted


def calibrate(shares: Float[np.ndarray, "N K"], best: Float[np.ndarray, "N K"]) -> float:
    """The temperature under which held-out shares are the likeliest probabilities of ``best``."""
    log_shares = np.log(np.maximum(shares, SMALLEST_SHARE))

    def loss(log_temperature: float) -> float:
        scaled = log_shares / np.exp(log_temperature)
        log_p = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        return float(-(best * log_p).sum(axis=1).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded").x))


def choose_margin(
    estimated: Float[np.ndarray, " N"], gained: Float[np.ndarray, " N"], *, confidence: float
) -> tuple[float | None, float | None]:
    """The margin that routes for the largest total gain, among those whose mean gain is surely above 0.

    Lists are routed in the order of their estimated gain, as far as that is positive. Of the tried coverages one
    counts if the one-sided Student interval of the mean true gain of its lists lies above 0, at ``confidence`` for
    all tries together (Bonferroni).

    Args:
        estimated: held-out estimate for the specialist that would be chosen.
        gained: what it truly gained.

    Returns:
        The margin and the lower bound of the mean gain; None and None where no coverage counts: the router then
        always abstains.
    """
    order = np.argsort(-estimated, kind="stable")
    positive = int((estimated > 0).sum())
    found: tuple[float | None, float | None] = (None, None)
    largest = 0.0
    for share in COVERAGES:
        size = round(share * positive)
        if size < FEWEST:
            continue
        size = int((estimated >= estimated[order[size - 1]]).sum())  # equal estimates share their fate
        gains = gained[order[:size]]
        quantile = student.ppf(1 - (1 - confidence) / len(COVERAGES), size - 1)
        bound = float(gains.mean() - quantile * gains.std(ddof=1) / np.sqrt(size))
        if bound > 0 and gains.sum() > largest:
            largest = float(gains.sum())
            following = estimated[order[size]] if size < len(order) else 0.0
            found = (max(0.0, float(estimated[order[size - 1]] + following) / 2), bound)
    return found
