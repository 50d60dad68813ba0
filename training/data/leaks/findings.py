"""Columns that give away what a new list does not have: times, logged positions, labels, ids, query-level columns.

All is judged on training queries, and said only where nearly all of them show it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from listwright.ranking.features import UNKNOWN_CODE, Feature
from listwright.training.data.dataset import Dataset, Remedies, Rounding
from listwright.training.data.leaks.evidence import (
    MOSTLY,
    NEARLY,
    Column,
    ListFacts,
    by_mean_label,
    distinct_ids,
    few_steps,
)
from listwright.training.data.times import TIMES_IN_NUMBERS, count_times
from listwright.training.stored.rows import columns

FEWEST = 10
"""Lists below which it may be chance."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """What is odd about one column, or the same about several.

    Args:
        columns: their names.
        said: what was found, with its figure, and what to do about it.
    """

    columns: tuple[str, ...]
    said: str


def leaks(train: Dataset, remedies: Remedies, rounding: tuple[Rounding, ...] | None = ()) -> list[Finding]:
    """What a person should look at before a fit, in the order of the columns; query-level columns come last, together.

    Args:
        train: training queries.
        remedies: what that person can do about a column.
        rounding: of :attr:`listwright.training.data.dataset.Splits.rounding`.

    Convention: a column that looks like a time is called neither an id nor query-level. With fewer than ``FEWEST``
    lists, only what names, categories and ``rounding`` say is said.
    """
    lists, found, per_list = ListFacts(train), list[Finding](), list[str]()
    coarse = {one.name: one for one in rounding or ()}
    for feature, column in zip(train.schema.features, columns(train.features), strict=True):
        name, leave_out = feature.name, remedies.without(feature.name)
        said = [_order(feature, column, train, lists, leave_out), _position(feature, column, lists, leave_out)]
        if (time := _time(feature, column, lists)) is not None:
            split_by = remedies.split_by.format(name)
            said.insert(0, f"{time}. New queries lie beyond the times of training: {leave_out}{split_by}")
        elif name in coarse and coarse[name].looks_like_id:  # as float32 it may look like anything
            numbers = f"{coarse[name].values} different whole numbers in {coarse[name].rows} rows"
            said.append(f"has {numbers}, more than float32 tells apart. It looks like an id: {leave_out}")
        else:
            said.append(_row_id(feature, column, lists, leave_out))
            if lists.longer >= FEWEST and lists.same_in_all(column):
                per_list.append(name)
        found += [Finding((name,), f"{name!r} {text}") for text in said if text is not None]
        if name in coarse and not coarse[name].looks_like_id:
            found.append(Finding((name,), f"{coarse[name]}; or {leave_out}"))
        if rounding is None and feature.kind == "numeric" and (steps := few_steps(column)) is not None:
            values = (
                f"has large numbers close to each other. Features are kept as float32, which has {steps:,} for them"
            )
            found.append(Finding((name,), f"{name!r} {values}: subtract an offset before the fit and in requests"))
    if (about_rows := _row_order(lists)) is not None:
        found.append(Finding((), about_rows))
    return [*found, _query_level(per_list, lists, remedies)] if per_list else found


def _nearly(count: int, of: int) -> bool:
    return of >= FEWEST and count >= NEARLY * of


def _time(feature: Feature, column: Column, lists: ListFacts) -> str | None:
    if feature.kind == "categorical":
        names = pl.Series(feature.categories, dtype=pl.String)
        times = count_times(names)
        found = f"looks like a time: {times} of its {len(names)} values read as dates"
        return found if len(names) and times >= NEARLY * len(names) else None
    words = [word.lower() for word in _WORD.findall(feature.name)]
    if _TIME_WORDS.isdisjoint(words) and words[1:][-1:] != ["at"]:
        return None
    for form, low, high in TIMES_IN_NUMBERS:
        count = lists.within(column, low, high)
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
        count = lists.ordered(by_mean_label(column, train.labels) if categorical else column)
        if _nearly(count, lists.mixed):
            return f"alone orders {count} of {lists.mixed} training queries by their labels without a mistake. {remedy}"
    first = _highest_first(lists.chosen_shares(column) if categorical else column, lists)
    return None if first is None else f"alone {first}. {remedy}"


def _highest_first(column: Column, lists: ListFacts) -> str | None:
    count = int(lists.puts_first(column))
    failures, by_chance = lists.mixed - count, lists.mixed - lists.chance_first
    if not _nearly(count, lists.mixed) or failures > FEWER_FAILURES * by_chance:
        return None
    found = f"puts a candidate with the highest label first in {count} of {lists.mixed} training queries"
    return f"{found}, a random order in {lists.chance_first:.0f}"


def _row_order(lists: ListFacts) -> str | None:
    """Figures of a fit do not use it, other people's may."""
    if lists.mixed < FEWEST:
        return None
    if _nearly(count := lists.ordered(lists.place), lists.mixed):
        found = f"the order of the rows is that of the labels in {count} of {lists.mixed} training queries"
    elif (first := _highest_first(lists.place, lists)) is not None:
        found = f"the order of the rows {first}"
    else:
        return None
    return (
        f"{found}. Of a fit's figures only those of input_order use it, for equal scores share their ranks. Tools that "
        "keep row order among equal scores report too much: shuffle the rows of each query for them"
    )


def _position(feature: Feature, column: Column, lists: ListFacts, leave_out: str) -> str | None:
    if feature.kind == "categorical":
        return None
    remedy = f"The order that was logged is not known of new lists: {leave_out}"
    count, of = lists.counted(column), f"of {lists.longer} training lists of two or more"
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
    found = f"has {distinct} different values in {rows} training rows, none of them twice in"
    return f"{found} {count} of {lists.longer} lists of two or more. It looks like an id: {leave_out}"


def _query_level(names: list[str], lists: ListFacts, remedies: Remedies) -> Finding:
    """One line for all of them: there may be many, and most are meant."""
    several = len(names) > 1
    has, it = ("have", "They") if several else ("has", "It")
    them, one = ("them", "one of them") if several else ("it", "it")
    shown = ", ".join(map(repr, names[:_MOST_NAMES])) + (" …" if len(names) > _MOST_NAMES else "")
    said = (
        f"{shown} {has} one value per list in all {lists.longer} training lists of two or more. {it} cannot change an "
        f"order alone; trees, and a network's encoder and context, can use {them} together with other columns. "
        f"If {one} is an id or a time of the query, {remedies.without('NAME' if several else names[0])}"
    )
    return Finding(tuple(names), said)
