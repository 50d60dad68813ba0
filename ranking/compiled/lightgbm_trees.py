"""LightGBM's trees as flat arrays, as the compiled traversal walks through them.

What LightGBM does with missing values and zeros depends on the node. Here it depends on the column: for every way in
which some node treats a feature there is one column, in which missing values are replaced by what makes a plain
``value > threshold`` go the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import ScoringError

NODE = np.dtype([("threshold", "f4"), ("column", "u2"), ("child", "u2")])
TREE = np.dtype([("root", "i4"), ("depth", "i4"), ("categorical", "i4")])
COLUMN = np.dtype([("feature", "i4"), ("missing", "i4")])

CATEGORICAL = 0x8000
"""Flag of a column number: the node has a set of categories, and its threshold is the place of that set."""

NAN_RIGHT, NAN_LEFT, NAN_ZERO, ZERO_RIGHT, ZERO_LEFT, CATEGORY = range(6)
"""What becomes of missing values in a column; ZERO: zeros are missing as well."""

_NUMERIC = {0: (NAN_ZERO, NAN_ZERO), 1: (ZERO_RIGHT, ZERO_LEFT), 2: (NAN_RIGHT, NAN_LEFT)}
"""By LightGBM's missing type; the second where the default is left."""

_MOST_NODES = 0xFFFF
_LARGEST_PLACE = 1 << 24  # up to which every whole number is a float32


class UnsupportedForestError(ScoringError):
    """The compiled traversal cannot score this model; LightGBM can."""


@dataclass(frozen=True, slots=True)
class Forest:
    """A forest in flat arrays.

    Args:
        columns: ``(E,)`` array of :data:`COLUMN`.
        nodes: Array of :data:`NODE`, all trees one after the other, siblings side by side; ``child`` is the left one,
            counted from the tree's root. A leaf is its own child under an infinite threshold.
        trees: ``(trees,)`` array of :data:`TREE`.
        sets: Array of uint32; a set is the count of its words and then the words.
        values: ``(nodes,)`` value of every leaf; 0 for an inner node.
        splits: Values at which a row changes its way, by feature: thresholds, or categories of a set.
    """

    columns: np.ndarray
    nodes: np.ndarray
    trees: np.ndarray
    sets: np.ndarray
    values: Float[np.ndarray, " nodes"]
    splits: dict[int, list[float]]


def read_forest(model: str) -> Forest:
    """Read the forest of a LightGBM text model that LightGBM itself has read.

    Raises:
        UnsupportedForestError: for linear leaves, averaged output, more than 65,535 nodes a tree or 32,767 columns.
        ScoringError: if a tree is none.
    """
    body = model.find("\nTree=0\n") + 1
    if "\naverage_output" in model[:body]:
        raise UnsupportedForestError("its output is an average (boosting = rf)")
    packer = _Packer()
    try:
        for text in model[body : model.find("\nend of trees\n")].split("Tree=")[1:]:
            packer.add(_Tree(dict(line.split("=", 1) for line in text.splitlines() if "=" in line)))
        return packer.forest()
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise ScoringError(f"tree {packer.count} of the LightGBM model is damaged: {error!r}") from error


def float32_below(thresholds: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return the largest float32 that is not above each.

    A finite float32 is above the one exactly when it is above the other.

    Convention: never infinity, which in a column of numbers means a missing value that goes right.
    """
    with np.errstate(over="ignore"):
        nearest = thresholds.astype(np.float32)
    above = (nearest > thresholds) | (nearest == np.inf)
    return np.where(above, np.nextafter(nearest, np.float32(-np.inf)), nearest)


class _Tree:
    """A tree as LightGBM's text has it: node numbers from 0, leaf n as ``-n - 1``."""

    def __init__(self, lines: dict[str, str]) -> None:
        if lines.get("is_linear", "0") != "0":
            raise UnsupportedForestError("its leaves are linear models (linear_tree)")
        self.leaves = _parse_numbers(lines["leaf_value"])
        self.size = len(self.leaves) - 1
        inner = {name: lines[name] if self.size else "" for name in ("split_feature", "threshold", "decision_type")}
        self.feature = [int(number) for number in inner["split_feature"].split()]
        self.decision = [int(number) for number in inner["decision_type"].split()]
        self.threshold = _parse_numbers(inner["threshold"])
        self.below: list[float] = float32_below(np.array(self.threshold)).tolist()
        left, right = (lines[side].split() if self.size else () for side in ("left_child", "right_child"))
        self.children = [(int(child), int(sibling)) for child, sibling in zip(left, right, strict=True)]
        bounds = [int(bound) for bound in lines.get("cat_boundaries", "").split()]
        words = [int(word) for word in lines.get("cat_threshold", "").split()]
        self.sets = [words[start:end] for start, end in pairwise(bounds)]

    def walk(self) -> Iterator[tuple[int, int, int]]:
        """Yield each node's number, place and level from 0, breadth first; siblings stand side by side."""
        waiting, places = deque([(0 if self.size else -1, 0, 0)]), 1
        while waiting:
            node, place, level = waiting.popleft()
            yield node, place, level
            if node >= 0:
                waiting += [(child, places + side, level + 1) for side, child in enumerate(self.children[node])]
                places += 2


def _parse_numbers(text: str) -> list[float]:
    return [float(number) for number in text.split()]


class _Packer:
    """Flat lists of the trees that are added."""

    def __init__(self) -> None:
        self._columns: dict[tuple[int, int], int] = {}
        self._nodes: list[tuple[float, int, int]] = []
        self._trees: list[tuple[int, int, bool]] = []
        self._sets: list[int] = [0]
        self._values: list[float] = []
        self._splits: dict[int, set[float]] = {}

    @property
    def count(self) -> int:
        """Number of trees added."""
        return len(self._trees)

    def add(self, tree: _Tree) -> None:
        """Append a tree."""
        if 2 * tree.size + 1 > _MOST_NODES:
            raise UnsupportedForestError(f"a tree has {tree.size + 1} leaves; 32,767 are supported")
        root, following, depth = len(self._values), 1, 0
        for node, place, level in tree.walk():
            depth = level
            if node < 0:
                self._nodes.append((np.inf, 0, place))
                self._values.append(tree.leaves[~node])
            else:
                self._nodes.append((*self._split(tree, node), following))
                self._values.append(0.0)
                following += 2
        self._trees.append((root, depth, any(column & CATEGORICAL for _, column, _ in self._nodes[root:])))

    def _split(self, tree: _Tree, node: int) -> tuple[float, int]:
        """Return the threshold and column of a node."""
        feature, decision, threshold = tree.feature[node], tree.decision[node], tree.threshold[node]
        splits = self._splits.setdefault(feature, set())
        if decision & 1:
            words, place = tree.sets[int(threshold)], len(self._sets)
            if place > _LARGEST_PLACE:
                raise UnsupportedForestError("its sets of categories are too large")
            self._sets += [len(words), *words]
            splits.update(float(32 * at + bit) for at, word in enumerate(words) for bit in range(32) if word >> bit & 1)
            return float(place), self._column(feature, CATEGORY) | CATEGORICAL
        splits.add(threshold)
        right, left = _NUMERIC[decision >> 2 & 3]
        return tree.below[node], self._column(feature, left if decision & 2 else right)

    def _column(self, feature: int, missing: int) -> int:
        number = self._columns.setdefault((feature, missing), len(self._columns))
        if number >= CATEGORICAL:
            raise UnsupportedForestError(f"it compares more than {CATEGORICAL - 1:,} columns")
        return number

    def forest(self) -> Forest:
        """Return the forest of all trees added."""
        return Forest(
            columns=np.array(list(self._columns), dtype=COLUMN),
            nodes=np.array(self._nodes, dtype=NODE),
            trees=np.array(self._trees, dtype=TREE),
            sets=np.array(self._sets, dtype=np.uint32),
            values=np.array(self._values, dtype=np.float64),
            splits={feature: sorted(values) for feature, values in self._splits.items()},
        )
