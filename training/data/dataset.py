"""Ranking data: one flat feature matrix, in memory or on disk, and where each query's rows begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError
from listwright.ranking.features import QUANTILE_LEVELS, UNKNOWN_CODE, Feature, FeatureSchema, count_categories
from listwright.training.console.command import in_list
from listwright.training.data.shards.rows import CHUNK_ROWS, Features, chunks, columns, map_rows, take_rows
from listwright.training.data.shards.shards import Stored

MOST_WEIGHT = 1e9
"""Largest weight of a row, in units of the mean training query."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The candidate lists of N queries, R rows in all, rows of one query together and in input order.

    Args:
        features: ``(R, D)`` float32 in schema order, NaN = missing; categorical columns hold codes. An array, or
            :class:`listwright.training.data.shards.rows.Rows`, which are read on access.
        labels: ``(R,)`` int32 relevance labels, 0 = irrelevant.
        offsets: ``(N + 1,)`` int64; query n owns rows ``offsets[n] : offsets[n + 1]``.
        qids: ``N`` query ids, as the source spells them, each once.
        schema: Names, kinds and categories of the columns.
        gains: Gain of label 0, 1 and so on in a metric; None for 2^y - 1.
        weights: ``(R,)`` weight of each row; a query counts as the mean of its rows. None: all alike.
        goals: ``(R,)`` values from 0 of each goal besides the label, by name.
    """

    features: Features
    labels: Int[np.ndarray, " R"]
    offsets: Int[np.ndarray, " O"]
    qids: tuple[str, ...]
    schema: FeatureSchema
    gains: tuple[float, ...] | None = None
    weights: Float[np.ndarray, " R"] | None = None
    goals: Mapping[str, Float[np.ndarray, " R"]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.qids)

    @property
    def rows(self) -> int:
        """R, the number of candidates over all queries."""
        return len(self.labels)

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        """``(N,)`` list length of each query."""
        return np.diff(self.offsets)

    @property
    def query_weights(self) -> Float[np.ndarray, " N"] | None:
        """``(N,)`` how much each query counts: the mean over its rows; None: all alike."""
        if self.weights is None:
            return None
        means: Float[np.ndarray, " N"] = np.add.reduceat(self.weights, self.offsets[:-1]) / self.lengths
        return means

    def slice(self, n: int) -> slice:
        """Return the rows of query ``n``."""
        return slice(int(self.offsets[n]), int(self.offsets[n + 1]))

    def lists(self) -> Iterator[tuple[Float[np.ndarray, "L D"], Int[np.ndarray, " L"]]]:
        """Yield features and labels of each query, as views; rows on disk are read some lists at a time."""
        if isinstance(self.features, np.ndarray):
            for n in range(len(self)):
                rows = self.slice(n)
                yield self.features[rows], self.labels[rows]
            return
        first = 0
        while first < len(self):
            begin = self.offsets[first]
            last = max(first + 1, int(np.searchsorted(self.offsets, begin + CHUNK_ROWS, side="right")) - 1)
            held = self.features[begin : self.offsets[last]]
            for n in range(first, last):
                rows = self.slice(n)
                yield held[rows.start - begin : rows.stop - begin], self.labels[rows]
            first = last

    def label_lists(self) -> Iterator[Int[np.ndarray, " L"]]:
        """Yield the labels of each query, as views; no features are read."""
        for n in range(len(self)):
            yield self.labels[self.slice(n)]

    def rows_of(self, queries: Sequence[int] | Int[np.ndarray, " M"]) -> Int[np.ndarray, " S"]:
        """Return the row numbers of some queries, in the order given."""
        if len(queries) == 0:
            return np.empty(0, dtype=np.int64)
        return np.concatenate([np.arange(self.offsets[n], self.offsets[n + 1]) for n in queries])

    def select(self, queries: Sequence[int] | Int[np.ndarray, " M"]) -> Dataset:
        """Return some queries as a dataset of their own (a copy; of rows on disk a view), in the order given."""
        rows = self.rows_of(queries)
        lengths = self.lengths[np.asarray(queries, dtype=np.int64)]
        return replace(
            self,
            features=take_rows(self.features, rows),
            labels=self.labels[rows],
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            qids=tuple(self.qids[int(n)] for n in queries),
            weights=None if self.weights is None else self.weights[rows],
            goals={name: values[rows] for name, values in self.goals.items()},
        )

    def with_gains(self, gains: tuple[float, ...] | None, name: str) -> Dataset:
        """Return the same rows with other gains.

        Raises:
            DataError: if a label has none; ``name`` names their owner in the error.
        """
        highest = int(self.labels.max()) if self.rows else 0
        if gains is not None and highest >= len(gains):
            raise DataError(
                name,
                f"label {highest} has no gain: gains = {list(gains)} ends at label {len(gains) - 1}; give "
                f"{highest + 1} numbers, one for each label from 0",
            )
        return replace(self, gains=gains)

    def narrowed(self, columns: Int[np.ndarray, " columns"]) -> Dataset:
        """Return some columns as a dataset of their own (a copy; of rows on disk a view), in the order given."""
        schema = FeatureSchema(features=tuple(self.schema.features[column] for column in columns))
        features = map_rows(self.features, len(schema), lambda rows: np.take(rows, columns, axis=1))
        return replace(self, features=features, schema=schema)

    def with_schema(self, schema: FeatureSchema, *, in_place: bool = False) -> Dataset:
        """Return the same rows encoded with another schema's categories; values that it lacks become unknown.

        Training data fixes the schema; validation and test data are read under it, as the service would.
        With ``in_place``, an array of features is changed instead of copied.
        """
        if schema.names != self.schema.names:
            raise ValueError(f"schemas name different columns: {schema.names} and {self.schema.names}")
        codes: dict[int, Float[np.ndarray, " codes"]] = {}
        for column in schema.categorical:
            old, new = self.schema.features[column], schema.features[column]
            table = [UNKNOWN_CODE, *(new.code(category) for category in old.categories)]
            codes[column] = np.array(table, dtype=np.float32)

        def recoded(rows: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M D"]:
            encoded = rows if in_place else rows.copy()
            for column, table in codes.items():
                old = rows[:, column]
                encoded[:, column] = np.where(old == UNKNOWN_CODE, old, table[old.astype(np.int64)])
            return encoded

        return replace(self, features=map_rows(self.features, len(schema), recoded), schema=schema)


def categories_in(data: Dataset) -> Int[np.ndarray, "2 J"]:
    """Count, per categorical column, the distinct categories and those of them that the schema does not know."""
    columns = list(data.schema.categorical)
    counts: Int[np.ndarray, "2 J"] = np.zeros((2, len(columns)), dtype=np.int64)
    for _, rows in chunks(data.features) if columns else ():
        counts += count_categories(rows[:, columns])
    return counts


def dataset_of(shards: Stored, schema: FeatureSchema) -> Dataset:
    """Return the dataset of a folder of shards."""
    return Dataset(
        shards.features, shards.labels, shards.offsets, shards.qids, schema, weights=shards.weights, goals=shards.goals
    )


def fit_schema(train: Dataset) -> FeatureSchema:
    """Return the schema that the training split fixes: categories, missing values, quantiles.

    Categories that occur in no training row are left out, so that at serving time they are unknown.
    """
    pairs = zip(train.schema.features, columns(train.features), strict=True)
    return FeatureSchema(features=tuple(_fit_feature(feature, column) for feature, column in pairs))


def _fit_feature(feature: Feature, column: Float[np.ndarray, " R"]) -> Feature:
    if feature.kind == "categorical":
        codes = np.unique(column.astype(np.int64))
        return Feature(
            name=feature.name,
            kind="categorical",
            categories=tuple(feature.categories[code - 1] for code in codes if code != UNKNOWN_CODE),
            missing_in_training=bool((codes == UNKNOWN_CODE).any()),
        )
    present = column[~np.isnan(column)]
    quantiles = tuple(float(q) for q in np.quantile(present, QUANTILE_LEVELS)) if len(present) else None
    return Feature(name=feature.name, missing_in_training=len(present) < len(column), quantiles=quantiles)


class Rounding(NamedTuple):
    """A column of numbers many of which are equal as float32, the type of features.

    Args:
        name: Name of the column.
        values: Number of different values.
        left: Number of different values as float32.
        rows: Number of rows with a value.
        looks_like_id: Whether its values are whole numbers that tell rows apart.
    """

    name: str
    values: int
    left: int
    rows: int
    looks_like_id: bool

    def __str__(self) -> str:
        return (
            f"{self.name!r} has {self.values:,} different values in {self.rows:,} rows. Features are kept as float32, "
            f"which tells {self.left:,} of them apart: subtract an offset before the fit and in requests, such as the "
            "start of the day from a time in seconds, or the smallest price from a price"
        )


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies for a column that is read wrongly; ``{}`` stands for its name.

    Args:
        leave_out: Way to leave it out.
        split_by: Continuation of it: the way to split queries by it as a time; empty where they cannot be.
        keep_constant: Way to keep columns with one value as features.
    """

    leave_out: str = "leave it out with --ignore {}"
    split_by: str = ""
    keep_constant: str = "drop_constant = false under [data] of a recipe"

    def exclusion(self, name: str) -> str:
        """Return how to exclude the column of that name."""
        return self.leave_out.format(in_list(name))


@dataclass(frozen=True, slots=True)
class Splits:
    """Train, validation and test queries; no query stands in two of them.

    Args:
        train, valid, test: Queries of each split, all under the schema that ``train`` fixed.
        how: One line for the report: which queries went where, and why.
        remedies: Remedies in the terms of the data's source: options of a command, or arguments.
        rounding: Columns that lost much when they were rounded; None where they were read as float32.
        dropped: Columns of the source that became no features: where they stood (from 0) and their names, in order.
        notes: Further notes on the source for the user.
    """

    train: Dataset
    valid: Dataset
    test: Dataset
    how: str
    remedies: Remedies = Remedies()
    rounding: tuple[Rounding, ...] | None = None
    dropped: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Dataset]:
        """The three splits, by the names of their queries in texts."""
        return {"training": self.train, "validation": self.valid, "test": self.test}

    def map(self, change: Callable[[Dataset], Dataset]) -> Splits:
        """Return the three splits, each changed by a function."""
        return replace(self, train=change(self.train), valid=change(self.valid), test=change(self.test))

    def with_schema(self, schema: FeatureSchema, *, in_place: bool = False) -> Splits:
        """Return the same splits encoded with another schema's categories, see :meth:`Dataset.with_schema`."""
        return self.map(lambda part: part.with_schema(schema, in_place=in_place))

    def with_gains(self, gains: tuple[float, ...] | None) -> Splits:
        """Return the same splits with other gains, see :meth:`Dataset.with_gains`."""
        train, valid, test = (part.with_gains(gains, f"{name} labels") for name, part in self.parts.items())
        return replace(self, train=train, valid=valid, test=test)

    def with_normalised_weights(self) -> Splits:
        """Return the same splits with weights whose mean over the training queries is 1: only their ratios count.

        A split whose weights are all equal to that mean has none: it is fitted and measured as data without weights.

        Raises:
            DataError: if no query of a split has a weight above 0, or one is beyond all measure.
        """
        if self.train.weights is None:
            return self
        for name, part in self.parts.items():
            if not np.any(part.weights):
                raise DataError(self.how, f"all weights of the {name} queries are 0: none of them counts; raise some")
        largest = self.train.weights.max()  # first of all: sums of huge weights overflow, and tiny ones vanish
        with np.errstate(over="ignore", under="ignore"):  # reported below
            splits = self.map(lambda part: replace(part, weights=part.weights / largest))
            mean = splits.train.query_weights.mean()  # type: ignore[union-attr]
            splits = splits.map(lambda part: replace(part, weights=part.weights / mean))
        for name, part in splits.parts.items():
            weights = part.weights
            assert weights is not None
            if not weights.any():
                fault = f"the weights of the {name} queries vanish beside those of the training queries"
                raise DataError(self.how, fault)
            if not weights.max() <= MOST_WEIGHT:  # or NaN
                fault = f"the largest weight of the {name} queries is more than {MOST_WEIGHT:g} times the mean of the"
                raise DataError(self.how, f"{fault} training queries: lower it")
        return splits.map(lambda part: part if np.any(part.weights != 1.0) else replace(part, weights=None))

    def described_by(self, schema: FeatureSchema) -> Splits:
        """Return the same splits under a schema of the same columns and categories with other descriptions."""
        return self.map(lambda part: replace(part, schema=schema))
