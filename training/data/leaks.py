"""Columns with what a new list does not have: times, logged positions, labels, ids, query-level columns.

:class:`ListFacts` counts what a column shows of the lists that it stands in, on training queries. A finding is reported
only where nearly all of them show it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.features import UNKNOWN_CODE, Feature
from listwright.training.data.cells import TIMES_IN_NUMBERS, count_times
from listwright.training.data.dataset import Dataset, Remedies, Rounding
from listwright.training.data.shards.rows import columns

FEWEST = 10
"""Lists below which a finding may be chance."""

FEW_CATEGORIES = 20
"""Categories up to which a column may order by their mean labels: each then stands for many rows."""

FEWER_FAILURES = 0.25
"""Lists in which a column may put the wrong candidate first, for each in which a random order does."""

_MOST_NAMES = 20

_POSITION = re.compile(
    r"((result|item|list|display|displayed|shown|search|serp|impression|logged|click|clicked|slot|original)s?_)?"
    r"(position|pos|rank)"
)

_TIME_WORDS = frozenset({"time", "date", "timestamp", "datetime", "ts", "epoch"})

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

Column = Float[np.ndarray, " R"]

NEARLY = 0.95
"""Share of lists that must show something."""

MOSTLY = 0.99
"""Share of different values from which a column may be an id."""

_SHARE = 8
"""Lists for each of those that are looked at before all."""

REPEATS = 10
"""Repeats that chance must promise, for each that is there, before different whole numbers are ids."""

ID_FROM = 1e9
"""Different whole numbers as large as this in the middle are ids in any case."""

FIRST = 2**17
"""Rows in which numbers that are not whole are counted."""

FEW_STEPS = 2**12
"""Numbers of float32 in the range of a column, below which it is coarse."""

_EXACT = 2**24
"""Whole numbers up to this are themselves as float32."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A suspicious property of one column, or of several.

    Args:
        columns: Names of the columns.
        message: Finding, with its figure and the remedy.
    """

    columns: tuple[str, ...]
    message: str


def leaks(train: Dataset, remedies: Remedies, rounding: tuple[Rounding, ...] | None = ()) -> list[Finding]:
    """Return the findings to check before a fit, in the order of the columns; query-level columns come last, together.

    Args:
        train: Training queries.
        remedies: The remedies to name for a column.
        rounding: Rounded columns, from :attr:`listwright.training.data.dataset.Splits.rounding`.

    Convention: a column that looks like a time is called neither an id nor query-level. With fewer than ``FEWEST``
    lists, only names, categories and ``rounding`` are checked.
    """
    lists, findings, per_list = ListFacts(train), list[Finding](), dict[str, int]()
    coarse = {column.name: column for column in rounding or ()}
    for feature, column in zip(train.schema.features, columns(train.features), strict=True):
        name, leave_out = feature.name, remedies.exclusion(feature.name)
        texts = [_order(feature, column, train, lists, leave_out), _position(feature, column, lists, leave_out)]
        if (time := _time(feature, column, lists)) is not None:
            split_by = remedies.split_by.format(name)
            texts.insert(0, f"{time}. New queries lie beyond the times of training: {leave_out}{split_by}")
        elif name in coarse and coarse[name].looks_like_id:  # as float32 it may look like anything
            numbers = f"{coarse[name].values} different whole numbers in {coarse[name].rows} rows"
            texts.append(f"has {numbers}, more than float32 tells apart. It looks like an id: {leave_out}")
        else:
            texts.append(_row_id(feature, column, lists, leave_out))
            if _nearly(same := lists.count_same(column), lists.longer):
                per_list[name] = same
        findings += [Finding((name,), f"{name!r} {text}") for text in texts if text is not None]
        if name in coarse and not coarse[name].looks_like_id:
            findings.append(Finding((name,), f"{coarse[name]}; or {leave_out}"))
        if rounding is None and feature.kind == "numeric" and (steps := few_steps(column)) is not None:
            values = (
                f"has large numbers close to each other. Features are kept as float32, which has {steps:,} for them"
            )
            findings.append(Finding((name,), f"{name!r} {values}: subtract an offset before the fit and in requests"))
    if (about_rows := _row_order(lists)) is not None:
        findings.append(Finding((), about_rows))
    return [*findings, _query_level(per_list, lists, remedies)] if per_list else findings


def _nearly(count: float, of: int) -> bool:
    return of >= FEWEST and count >= NEARLY * of


def _time(feature: Feature, column: Column, lists: ListFacts) -> str | None:
    if feature.kind == "categorical":
        names = pl.Series(feature.categories, dtype=pl.String)
        times = count_times(names)
        reason = f"looks like a time: {times} of its {len(names)} values read as dates"
        return reason if len(names) and times >= NEARLY * len(names) else None
    words = [word.lower() for word in _WORD.findall(feature.name)]
    if _TIME_WORDS.isdisjoint(words) and words[1:][-1:] != ["at"]:
        return None
    for form, low, high in TIMES_IN_NUMBERS:
        count = lists.count_within(column, low, high)
        if count >= NEARLY * lists.all:
            return f"looks like a time: {form} in {count} of {lists.all} training queries"
    count, steps, distinct = lists.in_one_direction(column)
    if distinct < FEWEST or not _nearly(count, steps):
        return None
    return f"looks like a time: it goes one way in {count} of {steps} steps from one training query to the next"


def _order(feature: Feature, column: Column, train: Dataset, lists: ListFacts, leave_out: str) -> str | None:
    if lists.mixed < FEWEST:
        return None
    categorical = feature.kind == "categorical"
    remedy = f"It may be a copy of the label, or known only later: if new lists lack it, {leave_out}"
    if not categorical or len(feature.categories) <= FEW_CATEGORIES:
        count = int(lists.most(ListFacts.ordered, by_mean_label(column, train.labels) if categorical else column))
        if _nearly(count, lists.mixed):
            return f"alone orders {count} of {lists.mixed} training queries by their labels without a mistake. {remedy}"
    first = _highest_first(lists.chosen_shares(column) if categorical else column, lists)
    return None if first is None else f"alone {first}. {remedy}"


def _highest_first(column: Column, lists: ListFacts) -> str | None:
    count = int(lists.most(ListFacts.puts_first, column))
    failures, by_chance = lists.mixed - count, lists.mixed - lists.chance_first
    if not _nearly(count, lists.mixed) or failures > FEWER_FAILURES * by_chance:
        return None
    reason = f"puts a candidate with the highest label first in {count} of {lists.mixed} training queries"
    return f"{reason}, a random order in {lists.chance_first:.0f}"


def _row_order(lists: ListFacts) -> str | None:
    """Return a finding if the rows' order within a list reveals the labels; other tools may train on that order."""
    if lists.mixed < FEWEST:
        return None
    if _nearly(count := lists.ordered(lists.place), lists.mixed):
        fact = f"the order of the rows is that of the labels in {count} of {lists.mixed} training queries"
    elif (first := _highest_first(lists.place, lists)) is not None:
        fact = f"the order of the rows {first}"
    else:
        return None
    return (
        f"{fact}. Of a fit's figures only those of input_order use it, for equal scores share their ranks. Tools that "
        "keep row order among equal scores report too much: shuffle the rows of each query for them"
    )


def _position(feature: Feature, column: Column, lists: ListFacts, leave_out: str) -> str | None:
    if feature.kind == "categorical":
        return None
    remedy = f"The order that was logged is not known of new lists: {leave_out}"
    count, of = lists.count_numbered(column), f"of {lists.longer} training lists of two or more"
    if _nearly(count, lists.longer):
        return f"counts the candidates in row order in {count} {of}. {remedy}"
    if not _POSITION.fullmatch("_".join(word.lower() for word in _WORD.findall(feature.name))):
        return None
    count = lists.all_different(column)
    return f"is named like a position, and differs by candidate in {count} {of}. {remedy}"


def _row_id(feature: Feature, column: Column, lists: ListFacts, leave_out: str) -> str | None:
    if feature.kind == "numeric":
        rows, distinct = int((~np.isnan(column)).sum()), distinct_ids(column)
    else:
        rows, distinct = int((column != UNKNOWN_CODE).sum()), len(feature.categories)
        distinct = distinct if distinct >= MOSTLY * rows else 0
    if distinct == 0 or lists.longer < FEWEST:
        return None
    count = lists.longer if distinct == rows else lists.all_different(column)
    reason = f"has {distinct} different values in {rows} training rows, none of them twice in"
    return f"{reason} {count} of {lists.longer} lists of two or more. It looks like an id: {leave_out}"


def _query_level(per_list: Mapping[str, int], lists: ListFacts, remedies: Remedies) -> Finding:
    """Return one finding for all query-level columns, by lists with one value: there may be many, most intended."""
    names, fewest = list(per_list), min(per_list.values())
    several = len(names) > 1
    of = "all" if fewest == lists.longer else f"{fewest} or more of" if several else f"{fewest} of"
    has, it = ("have", "They") if several else ("has", "It")
    them, it_alone = ("them", "one of them") if several else ("it", "it")
    listed = ", ".join(map(repr, names[:_MOST_NAMES])) + (" …" if len(names) > _MOST_NAMES else "")
    text = (
        f"{listed} {has} one value per list in {of} {lists.longer} training lists of two or more. {it} cannot change "
        f"an order alone; trees, and a network's encoder and context, can use {them} together with other columns. "
        f"If {it_alone} is an id or a time of the query, {remedies.exclusion('NAME' if several else names[0])}"
    )
    return Finding(tuple(names), text)


class ListFacts:
    """The lists of a dataset, prepared for the checks of its columns.

    Args:
        data: Dataset of at least one query.

    Attributes:
        all: Number of lists.
        longer: Number of lists of two candidates or more.
        mixed: Number of lists with different labels.
        place: ``(R,)`` place of each row in its list, from 0.
        chance_first: Expected number of lists in which a random order puts a candidate of the highest label first.
    """

    def __init__(self, data: Dataset) -> None:
        self._starts, self._lengths = data.offsets[:-1], data.lengths
        self._longer = self._lengths > 1
        self.place = (np.arange(data.rows) - np.repeat(self._starts, self._lengths)).astype(np.float32)
        self._query_of = np.repeat(np.arange(len(data)), self._lengths)
        labels = data.labels
        mixed = np.maximum.reduceat(labels, self._starts) > np.minimum.reduceat(labels, self._starts)
        rows = np.flatnonzero(mixed[self._query_of])
        self._by_label = rows[np.lexsort((labels[rows], self._query_of[rows]))]
        query, label = self._query_of[self._by_label], labels[self._by_label]
        first_of_query = np.diff(query, prepend=-1) != 0
        self._levels = np.flatnonzero(first_of_query | (np.diff(label, prepend=-1) != 0))
        first_levels = np.flatnonzero(first_of_query[self._levels])
        self._steps = np.delete(np.arange(len(self._levels)), first_levels)
        self._step_starts = first_levels - np.arange(len(first_levels))
        highest = np.maximum.reduceat(labels, self._starts)
        self._mixed, self._best = mixed, labels == highest[self._query_of]
        self.chance_first = float(
            (np.add.reduceat(self._best.astype(np.int64), self._starts) / self._lengths)[mixed].sum()
        )
        self.all = len(data)
        self.longer = int(self._longer.sum())
        self.mixed = int(mixed.sum())
        self._first = None
        if few := len(data) // _SHARE:
            labels, offsets = data.labels[: data.offsets[few]], data.offsets[: few + 1]
            self._first = ListFacts(
                replace(data, labels=labels, offsets=offsets, qids=data.qids[:few], weights=None, goals={})
            )

    def most(self, count: Callable[[ListFacts, Column], float], column: Column) -> float:
        """Return a count over the lists with different labels, or a bound below :data:`NEARLY` all of them, where the
        first lists show it: that spares most columns the rest.
        """
        if self._first is not None:
            bound = count(self._first, column[: len(self._first.place)]) + self.mixed - self._first.mixed
            if not _nearly(math.ceil(bound), self.mixed):
                return bound
        return count(self, column)

    def ordered(self, column: Column) -> int:
        """Count the lists with different labels that the column alone orders perfectly, rising or falling, whichever is
        more.

        A missing value stands below or above all others, whichever does more.
        """
        sorted_by_label = column[self._by_label]
        missing = np.isnan(sorted_by_label)
        most = 0
        for filler in (-np.inf, np.inf) if missing.any() else (0.0,):
            values = np.where(missing, np.float32(filler), sorted_by_label)
            low, high = np.minimum.reduceat(values, self._levels), np.maximum.reduceat(values, self._levels)
            below = self._steps - 1
            for right in (low[self._steps] > high[below], high[self._steps] < low[below]):
                most = max(most, int(np.logical_and.reduceat(right, self._step_starts).sum()))
        return most

    def puts_first(self, column: Column) -> float:
        """Count the lists with different labels in which the column alone ranks a candidate of the highest label first.

        The largest value or the smallest stands first, a missing value below or above all others, whichever does more.
        Where several stand first, the share of those with the highest label counts.
        """
        missing = np.isnan(column)
        most = 0.0
        for filler in (-np.inf, np.inf) if missing.any() else (0.0,):
            values = np.where(missing, np.float32(filler), column)
            for first in (np.maximum, np.minimum):
                stands_first = values == first.reduceat(values, self._starts)[self._query_of]
                right = np.add.reduceat((stands_first & self._best).astype(np.int64), self._starts)
                of = np.add.reduceat(stands_first.astype(np.int64), self._starts)
                most = max(most, float((right / of)[self._mixed].sum()))
        return most

    def chosen_shares(self, codes: Column) -> Column:
        """Return, for each row's category, how often it has the list's highest label in the other half of the lists, so
        that a rare category does not reflect its own row; the share of all rows where that half lacks the category.
        """
        whole, half = codes.astype(np.int64), self._query_of % 2
        shares = np.empty(len(codes), dtype=np.float32)
        for part in (0, 1):
            counts = half != part
            rows = np.bincount(whole[counts], minlength=whole.max() + 1)
            best = np.bincount(whole[counts], weights=self._best[counts], minlength=len(rows))
            by_code = np.where(rows > 0, best / np.maximum(1, rows), self._best.mean())
            shares[~counts] = by_code[whole[~counts]]
        return shares

    def count_numbered(self, column: Column) -> int:
        """Count the lists of two or more in which the column numbers the rows from 0 or from 1, whichever is more."""
        return max(self._nowhere(column != self.place + first) for first in (0, 1))

    def all_different(self, column: Column) -> int:
        """Count the lists of two or more in which no value of the column repeats, missing ones aside."""
        order = np.lexsort((column, self._query_of))
        again = np.zeros(len(column), dtype=bool)
        again[1:] = (column[order][1:] == column[order][:-1]) & (self._query_of[1:] == self._query_of[:-1])
        return self._nowhere(again)

    def count_same(self, column: Column) -> int:
        """Count the lists of two or more in which the column is constant; 0 if all of these have one value."""
        values = np.where(np.isnan(column), np.finfo(np.float32).min, column)
        low, high = np.minimum.reduceat(values, self._starts), np.maximum.reduceat(values, self._starts)
        same = low[self._longer & (low == high)]
        return len(same) if len(same) and same.min() < same.max() else 0

    def count_within(self, column: Column, low: float, high: float) -> int:
        """Count the lists with a value of the column and none outside the bounds."""
        outside = np.logical_or.reduceat((column < low) | (column > high), self._starts)
        present = np.logical_or.reduceat(~np.isnan(column), self._starts)
        return int((present & ~outside).sum())

    def in_one_direction(self, column: Column) -> tuple[int, int, int]:
        """Count the steps between lists in which the first row's value does not fall (or rise), steps, and values."""
        first = column[self._starts].astype(np.float64)  # float32 may overflow below
        first = first[~np.isnan(first)]
        steps = np.diff(first)
        return max(int((steps >= 0).sum()), int((steps <= 0).sum())), len(steps), len(np.unique(first))

    def _nowhere(self, wrong: np.ndarray) -> int:
        """Count the lists of two or more without a row that is wrong."""
        return int((~np.logical_or.reduceat(wrong, self._starts))[self._longer].sum())


def by_mean_label(codes: Column, labels: Int[np.ndarray, " R"]) -> Column:
    """Return the mean label of each row's category."""
    whole = codes.astype(np.int64)
    means = np.bincount(whole, weights=labels) / np.maximum(1, np.bincount(whole))
    ordered: Column = means.astype(np.float32)[whole]
    return ordered


def distinct_ids(values: Column) -> int:
    """Count the distinct values if they are whole numbers that tell rows apart; else return 0."""
    present = values[~np.isnan(values)]
    if len(present) == 0 or (present != np.floor(present)).any():
        return 0
    span = float(present.max()) - float(present.min())
    if span + 1.0 < MOSTLY * len(present):  # spares the sort
        return 0
    distinct, middle = len(np.unique(present)), float(np.median(np.abs(present.astype(np.float64))))
    return distinct if _tell_rows_apart(distinct, len(present), span, middle) else 0


def rounding_of(column: pl.Series) -> Rounding | None:
    """Return what a column of numbers loses as float32, if many of its values become equal; else None.

    Of numbers that are not whole, the first :data:`FIRST` are looked at: of many more, float32 merges some in any case.
    """
    present = column.drop_nulls() if column.dtype.is_integer() else column.cast(pl.Float64).fill_nan(None).drop_nulls()
    numbers = present.cast(pl.Float64).to_numpy()
    if len(numbers) == 0 or (column.dtype.is_float() and (numbers.astype(np.float32) == numbers).all()):
        return None
    whole = bool((numbers == np.floor(numbers)).all())
    if whole and np.abs(numbers).max() <= _EXACT:
        return None
    present = present if whole else present.head(FIRST)
    distinct, left = present.n_unique(), present.cast(pl.Float32).n_unique()
    if left >= NEARLY * distinct:
        return None
    middle = float(np.median(np.abs(numbers)))
    is_id = whole and _tell_rows_apart(distinct, len(present), float(np.ptp(numbers)), middle)
    return Rounding(column.name, distinct, left, len(present), is_id)


def few_steps(column: Column) -> int | None:
    """Count the float32 numbers between a column's smallest and largest value, if its numbers are so large that float32
    no longer tells whole numbers apart, and these are few; else return None.
    """
    present = column[~np.isnan(column)].astype(np.float64)
    if len(present) == 0 or np.abs(present).max() <= _EXACT:
        return None
    steps = float(np.ptp(present)) / float(np.spacing(np.float32(np.abs(present).max())))
    return int(steps) + 1 if 1.0 <= steps < FEW_STEPS else None


def _tell_rows_apart(distinct: int, rows: int, span: float, middle: float) -> bool:
    """Return whether nearly all rows differ although repeats are likely in their span, or the numbers are large."""
    due = rows**2 / (2.0 * max(1.0, span))
    return distinct >= MOSTLY * rows and (due >= REPEATS * max(1, rows - distinct) or middle >= ID_FROM)
