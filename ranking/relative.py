"""List-relative columns: how a candidate compares with the others of its list.

A tree that sees a price alone cannot tell a cheap offer from a cheap query, nor the only offer of a carrier from one of
many. These columns tell it: they are computed here for training and serving alike, behind the columns of the feature
schema. Requests never hold them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, Field, model_validator

from listwright.ranking.features import FLOAT32_MAX, UNKNOWN_CODE, Feature, FeatureSchema, Quantiles

relative_columns: Any
try:
    relative_columns = import_module("listwright.ranking.compiled.relative_columns")
except ImportError:  # there was no C compiler
    relative_columns = None

RelativeKind = Literal["z", "rank", "count", "share", "distinct", "rank_within", "above_lowest_within"]

NUMBER_KINDS: tuple[RelativeKind, ...] = ("z", "rank")
"""Kinds of columns of one numeric feature."""

CATEGORY_KINDS: tuple[RelativeKind, ...] = ("count", "share", "distinct")
"""Kinds of columns of one categorical feature."""

WITHIN_KINDS: tuple[RelativeKind, ...] = ("rank_within", "above_lowest_within")
"""Kinds of columns of a numeric feature among the candidates that share a category."""

KINDS = (*NUMBER_KINDS, *CATEGORY_KINDS, *WITHIN_KINDS)

EPSILON = 1e-6
"""Share of a feature's scale in training that counts as no spread at all."""

SOURCE = np.dtype(
    [
        ("feature", "i4"),
        ("within", "i4"),
        *((kind, "i4") for kind in (*NUMBER_KINDS, *CATEGORY_KINDS, "above")),
        ("floor", "f8"),
    ]
)
"""A feature, the categorical feature within whose values it is compared (-1 for the whole list), and the columns of the
output by kind (-1 for none). ``rank`` is also that of ``rank_within``, and ``above`` that of ``above_lowest_within``.
"""

FIELDS: dict[RelativeKind, str] = {"rank_within": "rank", "above_lowest_within": "above"}
"""Field of :data:`SOURCE` of a kind that is not a field's own name."""

log = logging.getLogger(__name__)


class RelativeColumn(BaseModel):
    """One list-relative column.

    Args:
        feature: Feature that is compared.
        kind: Kind of the column. Of a numeric feature: ``z``, the z-score within the list, or ``rank``, the mid-rank
            within the list as a fraction in [0, 1]. Of a categorical feature: ``count``, the number of candidates of
            the list that have the same value, ``share``, that number as a fraction of the list, or ``distinct``, the
            number of values in the list. Of a numeric feature among the candidates with the same value of ``within``:
            ``rank_within``, the mid-rank, or ``above_lowest_within``, the difference to the lowest number.
        within: Categorical feature of the last two kinds; None for the others.
        scale: Spread of the feature over the training rows, in its own unit; see :data:`EPSILON`.
        quantiles: Quantiles of the column over the training rows, at
            :data:`listwright.ranking.features.QUANTILE_LEVELS`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature: str
    kind: RelativeKind
    within: str | None = None
    scale: Annotated[float, Field(ge=0.0, le=2 * FLOAT32_MAX)] = 0.0
    quantiles: Quantiles | None = None

    @model_validator(mode="after")
    def _has_a_group(self) -> RelativeColumn:
        if (self.kind in WITHIN_KINDS) != (self.within is not None):
            raise ValueError(f"relative column of kind {self.kind!r}: within is {self.within!r}")
        return self

    @property
    def label(self) -> str:
        """What the column says of its feature, for people."""
        return self.kind if self.within is None else f"{self.kind.replace('_', ' ')} {self.within}"

    @property
    def name(self) -> str:
        """The column's name in a widened schema, and for people."""
        return f"{self.feature} ({self.label}{' in list' if self.within is None else ''})"


class RelativeColumns:
    """List-relative columns, by which feature matrices are widened. Threads may share it.

    Definition, over the n values of a numeric feature that a list has (missing ones are left out, and stay missing):
        z_i = (x_i - mean) / sqrt(variance + (EPSILON * scale)^2), or 0 where all values are equal
        rank_i = (values below x_i + (values equal to x_i - 1) / 2) / (n - 1), or 0.5 where n is 1

    Over the L candidates of a list, with c_i the value of a categorical feature, where a candidate whose value is
    unknown or missing has a value of its own, as one in training that no other candidate shares:
        count_i = candidates with the value c_i, and share_i = count_i / L
        distinct = number of different known values in the list, for every candidate
        rank_within: rank_i over the candidates with the value c_i alone
        above_lowest_within: x_i - min x over the candidates with the value c_i

    All follow a permutation of the list to the bit, because sums run over sorted values. Ranks do not change under an
    increasing map of the feature within the list, and ``z`` not under a positive affine one, up to rounding and as long
    as the spread is far above ``EPSILON * scale``.

    Args:
        columns: List-relative columns, in the order of the output.
        schema: Schema of the matrices that are widened.

    Raises:
        ValueError: if a column's feature is not in the schema or of the wrong kind, or a column is named twice, or its
            name is too long or a feature's.

    ``schema`` is that of the widened matrices: the schema's features, then one numeric feature per column.
    """

    def __init__(self, columns: Sequence[RelativeColumn], schema: FeatureSchema) -> None:
        self.columns = tuple(columns)
        width, sources = len(schema), dict[tuple[str, str | None], dict[str, float]]()
        missing = {f.name: f.missing_in_training and f.kind == "numeric" for f in schema.features}
        for place, column in enumerate(columns, start=width):
            feature = _place_of(column, column.feature, schema, categorical=column.kind in CATEGORY_KINDS)
            within = -1 if column.within is None else _place_of(column, column.within, schema, categorical=True)
            source = sources.setdefault((column.feature, column.within), {"feature": feature, "within": within})
            if source.setdefault(FIELDS.get(column.kind, column.kind), place) != place:
                raise ValueError(f"relative column {column.name!r} is named twice")
            if column.kind == "z":
                source["floor"] = (EPSILON * column.scale) ** 2
        none = dict.fromkeys(SOURCE.names or (), -1) | {"floor": 0.0}
        self._sources = np.array([tuple((none | source).values()) for source in sources.values()], dtype=SOURCE)
        more = (
            Feature(
                name=column.name,
                missing_in_training=missing[column.feature],
                quantiles=column.quantiles,
            )
            for column in columns
        )
        self.schema = FeatureSchema(features=(*schema.features, *more))

    def widened(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, "L W"]:
        """Return ``(L, D + M)``: the features of one whole list, and their list-relative columns.

        Args:
            features: ``(L, D)`` float32 features, NaN = missing; no value is infinite.
        """
        length, width = features.shape
        out = np.empty((length, width + len(self.columns)), dtype=np.float32)
        out[:, :width] = features
        _fastest()(np.ascontiguousarray(features, dtype=np.float32), self._sources, out)
        return out


def _place_of(column: RelativeColumn, name: str, schema: FeatureSchema, *, categorical: bool) -> int:
    place = schema.index.get(name)
    if place is None:
        raise ValueError(f"relative column {column.name!r}: the schema has no feature {name!r}")
    if (place in schema.categorical) != categorical:
        kinds = ("numeric, not categorical", "categorical, not numeric")
        raise ValueError(f"relative column {column.name!r}: {name!r} is {kinds[not categorical]}")
    return place


def write(features: Float[np.ndarray, "L D"], sources: np.ndarray, out: Float[np.ndarray, "L W"]) -> None:
    """Write the columns in NumPy: the reference of ``ranking.compiled.relative_columns``, which is compiled.

    Args:
        features: ``(L, D)`` float32 features, NaN = missing; categories as codes.
        sources: Array of :data:`SOURCE`, one entry for each column to write.
        out: ``(L, W)`` matrix to write into; only the columns that the sources name are written.
    """
    for source in sources:
        column = features[:, source["feature"]]
        if max(source[kind] for kind in CATEGORY_KINDS) >= 0:
            _write_category(column, source, out)
            continue
        groups = [np.arange(len(column))] if source["within"] < 0 else _groups(features[:, source["within"]])
        present = ~np.isnan(column)
        for kind in (*NUMBER_KINDS, "above"):
            if source[kind] >= 0:
                out[:, source[kind]] = np.nan
                for group in groups:
                    rows = group[present[group]]
                    values = column[rows].astype(np.float64) + 0.0  # both zeros are one
                    out[rows, source[kind]] = _z(values, source["floor"]) if kind == "z" else _BY_KIND[kind](values)


def _groups(codes: Float[np.ndarray, " L"]) -> list[Int[np.ndarray, " G"]]:
    """Return the places of the candidates with each code; one with an unknown code is alone."""
    group_numbers = np.where(codes > UNKNOWN_CODE, codes.astype(np.float64), -1.0 - np.arange(len(codes)))
    order = np.argsort(group_numbers, kind="stable")
    groups: list[Int[np.ndarray, " G"]] = np.split(order, np.flatnonzero(np.diff(group_numbers[order])) + 1)
    return groups


def _write_category(codes: Float[np.ndarray, " L"], source: np.void, out: Float[np.ndarray, "L W"]) -> None:
    groups = _groups(codes)
    own = np.empty(len(codes))
    for group in groups:
        own[group] = len(group)
    values = {"count": own, "share": own / len(codes), "distinct": len(np.unique(codes[codes > UNKNOWN_CODE]))}
    for kind, value in values.items():
        if source[kind] >= 0:
            out[:, source[kind]] = value


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


def _above(values: Float[np.ndarray, " present"]) -> Float[np.ndarray, " present"]:
    above: Float[np.ndarray, " present"] = np.minimum(values - values.min(), FLOAT32_MAX) if len(values) else values
    return above


_BY_KIND = {"rank": _rank, "above": _above}


def _agrees() -> bool:
    """Return whether the compiled twin equals the reference to the bit, on many lengths, ties and missing values."""
    rng = np.random.default_rng(0)
    #                    feature within  z rank count share distinct above floor
    sources = np.array(
        [
            (0, -1, 5, 6, -1, -1, -1, -1, 0.0),
            (1, -1, 7, -1, -1, -1, -1, -1, 1e-3),
            (2, -1, -1, 8, -1, -1, -1, -1, 0.0),
            (3, -1, 9, 10, -1, -1, -1, -1, 1e-12),
            (4, -1, -1, -1, 11, 12, 13, -1, 0.0),
            (3, 4, -1, 14, -1, -1, -1, 15, 0.0),
        ],
        dtype=SOURCE,
    )
    for length in (1, 2, 3, 31, 32, 33, 200):
        scale = np.array([1.0, 1e30, 1e-30, 1.0, 1.0])
        features = (rng.normal(size=(length, 5)) * scale).astype(np.float32)
        features[:, 3] = rng.integers(-2, 3, length) * -1.0
        features[:, :4][rng.random((length, 4)) < 0.1] = np.nan
        features[:, 4] = rng.integers(0, 4, length)
        compiled, expected = (np.zeros((length, 16), dtype=np.float32) for _ in range(2))
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
