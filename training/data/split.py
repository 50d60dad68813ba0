"""Splits by query, never by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.cells import Time, time_text
from listwright.training.data.dataset import Dataset, Splits, fit_schema
from listwright.training.data.shards.rows import join_rows
from listwright.training.data.sources import SPLITS
from listwright.training.recipe.data import Split


def by_query(dataset: Dataset, split: Split, *, fold: int, rng: np.random.Generator, source: str) -> Splits:
    """Shuffle the queries once, and deal them to equal parts; test on one, validate on the next, train on the rest.

    Raises:
        RecipeError: if there is no such fold.
        DataError: if there are fewer queries than parts, or a split cannot be learned from.
    """
    parts = split.parts
    check_fold(fold, parts, source)
    _check_enough(dataset, parts, source)
    part_of = rng.permutation(len(dataset)) % parts
    test, valid = fold - 1, fold % parts
    train = np.flatnonzero((part_of != test) & (part_of != valid))
    picked = [dataset.select(q) for q in (train, np.flatnonzero(part_of == valid), np.flatnonzero(part_of == test))]
    how = f"{source}, split by query {_shares(parts)}, fold {fold} of {parts}"
    return checked(picked[0], picked[1], picked[2], how, in_place=True)


def by_time(dataset: Dataset, times: Sequence[Time], split: Split, *, source: str, column: str) -> Splits:
    """Train on the oldest queries, validate on newer ones, test on the newest, in the shares of a random split.

    Queries of equal time stay together: a border that would part them moves to the nearer end of their run, and
    further only where a split would be empty. Within a split, queries keep their order.

    Args:
        dataset: Queries in any order.
        times: ``N`` times of the queries.
        split: Split into equal parts, the newest of which tests.
        source, column: Names of the queries' source and of its column of times.

    Raises:
        DataError: if there are fewer queries than parts, fewer than three different times, or a split cannot be
            learned from.
    """
    parts = split.parts
    _check_enough(dataset, parts, source)
    moments, run_of, sizes = np.unique(np.array(times), return_inverse=True, return_counts=True)
    if len(moments) < 3:
        times_there = " and ".join(time_text(moment) for moment in moments.tolist())
        need = "training, validation and test need three different ones; name a finer time, or split otherwise"
        raise DataError(source, f"the first rows of all queries are of {times_there}: {need}", column=column)
    ends = np.cumsum(sizes)  # queries up to each moment
    targets = len(dataset) * np.array([parts - 2, parts - 1]) / parts
    first = int(np.argmin(np.abs(ends[:-2] - targets[0])))
    second = first + 1 + int(np.argmin(np.abs(ends[first + 1 : -1] - targets[1])))
    split_of = np.searchsorted([first, second], run_of)
    train, valid, test = (dataset.select(np.flatnonzero(split_of == n)) for n in range(3))
    borders = [time_text(moment) for moment in moments[[first, first + 1, second, second + 1]].tolist()]
    how = f"{source}, split by time ({column}) {_shares(parts)}, train until {borders[0]}, "
    how += f"valid from {borders[1]} until {borders[2]}, test from {borders[3]}"
    return checked(train, valid, test, how, in_place=True)


def by_name(
    dataset: Dataset, names: Sequence[str], split: Split, *, rng: np.random.Generator, source: str, column: str
) -> Splits:
    """Assign each query to the split that a column of the source names.

    Args:
        dataset: Queries in any order.
        names: ``N`` names of splits: ``train``, ``valid`` or ``test``.
        split: Split with the number of parts; one part is set aside for validation where the column names no query for
            it.
        rng: Generator that picks that part.
        source, column: Names of the queries' source and of its column of splits.

    Raises:
        DataError: if there is no training or test query, or a split cannot be learned from.
    """
    for name in ("train", "test"):
        if name not in names:
            there = " and ".join(map(repr, dict.fromkeys(names)))
            raise DataError(
                source, f"no row says {name!r}, only {there}: name training and test queries", column=column
            )
    of = np.array(names)
    train, valid, test = (dataset.select(np.flatnonzero(of == name)) for name in SPLITS)
    how = f"{source}, split by its column {column}"
    if len(valid) == 0:
        train, valid = set_aside(train, split, rng)
        how += f" (no row of it says valid: {len(valid)} training queries were set aside)"
    return checked(train, valid, test, how, in_place=True)


def check_fold(fold: int, folds: int, source: str) -> None:
    """Raise RecipeError unless ``1 <= fold <= folds``."""
    if not 1 <= fold <= folds:
        has = f"folds 1 to {folds}" if folds > 1 else "one split"
        raise RecipeError(f"{source} has {has}, there is no fold {fold}: change --fold")


def _check_enough(dataset: Dataset, parts: int, source: str) -> None:
    if len(dataset) < parts:
        raise DataError(source, f"{len(dataset)} queries cannot be split into {parts} parts: give more queries")


def _shares(parts: int) -> str:
    share = round(100 / parts)
    return f"{100 - 2 * share}/{share}/{share}"


def set_aside(train: Dataset, split: Split, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Split one random part off the training queries for validation; both keep their order.

    Raises:
        DataError: if there are fewer than two queries.
    """
    if len(train) < 2:
        raise DataError("training split", f"{len(train)} queries leave none to set aside for validation")
    order = rng.permutation(len(train))
    count = max(1, len(order) // split.parts)
    return train.select(np.sort(order[count:])), train.select(np.sort(order[:count]))


def distinguish_ids(train: Dataset, valid: Dataset, test: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """Make the ids of a publisher's three files differ, even if each file numbers its queries from 1.

    Ids are prefixed with the split's name where two splits share some and no query that shares its id shares its
    candidates too. A query that truly stands in two splits keeps its id, for :func:`checked` to refuse.
    """
    splits = {"train": train, "valid": valid, "test": test}
    places = [{qid: n for n, qid in enumerate(split.qids)} for split in splits.values()]
    shared = [
        (split.features[split.slice(place[qid])], other.features[other.slice(there[qid])])
        for (split, place), (other, there) in combinations(zip(splits.values(), places, strict=True), 2)
        for qid in place.keys() & there.keys()
    ]
    if not shared or any(np.array_equal(first, second, equal_nan=True) for first, second in shared):
        return train, valid, test
    train, valid, test = (
        replace(split, qids=tuple(f"{name}:{qid}" for qid in split.qids)) for name, split in splits.items()
    )
    return train, valid, test


def checked(train: Dataset, valid: Dataset, test: Dataset, how: str, *, in_place: bool = False) -> Splits:
    """Encode three splits with the schema that the training queries fix; raise DataError if nothing can be learned from
    them. With ``in_place``, arrays of features are changed instead of copied.

    Raises:
        DataError: if a split is empty, a query stands in two of them, training or validation has no query with two
            different labels, or one of the three none with two different values of a goal.
    """
    parts = Splits(train, valid, test, how).parts
    for name, part in parts.items():
        if len(part) == 0:
            raise DataError(how, f"the {name} split has no queries")
    for name, other in combinations(parts, 2):
        shared = sorted(set(parts[name].qids) & set(parts[other].qids))
        if shared:
            raise DataError(how, f"query {shared[0]!r} and {len(shared) - 1} more stand in both {name} and {other}")
    for name in ("training", "validation"):
        if not informative(parts[name]):
            labels = ", ".join(map(str, np.unique(parts[name].labels)))
            alone = int((parts[name].lengths == 1).sum())
            remedy = "judge more queries, or split them otherwise (seed, fold, files)"
            if alone > len(parts[name]) / 2:
                remedy = (
                    f"{alone} queries have one row, as in a wide table, where a row has all options of one chooser. "
                    "Make it long, a row for each option, as docs/data.md shows; or name another column of query ids"
                )
            raise DataError(
                how,
                f"no {name} query has two candidates with different labels ({len(parts[name])} queries, labels found: "
                f"{labels}): there is nothing to learn an order from; {remedy}",
            )
    for name, part in parts.items():
        for goal, values in part.goals.items():
            low, high = (end.reduceat(values, part.offsets[:-1]) for end in (np.minimum, np.maximum))
            if np.array_equal(low, high):
                fault = f"no {name} query has two candidates with different values: there is nothing to order by"
                raise DataError(how, fault, column=goal)
    schema = fit_schema(train)
    sizes = ", ".join(f"{name} {len(part)} queries / {part.rows} candidates" for name, part in parts.items())
    whole = Splits(train, valid, test, f"{how}: {sizes}")
    # without categories to recode, gigabytes need not be copied
    return whole.with_schema(schema, in_place=in_place) if schema.categorical else whole.described_by(schema)


def informative(dataset: Dataset) -> bool:
    """Return whether any query has two candidates with different labels."""
    return any(labels.min() < labels.max() for labels in dataset.label_lists())


def merged(parts: Sequence[Dataset]) -> Dataset:
    """Return the queries of several datasets of one schema, one after the other."""
    offsets = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return Dataset(
        features=join_rows([part.features for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        offsets=np.concatenate(offsets),
        qids=tuple(qid for part in parts for qid in part.qids),
        schema=parts[0].schema,
        weights=None if parts[0].weights is None else np.concatenate([part.weights for part in parts]),
        goals={name: np.concatenate([part.goals[name] for part in parts]) for name in parts[0].goals},
    )
