"""List-relative columns: how a numeric feature of a candidate compares with the same feature of the others.

A tree that sees a price alone cannot tell a cheap offer from a cheap query. These columns tell it: they are computed
here for training and serving alike, behind the columns of the feature schema. Requests never hold them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

from listwright.ranking.features import FLOAT32_MAX, Feature, FeatureSchema, Quantiles

relative_columns: Any
try:
    relative_columns = import_module("listwright.ranking.compiled.relative_columns")
except ImportError:  # there was no C compiler
    relative_columns = None

RelativeKind = Literal["z", "rank"]

KINDS: tuple[RelativeKind, ...] = ("z", "rank")

EPSILON = 1e-6
"""Share of a feature's scale in training that counts as no spread at all."""

SOURCE = np.dtype([("feature", "i4"), ("z", "i4"), ("rank", "i4"), ("unused", "i4"), ("floor", "f8")])
"""A feature, and which columns of the output hold its z-score and its rank; -1 for none."""

log = logging.getLogger(__name__)


class RelativeColumn(BaseModel):
    """One list-relative column.

    Args:
        feature: the numeric feature that is compared.
        kind: ``z``, the z-score within the list; or ``rank``, the mid-rank within the list as a fraction in [0, 1].
        scale: spread of the feature over the training rows, in its own unit; see :data:`EPSILON`.
        quantiles: of the column over the training rows, at :data:`listwright.ranking.features.QUANTILE_LEVELS`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature: str
    kind: RelativeKind
    scale: Annotated[float, Field(ge=0.0, le=2 * FLOAT32_MAX)] = 0.0
    quantiles: Quantiles | None = None

    @property
    def name(self) -> str:
        """The column's name in a widened schema, and for people."""
        return f"{self.feature} ({self.kind} in list)"


class RelativeColumns:
    """Widens feature matrices by list-relative columns. Threads may share it.

    Definition, over the n values of a feature that a list has (missing ones are left out, and stay missing):
        z_i = (x_i - mean) / sqrt(variance + (EPSILON * scale)^2), or 0 where all values are equal
        rank_i = (values below x_i + (values equal to x_i - 1) / 2) / (n - 1), or 0.5 where n is 1

    Both follow a permutation of the list to the bit, because sums run over sorted values. ``rank`` does not change
    under an increasing map of the feature within the list, and ``z`` not under a positive affine one, up to rounding
    and as long as the spread is far above ``EPSILON * scale``.

    Args:
        columns: in the order of the output.
        schema: of the matrices that are widened.

    Raises:
        ValueError: if a column's feature is not in the schema or is categorical, or a column is named twice, or its
            name is too long or a feature's.

    ``schema`` is that of the widened matrices: the schema's features, then one numeric feature per column.
    """

    def __init__(self, columns: Sequence[RelativeColumn], schema: FeatureSchema) -> None:
        self.columns = tuple(columns)
        width, sources = len(schema), dict[str, list[float]]()
        for place, column in enumerate(columns, start=width):
            d = schema.index.get(column.feature)
            if d is None:
                raise ValueError(f"relative column {column.name!r}: the schema has no feature {column.feature!r}")
            if d in schema.categorical:
                raise ValueError(f"relative column {column.name!r}: {column.feature!r} is categorical, not numeric")
            source = sources.setdefault(column.feature, [d, -1, -1, 0, 0.0])
            if source[1 + KINDS.index(column.kind)] >= 0:
                raise ValueError(f"relative column {column.name!r} is named twice")
            source[1 + KINDS.index(column.kind)] = place
            if column.kind == "z":
                source[4] = (EPSILON * column.scale) ** 2
        self._sources = np.array([tuple(source) for source in sources.values()], dtype=SOURCE)
        missing = {feature.name: feature.missing_in_training for feature in schema.features}
        more = (Feature(name=c.name, missing_in_training=missing[c.feature], quantiles=c.quantiles) for c in columns)
        self.schema = FeatureSchema(features=(*schema.features, *more))

    def widened(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, "L W"]:
        """Return ``(L, D + M)``: the features of one whole list, and their list-relative columns.

        Args:
            features: ``(L, D)`` float32, NaN = missing; no value is infinite.
        """
        length, width = features.shape
        out = np.empty((length, width + len(self.columns)), dtype=np.float32)
        out[:, :width] = features
        _fastest()(np.ascontiguousarray(features, dtype=np.float32), self._sources, out)
        return out


def write(features: Float[np.ndarray, "L D"], sources: np.ndarray, out: Float[np.ndarray, "L W"]) -> None:
    """Write the columns in NumPy: the reference of ``ranking.compiled.relative_columns``, which is compiled.

    Args:
        features: ``(L, D)`` float32, NaN = missing.
        sources: of :data:`SOURCE`.
        out: ``(L, W)``; only the columns that the sources name are written.
    """
    for feature, z, rank, _, floor in sources.tolist():
        column = features[:, feature]
        present = ~np.isnan(column)
        values = column[present].astype(np.float64) + 0.0  # both zeros are one
        if z >= 0:
            out[:, z] = np.nan
            out[present, z] = _z(values, floor)
        if rank >= 0:
            out[:, rank] = np.nan
            out[present, rank] = _rank(values)


def _z(values: Float[np.ndarray, " present"], floor: float) -> Float[np.ndarray, " present"]:
    ranked = np.sort(values)
    if len(values) == 0 or ranked[0] == ranked[-1]:
        return np.zeros(len(values))
    mean = np.cumsum(ranked)[-1] / len(ranked)  # one after the other, unlike sum()
    apart = ranked - mean
    spread = np.sqrt(np.cumsum(apart * apart)[-1] / len(ranked) + floor)
    scores: Float[np.ndarray, " present"] = (values - mean) / spread
    return scores


def _rank(values: Float[np.ndarray, " present"]) -> Float[np.ndarray, " present"]:
    if len(values) == 1:
        return np.array([0.5])
    ranked = np.sort(values)
    below = np.searchsorted(ranked, values, side="left")
    up_to = np.searchsorted(ranked, values, side="right")
    ranks: Float[np.ndarray, " present"] = (below + up_to - 1) / (2.0 * (len(values) - 1))
    return ranks


def _agrees() -> bool:
    """Return whether the compiled twin equals the reference to the bit, on many lengths, ties and missing values."""
    rng = np.random.default_rng(0)
    sources = np.array([(0, 4, 5, 0, 0.0), (1, 6, -1, 0, 1e-3), (2, -1, 7, 0, 0.0), (3, 8, 9, 0, 1e-12)], dtype=SOURCE)
    for length in (1, 2, 3, 31, 32, 33, 200):
        scale = np.array([1.0, 1e30, 1e-30, 1.0])
        features = (rng.normal(size=(length, 4)) * scale).astype(np.float32)
        features[:, 3] = rng.integers(-2, 3, length) * -1.0
        features[rng.random(features.shape) < 0.1] = np.nan
        compiled, expected = (np.zeros((length, 10), dtype=np.float32) for _ in range(2))
        relative_columns.write(features, sources, compiled)
        write(features, sources, expected)
        if not np.array_equal(compiled, expected, equal_nan=True):
            return False
    return True


@cache
def _fastest() -> Callable[..., None]:
    """Return the compiled twin, if it is built and agrees; the log says where it does not."""
    if relative_columns is None:
        log.warning("list-relative columns are computed by NumPy, several times slower: no C compiler built them here")
        return write
    if _agrees():
        compiled: Callable[..., None] = relative_columns.write
        return compiled
    log.error("list-relative columns are computed by NumPy, several times slower: the compiled ones differ from it")
    return write
