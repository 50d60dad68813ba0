"""The router: the specialist for a list without judgements, and whether any is better than the generalist.

One forest has two heads: each specialist's chance of being the best, calibrated by a temperature, and its NDCG above
the generalist's. Temperature and margin are chosen on lists that neither the rankers nor the forest saw the labels of.

An Isolation Forest over the mean features of the first stage's top ten measures how unusual a query is.
Query vector and forest are those of the QILCM paper (Zhu, Chen, He, AAAI 2019, its Figure 2); Isolation Forest is Liu,
Ting, Zhou, 2008: score ``2^(-mean path length / c(sample size))`` in (0, 1); high is unusual.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import onnx
from jaxtyping import Bool, Float, Int
from onnx import helper, numpy_helper
from scipy.optimize import minimize_scalar
from scipy.stats import t as student
from sklearn.ensemble import ExtraTreesRegressor, IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import ExtraTreeRegressor

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.compiled.forest import open_forest
from listwright.ranking.errors import DataError, ScoringError
from listwright.ranking.features import QUANTILE_LEVELS
from listwright.ranking.order import rank_by_score
from listwright.ranking.router import SMALLEST_SHARE
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import AnomalyStage, RouterStage
from listwright.training.data.dataset import Dataset
from listwright.training.export.forest import attach, forest_graph
from listwright.training.recipe.config import Router as RouterSpec

FOLDS = 5
"""Folds of the cross-fitting of the forest, and of the temperature."""

COVERAGES = tuple(share / 10 for share in range(1, 11))
"""Shares of the lists with a positive estimated gain that are tried as routed."""

TOLERANCE = 1e-5
"""Largest difference of an estimate, or of an anomaly score, between the fitted and the exported forest."""

FEWEST = 20
"""Fewest routed lists for a bound on their mean gain."""

TREES = 100

SAMPLES = 256
"""Queries per tree; the forest's authors' own choice."""


@dataclass(frozen=True, slots=True)
class JudgedLists:
    """Training data of a router: N lists that neither specialists nor generalist were fitted on.

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
        best = find_best(self.specialists)
        shares: Float[np.ndarray, "N K"] = best / best.sum(axis=1, keepdims=True)
        return shares


def find_best(specialists: Float[np.ndarray, "N K"]) -> Bool[np.ndarray, "N K"]:
    """Return which specialists are a list's best, up to rounding."""
    is_best: Bool[np.ndarray, "N K"] = specialists >= specialists.max(axis=1, keepdims=True) - 1e-12
    return is_best


@dataclass(frozen=True, slots=True)
class FittedRouter:
    """A fitted router.

    Args:
        graph: ONNX graph, ``(1, A) -> (1, 2 K)``.
        stage: Entry of the manifest.
        facts: Facts for the report.
    """

    graph: bytes
    stage: RouterStage
    facts: dict[str, object]


def fit_router(spec: RouterSpec, lists: JudgedLists, *, seed: int) -> FittedRouter:
    """Fit the forest, calibrate it, and choose the margin.

    Args:
        spec: Router of the recipe.
        lists: Judged lists, cross-fitted.
        seed: Seed of folds and trees.

    Raises:
        DataError: if there are fewer lists than folds.
    """
    count, (rows, width) = lists.specialists.shape[1], lists.aggregates.shape
    if rows < 2 * FOLDS:
        raise DataError("training split", f"{rows} queries are too few for a router: give more, or leave out [router]")
    held_out = np.empty((rows, 2 * count))
    for inside, outside in KFold(FOLDS, shuffle=True, random_state=seed).split(lists.aggregates):
        held_out[outside] = _fit_forest(spec, lists, inside, seed=seed).predict(lists.aggregates[outside])
    shares, gains = np.split(held_out, 2, axis=1)
    temperature = calibrate(shares, lists.best)
    best = np.argmax(shares, axis=1)
    each = np.arange(rows)
    margin, bound = choose_margin(gains[each, best], lists.gains[each, best], confidence=spec.confidence)
    stage = RouterStage(temperature=temperature, margin=margin)
    forest = _fit_forest(spec, lists, each, seed=seed)
    routed = np.zeros(rows, dtype=bool) if margin is None else gains[each, best] > margin
    facts: dict[str, object] = {
        "lists": rows,
        "aggregates": width,
        "temperature": temperature,
        "margin": margin,
        "lower_bound_of_gain": bound,
        "coverage": float(routed.mean()),
        "gain_where_routed": float(lists.gains[each, best][routed].mean()) if routed.any() else None,
        "top1": float((lists.best[each, best] > 0).mean()),
    }
    exported = forest_graph(forest, width, 2 * count)
    attach(exported, forest)
    graph = exported.SerializeToString()
    _check_parity(forest, graph, lists.aggregates)
    return FittedRouter(graph, stage, facts)


def _check_parity(forest: Pipeline, graph: bytes, aggregates: Float[np.ndarray, "N A"]) -> None:
    """Raise ScoringError if the exported forest does not compute the fitted one's values."""
    expected = forest.predict(aggregates)
    scorers = [
        make(graph, aggregates.shape[1], columns=expected.shape[1], name="router") for make in (OnnxScorer, open_forest)
    ]
    worst = max(float(np.abs(scorer.score(aggregates) - expected).max()) for scorer in scorers)
    if worst > TOLERANCE:
        raise ScoringError(f"parity, router: exported and fitted estimates differ by {worst:.2g} (limit {TOLERANCE})")


def _fit_forest(spec: RouterSpec, lists: JudgedLists, rows: np.ndarray, *, seed: int) -> Pipeline:
    """Fit shares and gains in one forest, weighting both heads alike in every split."""
    best, gains = lists.best[rows], lists.gains[rows]
    gain_variance, share_variance = float(gains.var(axis=0).sum()), float(best.var(axis=0).sum())
    scale = float(np.sqrt(share_variance / gain_variance)) if min(gain_variance, share_variance) > 1e-12 else 1.0
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
    """Return the temperature under which held-out shares are the likeliest probabilities of ``best``.

    It is 1 where temperatures fitted on some of the lists do not make the best specialists of the others more likely.
    """
    log_shares = np.log(np.maximum(shares, SMALLEST_SHARE))

    def log_probability(lists: Int[np.ndarray, " M"], temperature: float) -> Float[np.ndarray, " M"]:
        scaled = log_shares[lists] / temperature
        log_p = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        values: Float[np.ndarray, " M"] = (best[lists] * log_p).sum(axis=1)
        return values

    def fit(lists: Int[np.ndarray, " M"]) -> float:
        def loss(log_temperature: float) -> float:
            return -float(log_probability(lists, float(np.exp(log_temperature))).mean())

        return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded").x))

    gains = np.empty(len(best))
    for inside, outside in KFold(FOLDS, shuffle=True, random_state=0).split(best):
        gains[outside] = log_probability(outside, fit(inside)) - log_probability(outside, 1.0)
    return fit(np.arange(len(best))) if gains.mean() > 0.0 else 1.0


def choose_margin(
    estimated: Float[np.ndarray, " N"], gained: Float[np.ndarray, " N"], *, confidence: float
) -> tuple[float | None, float | None]:
    """Choose the margin with the largest total gain, among those whose mean gain is significantly above 0.

    Lists are routed in the order of their estimated gain, as far as that is positive. Of the tried coverages one
    counts if the one-sided Student interval of the mean true gain of its lists lies above 0, at ``confidence`` for
    all tries together (Bonferroni).

    Args:
        estimated: ``(N,)`` held-out estimates of the gain of the specialist that would be chosen.
        gained: ``(N,)`` true gains of that specialist.

    Returns:
        The margin and the lower bound of the mean gain; None and None where no coverage counts: the router then
        always abstains.
    """
    order = np.argsort(-estimated, kind="stable")
    positive = int((estimated > 0).sum())
    choice: tuple[float | None, float | None] = (None, None)
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
            choice = (max(0.0, float(estimated[order[size - 1]] + following) / 2), bound)
    return choice


@dataclass(frozen=True, slots=True)
class FittedAnomaly:
    """A fitted anomaly score: how unusual a query is.

    Args:
        graph: ONNX graph, ``(1, M) -> (1, 1)``.
        stage: Entry of the manifest.
    """

    graph: bytes
    stage: AnomalyStage


def fit_anomaly(train: Dataset, scores: Float[np.ndarray, " R"], *, seed: int) -> FittedAnomaly | None:
    """Fit the score on the training queries.

    Args:
        train: N queries.
        scores: ``(R,)`` first-stage scores of their candidates, out of fold.
        seed: Seed of the trees.

    Returns:
        None without numeric features: there is nothing to take a mean of.

    Raises:
        ScoringError: if the graph does not compute what was fitted.
    """
    aggregates = Aggregates(train.schema, 1)
    if aggregates.numeric == 0:
        return None
    top_means = [
        aggregates.top_means(features, first, rank_by_score(first))
        for n, (features, _) in enumerate(train.lists())
        for first in [scores[train.slice(n)]]
    ]
    with np.errstate(over="ignore", invalid="ignore"):  # means of the largest float32; what they give is checked
        graph, quantiles = fit_forest(np.stack(top_means), seed=seed)
    return FittedAnomaly(graph, AnomalyStage(quantiles=quantiles))


def fit_forest(top_means: Float[np.ndarray, "N M"], *, seed: int) -> tuple[bytes, tuple[float, ...]]:
    """Fit the forest.

    scikit-learn's converter makes several operators per tree of an Isolation Forest, but one of a whole forest of
    regression trees: so the leaves of the isolation trees are given their path lengths, and their mean is regressed.

    Args:
        top_means: ``(N, M)`` means of the top candidates, see
            :meth:`listwright.ranking.aggregates.Aggregates.top_means`; NaN = missing.
        seed: Seed of the trees.

    Returns:
        The ONNX graph ``(1, M) -> (1, 1)``, and the quantiles of the training queries' scores.

    Raises:
        ScoringError: if the graph does not compute what was fitted.
    """
    imputer = SimpleImputer(strategy="median", keep_empty_features=True).set_output(transform="default")
    filled = imputer.fit_transform(top_means)
    forest = IsolationForest(n_estimators=TREES, max_samples=min(SAMPLES, len(filled)), random_state=seed).fit(filled)
    lengths = ExtraTreesRegressor(TREES)
    lengths.estimators_ = [_with_path_lengths(tree) for tree in forest.estimators_]
    lengths.n_features_in_, lengths.n_outputs_ = filled.shape[1], 1
    pipeline = make_pipeline(imputer, lengths)
    model = forest_graph(pipeline, filled.shape[1], 1)
    normal = max(
        1.0, float(_average_path(np.array([forest.max_samples_], dtype=np.float64))[0])
    )  # c(1) = 0: nothing to be unlike
    _append_power(model, -1.0 / normal)
    attach(model, pipeline, power=-1.0 / normal)
    graph, scores = model.SerializeToString(), -forest.score_samples(filled)
    scorer = open_forest(graph, filled.shape[1], columns=1, name="anomaly score")
    exported = scorer.score(top_means.astype(np.float32))
    worst = float(np.abs(exported[:, 0] - scores).max()) if len(filled) > 1 else 0.0  # one query: 0/0 in scikit-learn
    if worst > TOLERANCE:
        raise ScoringError(f"parity, anomaly: exported and fitted scores differ by {worst:.2g} (limit {TOLERANCE})")
    return graph, tuple(float(q) for q in np.quantile(scores, QUANTILE_LEVELS))


def _with_path_lengths(tree: ExtraTreeRegressor) -> ExtraTreeRegressor:
    """Return the tree with ``depth + c(samples of the leaf)`` as the value of every leaf."""
    tree = copy.deepcopy(tree)
    nodes = tree.tree_
    depth = np.zeros(nodes.node_count)
    for node in range(nodes.node_count):  # children stand behind their parents
        for child in (nodes.children_left[node], nodes.children_right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    nodes.value[:, 0, 0] = depth + _average_path(nodes.n_node_samples.astype(np.float64))
    return tree


def _average_path(n: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, " nodes"]:
    """Return c(n), the mean depth at which a random tree of ``n`` samples isolates one."""
    many = np.maximum(n, 3.0)
    lengths: Float[np.ndarray, " nodes"] = 2.0 * (np.log(many - 1.0) + np.euler_gamma) - 2.0 * (many - 1.0) / many
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, lengths))


def _append_power(model: onnx.ModelProto, factor: float) -> None:
    """Append ``scores := 2^(factor * scores)`` to a graph."""
    graph = model.graph
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name == "scores":
                node.output[place] = "path_length"
    graph.initializer.append(numpy_helper.from_array(np.array(factor, dtype=np.float32), "per_length"))
    graph.initializer.append(numpy_helper.from_array(np.array(2.0, dtype=np.float32), "two"))
    graph.node.append(helper.make_node("Mul", ["path_length", "per_length"], ["exponent"]))
    graph.node.append(helper.make_node("Pow", ["two", "exponent"], ["scores"]))
