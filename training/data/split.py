"""Splits by query, never by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from ranking.errors import DataError, RecipeError
from ranking.features import FeatureSchema
from training.data.dataset import Dataset, Splits, fit_schema
from training.data_config import Split


def by_query(dataset: Dataset, split: Split, *, fold: int, rng: np.random.Generator, source: str) -> Splits:
    """Deal the queries to equal parts after one shuffle; test on one, validate on the next, train on the rest.

    Raises:
        RecipeError: if there is no such fold.
        DataError: if there are fewer queries than parts, or a split cannot be learned from.
    """
    parts = split.parts
    check_fold(fold, parts, source)
    if len(dataset) < parts:
        raise DataError(source, f"{len(dataset)} queries cannot be split into {parts} parts: give more queries")
    part_of = rng.permutation(len(dataset)) % parts
    test, valid = fold - 1, fold % parts
    train = np.flatnonzero((part_of != test) & (part_of != valid))
    picked = [dataset.select(q) for q in (train, np.flatnonzero(part_of == valid), np.flatnonzero(part_of == test))]
    share = round(100 / parts)
    how = f"{source}, split by query {100 - 2 * share}/{share}/{share}, fold {fold} of {parts}"
    return checked(picked[0], picked[1], picked[2], how)


def check_fold(fold: int, folds: int, source: str) -> None:
    """Raise RecipeError unless ``1 <= fold <= folds``."""
    if not 1 <= fold <= folds:
        has = f"folds 1 to {folds}" if folds > 1 else "one split"
        raise RecipeError(f"{source} has {has}, there is no fold {fold}: change --fold")


def set_aside(train: Dataset, split: Split, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Training queries without, and validation queries with, one random part of them, in their old order.

    Raises:
        DataError: if there are fewer than two queries.
    """
    if len(train) < 2:
        raise DataError("training split", f"{len(train)} queries leave none to set aside for validation")
    order = rng.permutation(len(train))
    count = max(1, len(order) // split.parts)
    return train.select(np.sort(order[count:])), train.select(np.sort(order[:count]))


def apart(train: Dataset, valid: Dataset, test: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """A publisher's three files with ids that differ, even if each file numbers its queries from 1.

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
    if not shared or any(np.array_equal(one, two, equal_nan=True) for one, two in shared):
        return train, valid, test
    train, valid, test = (
        replace(split, qids=tuple(f"{name}:{qid}" for qid in split.qids)) for name, split in splits.items()
    )
    return train, valid, test


def checked(train: Dataset, valid: Dataset, test: Dataset, how: str) -> Splits:
    """The three splits under the schema that the training queries fix, if something can be learned from them.

    Raises:
        DataError: if a split is empty, a query stands in two of them, or training or validation has no query with two
            different labels.
    """
    named = {"training": train, "validation": valid, "test": test}
    for name, part in named.items():
        if len(part) == 0:
            raise DataError(how, f"the {name} split has no queries")
    for one, other in (("training", "validation"), ("training", "test"), ("validation", "test")):
        shared = sorted(set(named[one].qids) & set(named[other].qids))
        if shared:
            raise DataError(how, f"query {shared[0]!r} and {len(shared) - 1} more stand in both {one} and {other}")
    for name in ("training", "validation"):
        if not informative(named[name]):
            labels = ", ".join(map(str, np.unique(named[name].labels)))
            raise DataError(
                how,
                f"no {name} query has two candidates with different labels ({len(named[name])} queries, labels found: "
                f"{labels}): there is nothing to learn an order from; judge more queries, or split them otherwise "
                "(seed, fold, files)",
            )
    schema = fit_schema(train)
    sizes = ", ".join(f"{name} {len(part)} queries / {part.rows} candidates" for name, part in named.items())
    return Splits(_under(train, schema), _under(valid, schema), _under(test, schema), f"{how}: {sizes}")


def _under(dataset: Dataset, schema: FeatureSchema) -> Dataset:
    """``dataset.under(schema)``, but without copying gigabytes where there are no categories to recode."""
    return dataset.under(schema) if schema.categorical else replace(dataset, schema=schema)


def informative(dataset: Dataset) -> bool:
    """Whether any of its queries has two candidates with different labels."""
    return any(labels.min() < labels.max() for _, labels in dataset.lists())


def merged(parts: Sequence[Dataset]) -> Dataset:
    """The queries of several datasets of one schema, one after the other."""
    offsets = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return Dataset(
        features=np.concatenate([part.features for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        offsets=np.concatenate(offsets),
        qids=tuple(qid for part in parts for qid in part.qids),
        schema=parts[0].schema,
    )
