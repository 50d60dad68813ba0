"""Linear specialists as they travel in the metadata of their own ONNX graph, and the compiled product.

ONNX Runtime needs longer to start on a short list than to score it; see :mod:`listwright.ranking.compiled.forest`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.compiled.metadata import Packed
from listwright.ranking.compiled.packed_graph import open_packed
from listwright.ranking.errors import ScoringError
from listwright.ranking.scorers import Scorer

linear_product: Any
try:
    linear_product = import_module("listwright.ranking.compiled.linear_product")
except ImportError:  # there was no C compiler
    linear_product = None

METADATA = "listwright.linear"
"""Name of the graph's metadata entry."""

PROBES = 64
LARGEST = 1e30
"""Of a score that could come out: far from where float32 ends."""

_KINDS: dict[str, tuple[np.dtype[Any], int]] = {
    "columns": (np.dtype("i4"), 1),
    "fills": (np.dtype("f4"), 1),
    "lows": (np.dtype("f4"), 1),
    "highs": (np.dtype("f4"), 1),
    "means": (np.dtype("f4"), 1),
    "scales": (np.dtype("f4"), 1),
    "weights": (np.dtype("f4"), 2),
    "missing_weights": (np.dtype("f4"), 2),
    "category_columns": (np.dtype("i4"), 1),
    "category_starts": (np.dtype("i4"), 1),
    "category_weights": (np.dtype("f4"), 2),
}


@dataclass(frozen=True, slots=True)
class PackedLinear(Packed):
    """K linear rankers over M z-scores, their missing-value indicators and the 0/1 columns of categories.

    Args:
        columns: ``(M,)`` indices of the numeric columns of the input.
        fills: ``(M,)`` replacements of a missing value.
        lows, highs: ``(M,)`` bounds to clip at.
        means, scales: ``(M,)`` parameters of the z-scores ``(x - mean) * scale``.
        weights: ``(K, M)`` weights of the z-scores.
        missing_weights: ``(K, M)`` weights that are added where the value is missing.
        category_columns: ``(J,)`` indices of the categorical columns of the input, coded 1, 2, ...
        category_starts: ``(J + 1,)`` index of the first weight of each categorical column.
        category_weights: ``(K, categories)`` weights of all categories.
    """

    columns: Int[np.ndarray, " M"]
    fills: Float[np.ndarray, " M"]
    lows: Float[np.ndarray, " M"]
    highs: Float[np.ndarray, " M"]
    means: Float[np.ndarray, " M"]
    scales: Float[np.ndarray, " M"]
    weights: Float[np.ndarray, "K M"]
    missing_weights: Float[np.ndarray, "K M"]
    category_columns: Int[np.ndarray, " J"]
    category_starts: Int[np.ndarray, " J+1"]
    category_weights: Float[np.ndarray, "K categories"]

    def __post_init__(self) -> None:
        for name, (kind, axes) in _KINDS.items():
            array = getattr(self, name)
            if array.dtype != kind or array.ndim != axes or not array.flags.c_contiguous:
                raise ScoringError(f"the packed rankers' {name} are {array.dtype} of shape {array.shape}")
        if not (self._shapes_agree() and self._scores_are_finite()):
            raise ScoringError("the packed rankers are damaged")

    def _shapes_agree(self) -> bool:
        count, width = self.weights.shape
        per_column = (self.columns, self.fills, self.lows, self.highs, self.means, self.scales)
        starts = self.category_starts
        return bool(
            all(len(array) == width for array in per_column)
            and self.missing_weights.shape == (count, width)
            and len(starts) == len(self.category_columns) + 1
            and starts[0] == 0
            and (np.diff(starts) >= 0).all()
            and self.category_weights.shape == (count, starts[-1])
            and (self.columns >= 0).all()
            and (self.category_columns >= 0).all()
        )

    def _scores_are_finite(self) -> bool:
        """Return whether every score is finite, whatever the input: clipping bounds every z-score."""
        floats = [getattr(self, name) for name, (kind, _) in _KINDS.items() if kind == np.float32]
        if not all(np.isfinite(array).all() for array in floats):
            return False
        means, scales = self.means.astype(np.float64), np.abs(self.scales.astype(np.float64))
        largest = np.maximum(np.abs(self.lows - means), np.abs(self.highs - means)) * scales
        weights = [np.abs(array.astype(np.float64)) for array in (self.weights, self.missing_weights)]
        rest = np.abs(self.category_weights.astype(np.float64)).sum()
        return bool((weights[0] @ largest + weights[1].sum(axis=1) + rest < LARGEST).all())

    @property
    def width(self) -> int:
        """Fewest columns that the input may have."""
        return int(max([-1, *self.columns, *self.category_columns])) + 1


class LinearScorer:
    """A scorer of rows by packed linear rankers, on one thread."""

    def __init__(self, rankers: PackedLinear) -> None:
        padding = ((0, 0), (0, -rankers.weights.shape[1] % linear_product.WIDTH))
        self._count = len(rankers.weights)
        self._linear = linear_product.Linear(**asdict(rankers) | {"weights": np.pad(rankers.weights, padding)})

    def score(self, features: Float[np.ndarray, "C E"]) -> Float[np.ndarray, "C K"]:
        """Return ``(C, K)`` scores, finite by the checks of :class:`PackedLinear`."""
        out = np.empty((len(features), self._count), dtype=np.float32)
        self._linear.score(features, out)
        return out


def open_specialists(model: bytes, width: int, columns: int, name: str) -> Scorer:
    """Open the specialists' ONNX graph: compiled if they are linear, and equal to ONNX Runtime on probes.

    The arguments are those of :func:`listwright.ranking.compiled.packed_graph.open_packed`.

    Raises:
        ScoringError: if it is not such a graph, or its metadata hold no such rankers.
    """

    def compiled(text: str) -> tuple[Scorer, Float[np.ndarray, "R E"]]:
        rankers = PackedLinear.from_text(text)
        if rankers.width > width or len(rankers.weights) != columns:
            raise ScoringError(f"the packed rankers map {rankers.width} columns to {len(rankers.weights)}")
        return LinearScorer(rankers), _probes(rankers, width)

    built = None if linear_product is None else compiled
    return open_packed(model, width, columns, name, entry=METADATA, compile_packed=built)


def _probes(rankers: PackedLinear, width: int) -> Float[np.ndarray, "R E"]:
    """Return rows inside the bounds, at them and outside, with missing values, known and unknown categories."""
    rng = np.random.default_rng(0)
    rows = np.zeros((PROBES, width), dtype=np.float32)
    span = rankers.highs.astype(np.float64) - rankers.lows
    values = rankers.lows + span * rng.choice([-0.5, 0.0, 0.3, 0.8, 1.0, 1.5], (PROBES, len(span)))
    rows[:, rankers.columns] = np.clip(values, -LARGEST, LARGEST)
    sizes = np.diff(rankers.category_starts)
    rows[:, rankers.category_columns] = rng.integers(-1, sizes + 2, (PROBES, len(sizes)))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows
