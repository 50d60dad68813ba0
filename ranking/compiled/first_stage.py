"""The LightGBM first stage without LightGBM's own traversal: compiled, several times as fast, equal to the last bit."""

from __future__ import annotations

import logging

import numpy as np
from jaxtyping import Float

from listwright.ranking.compiled.lightgbm_trees import Forest, UnsupportedForestError, float32_below, read_forest
from listwright.ranking.compiled.lockstep import schedule
from listwright.ranking.errors import ScoringError
from listwright.ranking.extensions import tree_traversal
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import Engine, FirstStage, LightGbmFirstStage, all_finite, lightgbm_input

PROBES = 512
"""Rows on which the compiled traversal is held against LightGBM before it may serve."""

SLOWER = "LightGBM scores the first stage, several times slower"

log = logging.getLogger(__name__)


class CompiledFirstStage:
    """A LightGBM ranker, walked through by compiled code on one thread.

    Args:
        forest: of the model.
        columns: of the schema, in the model's order; None if that is the schema's own.
        schema: of the feature matrices that will be scored.
    """

    engine: Engine = "compiled"

    def __init__(self, forest: Forest, columns: list[int] | None, schema: FeatureSchema) -> None:
        self._forest = forest
        order = np.arange(len(schema)) if columns is None else np.array(columns)
        asked = forest.columns["feature"]
        if ((asked < 0) | (asked >= len(order))).any():
            raise ScoringError("the LightGBM model splits on a feature that it does not have")
        self._schedule = schedule(forest)
        self._columns = forest.columns.copy()
        self._columns["feature"] = order[asked]
        self._schema = schema

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """``(L,)`` raw LambdaMART scores."""
        matrix = np.ascontiguousarray(lightgbm_input(features, self._schema), dtype=np.float32)
        forest, turns, scores = self._forest, self._schedule, np.empty(len(features))
        tree_traversal.score(
            matrix,
            self._columns,
            forest.nodes,
            forest.trees,
            forest.sets,
            forest.values,
            turns.groups,
            turns.splits,
            turns.walked,
            turns.turns,
            scores,
        )
        return all_finite(scores, "first stage")


def open_first_stage(model: str, schema: FeatureSchema, engine: str) -> FirstStage:
    """The first stage of a LightGBM text model, on the engine that the bundle asks for if that can be had.

    Where the compiled traversal is not built, does not support the model, or differs from LightGBM in a single bit of
    a probe, LightGBM scores, and a warning says why.

    Args:
        model: LightGBM's text format.
        schema: of the feature matrices that will be scored.
        engine: ``compiled`` or ``lightgbm``.

    Raises:
        SchemaMismatchError: if the model does not fit the schema.
        ScoringError: if the text is not a LightGBM model with one output.
    """
    reference = LightGbmFirstStage(model, schema)
    if engine == "lightgbm":
        return reference
    if tree_traversal is None:
        log.warning("%s: the compiled traversal is not built here, for want of a C compiler", SLOWER)
        return reference
    try:
        forest = read_forest(model)
    except UnsupportedForestError as error:
        log.warning("%s: the compiled traversal does not know such a model: %s", SLOWER, error)
        return reference
    compiled = CompiledFirstStage(forest, reference.columns, schema)
    rows = probes(forest, reference.columns, schema)
    different = np.flatnonzero(compiled.score(rows) != reference.score(rows))
    if len(different):
        log.error("%s: the compiled traversal differs from it on %d of %d probes", SLOWER, len(different), PROBES)
        return reference
    return compiled


def probes(forest: Forest, columns: list[int] | None, schema: FeatureSchema) -> Float[np.ndarray, "R D"]:
    """Rows that are easy to send the wrong way: at, just above and just below thresholds, in and out of sets, missing,
    zero and next to it, fractions about a category, very large.
    """
    rng = np.random.default_rng(0)
    rows = np.zeros((PROBES, len(schema)), dtype=np.float32)
    edges = [np.nan, 0.0, 1e-35, -1e-35, 2e-35, 0.5, -0.5, -1.0 + 2.0**-24, -1.0, 2.0**31, -(2.0**31), 3e38, -3e38]
    for feature, splits in forest.splits.items():
        column = feature if columns is None else columns[feature]
        if column in schema.categorical:
            values = np.array([splits, np.array(splits) + 1.0]).ravel() + 1.0  # the schema counts from 1
            values = np.concatenate([values[values >= 0], [np.nan, 0.0]])
        else:
            exact = float32_below(np.array(splits))
            with np.errstate(over="ignore"):
                near = np.concatenate([exact, *(np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf))])
            values = np.concatenate([near[np.isfinite(near)], edges])
        rows[:, column] = rng.choice(values, PROBES)
    return rows
