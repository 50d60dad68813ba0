"""A regression forest as it travels in the metadata of its own ONNX graph, and the compiled walk through it.

ONNX Runtime needs longer to start on the one row of a query than to walk through the forest, so the router and the
anomaly score are read from there, where :mod:`listwright.ranking.compiled.tree_traversal` is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt

from listwright.ranking.compiled.first_stage import tree_traversal
from listwright.ranking.compiled.lightgbm_trees import NODE
from listwright.ranking.compiled.metadata import Packed
from listwright.ranking.compiled.packed_graph import open_packed
from listwright.ranking.errors import ScoringError
from listwright.ranking.scorers import Scorer

METADATA = "listwright.forest"
"""Name of the graph's metadata entry."""

PROBES = 64
LARGEST = 100.0
"""Of a leaf, or of an exponent: every mean and every power of 2 is then finite."""

_KINDS: dict[str, np.dtype[Any]] = {
    "fills": np.dtype("f4"),
    "nodes": NODE,
    "roots": np.dtype("i4"),
    "leaves": np.dtype("u4"),
    "values": np.dtype("f4"),
    "power": np.dtype("f8"),
}


@dataclass(frozen=True, slots=True)
class PackedForest(Packed):
    """Trees over E columns, with one output or more; the result is their mean m, or ``2^(power m)``.

    Args:
        fills: ``(E,)`` replacement of a missing value, by column.
        nodes: Nodes of all trees, of :data:`listwright.ranking.compiled.lightgbm_trees.NODE`, as its ``Forest`` has
            them.
        roots: ``(trees,)`` index of each tree's root.
        leaves: ``(nodes,)`` for a leaf, the index of its row of ``values``.
        values: ``(values, outputs)`` values of the leaves.
        power: ``(1,)`` factor of the mean in the exponent, not 0; empty for the mean itself.
    """

    fills: Float[np.ndarray, " E"]
    nodes: Shaped[np.ndarray, " nodes"]
    roots: Int[np.ndarray, " trees"]
    leaves: UInt[np.ndarray, " nodes"]
    values: Float[np.ndarray, "values outputs"]
    power: Float[np.ndarray, " power"]

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            array = getattr(self, name)
            if array.dtype != kind or array.ndim != 1 + (name == "values") or not array.flags.c_contiguous:
                raise ScoringError(f"the packed forest's {name} are {array.dtype} of shape {array.shape}")
        if not (self._trees_are_trees() and self._numbers_are_finite()):
            raise ScoringError("the packed forest is damaged")

    def _trees_are_trees(self) -> bool:
        """Return whether every node is a leaf or leads to a later one of its own tree, so that walks end."""
        count = len(self.nodes)
        sizes = np.diff(self.roots, append=count)
        if count == 0 or len(self.leaves) != count or len(self.roots) == 0 or self.roots[0] != 0 or (sizes <= 0).any():
            return False
        place = np.arange(count) - np.repeat(self.roots, sizes)
        child, column = self.nodes["child"].astype(np.int64), self.nodes["column"]
        leaf = (child == place) & (self.nodes["threshold"] == np.inf)
        inside = (child > place) & (child + 1 < np.repeat(sizes, sizes))
        return bool(
            (leaf | inside).all() and (column < len(self.fills)).all() and (self.leaves < len(self.values)).all()
        )

    def _numbers_are_finite(self) -> bool:
        largest = np.abs(self.values).max(initial=0.0) * np.abs(self.power).max(initial=1.0)
        return bool(np.isfinite(self.fills).all() and largest < LARGEST and len(self.power) <= 1 and self.power.all())


class ForestScorer:
    """A scorer of rows by a packed forest, on one thread."""

    def __init__(self, forest: PackedForest) -> None:
        self._outputs, power = forest.values.shape[1], float(forest.power[0]) if len(forest.power) else 0.0
        parts = (forest.fills, forest.nodes, forest.roots, forest.leaves, forest.values)
        self._average = tree_traversal.Average(*parts, power)

    def score(self, features: Float[np.ndarray, "rows E"]) -> Float[np.ndarray, "rows outputs"]:
        """Return ``(rows, outputs)`` means of finite numbers, or powers of 2 between the smallest and largest leaf."""
        out: Float[np.ndarray, "rows outputs"] = np.empty((len(features), self._outputs), dtype=np.float32)
        self._average.score(features, out)
        return out


def open_forest(model: bytes, width: int, columns: int, name: str) -> Scorer:
    """Open a forest's ONNX graph: compiled where that is built and equals ONNX Runtime on probes.

    The arguments are those of :func:`listwright.ranking.compiled.packed_graph.open_packed`.

    Raises:
        ScoringError: if it is not such a graph, or its metadata hold no such forest.
    """

    def compiled(text: str) -> tuple[Scorer, Float[np.ndarray, "R E"]]:
        forest = PackedForest.from_text(text)
        if (len(forest.fills), forest.values.shape[1]) != (width, columns):
            raise ScoringError(f"the packed forest maps {len(forest.fills)} columns to {forest.values.shape[1]}")
        return ForestScorer(forest), _probes(forest)

    built = None if tree_traversal is None else compiled
    return open_packed(model, width, columns, name, entry=METADATA, compile_packed=built)


def _probes(forest: PackedForest) -> Float[np.ndarray, "R E"]:
    """Return rows at, just above and just below thresholds, with missing values."""
    rng = np.random.default_rng(0)
    rows = np.tile(forest.fills, (PROBES, 1))
    inner = forest.nodes[np.isfinite(forest.nodes["threshold"])]
    if len(inner):
        for row in rows:
            picked = rng.choice(inner, len(forest.fills))
            near = np.nextafter(picked["threshold"], rng.choice([-np.inf, np.inf], len(picked)).astype(np.float32))
            row[picked["column"]] = np.where(rng.random(len(picked)) < 0.5, near, picked["threshold"])
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows
