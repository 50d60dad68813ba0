"""How unlike the training queries a query is: an Isolation Forest over the mean features of the first stage's top ten.

The query vector and the forest are those of the QILCM paper (Zhu, Chen, He, AAAI 2019, its Figure 2); Isolation Forest
is Liu, Ting, Zhou, 2008: score ``2^(-mean path length / c(sample size))`` in (0, 1), higher is stranger.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import onnx
from jaxtyping import Float
from onnx import helper, numpy_helper
from sklearn.ensemble import ExtraTreesRegressor, IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.tree import ExtraTreeRegressor

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import QUANTILE_LEVELS
from listwright.ranking.order import rank_by_score
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import AnomalyStage
from listwright.training.data.dataset import Dataset
from listwright.training.export.forest import attach, forest_graph

TREES = 100
TOLERANCE = 1e-5
"""Largest difference of a score between the fitted and the exported forest."""

SAMPLES = 256
"""Queries per tree; the forest's authors' own choice."""


@dataclass(frozen=True, slots=True)
class FittedAnomaly:
    """What a bundle holds to judge how unusual a query is.

    Args:
        graph: ONNX, ``(1, M) -> (1, 1)``.
        stage: how the manifest names it.
    """

    graph: bytes
    stage: AnomalyStage


def fit_anomaly(train: Dataset, scores: Float[np.ndarray, " R"], *, seed: int) -> FittedAnomaly | None:
    """Fit the score on the training queries.

    Args:
        train: N queries.
        scores: the first stage's of their candidates, out of fold.
        seed: fixes the trees.

    Returns:
        None without numeric features: there is nothing to take a mean of.

    Raises:
        ScoringError: if the graph does not compute what was fitted.
    """
    seen = Aggregates(train.schema, 1)
    if seen.numeric == 0:
        return None
    top_means = [
        seen.top_means(features, first, rank_by_score(first))
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
        top_means: as :meth:`listwright.ranking.aggregates.Aggregates.top_means` gives them; NaN = missing.
        seed: fixes the trees.

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
    attach(model, pipeline, -1.0 / normal)
    graph, scores = model.SerializeToString(), -forest.score_samples(filled)
    scorer = OnnxScorer(graph, filled.shape[1], columns=1, name="anomaly score")
    found = scorer.score(top_means.astype(np.float32))
    worst = float(np.abs(found[:, 0] - scores).max()) if len(filled) > 1 else 0.0  # one query: 0/0 in scikit-learn
    if worst > TOLERANCE:
        raise ScoringError(f"parity, anomaly: exported and fitted scores differ by {worst:.2g} (limit {TOLERANCE})")
    return graph, tuple(float(q) for q in np.quantile(scores, QUANTILE_LEVELS))


def _with_path_lengths(tree: ExtraTreeRegressor) -> ExtraTreeRegressor:
    """The tree with ``depth + c(samples of the leaf)`` as the value of every leaf."""
    tree = copy.deepcopy(tree)
    nodes = tree.tree_
    depth = np.zeros(nodes.node_count)
    for node in range(nodes.node_count):  # children stand behind their parents
        for child in (nodes.children_left[node], nodes.children_right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    nodes.value[:, 0, 0] = depth + _average_path(nodes.n_node_samples.astype(np.float64))
    return tree


def _average_path(n: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """c(n), the mean depth at which a random tree of ``n`` samples isolates one."""
    many = np.maximum(n, 3.0)
    found: Float[np.ndarray, " S"] = 2.0 * (np.log(many - 1.0) + np.euler_gamma) - 2.0 * (many - 1.0) / many
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, found))


def _append_power(model: onnx.ModelProto, factor: float) -> None:
    """``scores := 2^(factor * scores)`` at the end of a graph."""
    graph = model.graph
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name == "scores":
                node.output[place] = "path_length"
    graph.initializer.append(numpy_helper.from_array(np.array(factor, dtype=np.float32), "per_length"))
    graph.initializer.append(numpy_helper.from_array(np.array(2.0, dtype=np.float32), "two"))
    graph.node.append(helper.make_node("Mul", ["path_length", "per_length"], ["exponent"]))
    graph.node.append(helper.make_node("Pow", ["two", "exponent"], ["scores"]))
