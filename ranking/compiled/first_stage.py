"""The LightGBM first stage without LightGBM's own traversal: compiled, several times as fast, equal to the last bit.

Trees of plain thresholds go in step, four at a time (``lockstep.h``); the others are walked through row by row.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.compiled.lightgbm_trees import Forest, UnsupportedForestError, float32_below, read_forest
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import Engine, FirstStage, LightGbmFirstStage
from listwright.ranking.scorers import all_finite

tree_traversal: Any
try:
    tree_traversal = import_module("listwright.ranking.compiled.tree_traversal")
except ImportError:  # there was no C compiler
    tree_traversal = None

ABREAST = 4
"""Trees that go in step; as in ``ranking/compiled/lockstep.h``."""

MOST_LEAVES = 64
"""Of a tree that goes in step. It passes all splits, a tree that is walked through only those on a row's way."""

SPLIT = np.dtype([("threshold", "f4"), ("column", "i4"), ("at", "i4"), ("step", "i4")])
GROUP = np.dtype([("steps", "i4"), ("starts", "i4", ABREAST)])

_INERT = (np.inf, 0, 0, 0)

PROBES = 512
"""Rows on which the compiled traversal is compared with LightGBM before it serves."""

SLOWER = "LightGBM scores the first stage, several times slower"

log = logging.getLogger(__name__)


class CompiledFirstStage:
    """A LightGBM ranker, walked through by compiled code on one thread.

    Args:
        forest: Trees of the model.
        columns: Columns of the schema in the model's order; None if that is the schema's own.
        schema: Schema of the feature matrices that will be scored.
    """

    engine: Engine = "compiled"

    def __init__(self, forest: Forest, columns: list[int] | None, schema: FeatureSchema) -> None:
        self._forest = forest
        order = np.arange(len(schema)) if columns is None else np.array(columns)
        split_features = forest.columns["feature"]
        self._schedule = schedule(forest)
        self._columns = forest.columns.copy()
        self._columns["feature"] = order[split_features]
        self._schema = schema

    def score(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` raw LambdaMART scores."""
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
    """Open the first stage of a LightGBM text model, on the bundle's engine if that is available.

    Where the compiled traversal is not built, does not support the model, or differs from LightGBM in a single bit of
    a probe, LightGBM scores, and a warning says why.

    Args:
        model: Model in LightGBM's text format.
        schema: Schema of the feature matrices that will be scored.
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
    """Return rows on which the two engines could differ.

    At, just above and just below thresholds, in and out of sets, missing, zero and next to it, fractions about a
    category, very large.
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """The trees that are scored in step and those that are walked row by row.

    Args:
        groups: ``(G,)`` array of :data:`GROUP`: number of splits, and the place of each tree's leftmost leaf.
        splits: ``(splits, 4)`` array of :data:`SPLIT`, group after group, parents before children; ``at`` is the
            place of the leftmost leaf below, from which ``step`` leads to that of the right side.
        walked: ``(walked,)`` numbers of the other trees.
        turns: ``(trees,)`` place of each tree in the order in which they are computed: four a group, and then those
            that are walked through.
    """

    groups: np.ndarray
    splits: np.ndarray
    walked: Int[np.ndarray, " walked"]
    turns: Int[np.ndarray, " trees"]


def schedule(forest: Forest) -> Schedule:
    """Split the trees into those scored in step and those walked row by row.

    Trees of plain thresholds and at most :data:`MOST_LEAVES` leaves go in step, with others of about their size.
    """
    ends = np.append(forest.trees["root"][1:], len(forest.nodes))
    small = (ends - forest.trees["root"] < 2 * MOST_LEAVES) & (forest.trees["categorical"] == 0)
    in_step = {
        int(tree): _in_step(forest.nodes[forest.trees["root"][tree] : ends[tree]].tolist())
        for tree in np.flatnonzero(small)
    }
    order = sorted(in_step, key=lambda tree: len(in_step[tree][1]))
    groups, splits = [], []
    for first in range(0, len(order), ABREAST):
        members = order[first : first + ABREAST]
        missing = ABREAST - len(members)
        starts, ways = zip(*(in_step[tree] for tree in members), *[(0, [])] * missing, strict=True)
        steps = max(len(way) for way in ways)
        groups.append((steps, starts))
        padded = [way + [_INERT] * (steps - len(way)) for way in ways]
        splits += [list(step) for step in zip(*padded, strict=True)]
    walked = np.flatnonzero(~small).astype(np.int32)
    turns = np.empty(len(small), dtype=np.int32)
    turns[order] = np.arange(len(order))
    turns[walked] = len(groups) * ABREAST + np.arange(len(walked))
    return Schedule(np.array(groups, dtype=GROUP), np.array(splits, dtype=SPLIT).reshape(-1, ABREAST), walked, turns)


def _in_step(nodes: list[tuple[float, int, int]]) -> tuple[int, list[tuple[float, int, int, int]]]:
    """Return the place of a tree's leftmost leaf, and its splits."""
    leftmost = list(range(len(nodes)))
    for place in reversed(range(len(nodes))):
        leftmost[place] = leftmost[nodes[place][2]]  # children stand behind their parents; a leaf is its own child
    splits, waiting = [], [0]
    while waiting:
        place = waiting.pop()
        threshold, column, child = nodes[place]
        if child != place:
            splits.append((threshold, column, leftmost[place], leftmost[child + 1] - leftmost[place]))
            waiting += [child + 1, child]
    return leftmost[0], splits
