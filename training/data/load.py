"""From a recipe and its sources to three splits: where all data come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import FeatureSchema, mostly_unknown
from listwright.training.data import split
from listwright.training.data.constant import dropped_note
from listwright.training.data.dataset import Remedies, Splits, categories_in
from listwright.training.data.leaks.findings import leaks
from listwright.training.data.letor import layout
from listwright.training.data.room import Shards, stays_on_disk
from listwright.training.data.synthetic import planted
from listwright.training.data.tables import table, tafeng
from listwright.training.progress import SILENT, Progress
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import LetorData, SyntheticData, TableData


def load(recipe: Recipe, sources: Sequence[str], *, shards: Shards = "never", progress: Progress = SILENT) -> Splits:
    """Read the data of a recipe and split them by query.

    Args:
        recipe: its ``data``, ``fold`` and ``seed``.
        sources: what ``--data`` named; empty for synthetic data.
        shards: whether rows stay on disk: ``always``, ``never``, or ``auto``, where they may not fit into memory.
        progress: told how far the reading of long files has come.

    Raises:
        RecipeError: if the sources do not fit the recipe; says what to pass.
        DataError: if they cannot be read; names file, line and column.
    """
    rng = np.random.default_rng(recipe.seed)
    match recipe.data:
        case SyntheticData() as spec:
            if sources:
                raise RecipeError(f"recipe {recipe.name!r} makes its own data: leave out --data {sources[0]}")
            dataset, _ = planted.generate(spec, rng)
            source = f"synthetic data, seed {recipe.seed}"
            splits = split.by_query(dataset, spec.split, fold=recipe.fold, rng=rng, source=source)
            return replace(splits, remedies=Remedies("change [data] of the recipe"))
        case LetorData() as spec:
            _need(recipe, sources)
            on_disk = stays_on_disk(sources, shards, progress)
            splits = layout.load(spec, sources, fold=recipe.fold, rng=rng, progress=progress, on_disk=on_disk)
            return replace(splits, remedies=Remedies("leave it out of the text"))
        case TableData() as spec:
            _need(recipe, sources)
            if spec.made_of == "tafeng":
                sources = [str(tafeng.table_of(source, progress)) for source in sources]
            on_disk = stays_on_disk(sources, shards, progress)
            return table.load(spec, sources, fold=recipe.fold, rng=rng, on_disk=on_disk, progress=progress)


def _need(recipe: Recipe, sources: Sequence[str]) -> None:
    if not sources:
        raise RecipeError(f"recipe {recipe.name!r} needs --data PATH ({recipe.about})")


def describe(schema: FeatureSchema) -> str:
    """One line for a person who checks that columns were understood: kinds, categories, missing values."""
    numeric = [feature.name for feature in schema.features if feature.kind == "numeric"]
    categorical = [f"{f.name}: {len(f.categories)}" for f in schema.features if f.kind == "categorical"]
    missing = sum(feature.missing_in_training for feature in schema.features)
    parts = [f"{len(numeric)} numeric features ({_shortened(numeric)})"]
    if categorical:
        parts.append(f"{len(categorical)} categorical ({_shortened(categorical)} values)")
    parts.append(f"missing values in {missing} of them" if missing else "no missing values")
    if defaults := [f"{f.name} = {f.default}" for f in schema.features if f.default is not None]:
        parts.append(f"defaults {_shortened(defaults)}")
    return ", ".join(parts)


def announce(recipe: Recipe, splits: Splits, progress: Progress) -> tuple[str, ...]:
    """Say what was read, and what a person should look at before anything is fitted; the latter is returned."""
    progress.say(splits.how, heading=recipe.name)
    progress.say(describe(splits.train.schema))
    notes = tuple(doubtful(splits))
    for note in notes:
        progress.remark(note)
    return notes


def data_facts(splits: Splits, notes: Sequence[str]) -> list[str]:
    """The same for the facts of a suite's page."""
    return [f"The first fold: {splits.how}.", *(f"Pointed out: {note}." for note in notes)]


def doubtful(splits: Splits) -> list[str]:
    """What a person should look at: columns that were dropped, leaks, ids, text, a test split that measures nothing."""
    train, test, remedies = splits.train, splits.test, splits.remedies
    found = leaks(train, remedies, splits.rounding)
    told = {finding.columns for finding in found}
    dropped = dropped_note(splits)
    doubts = [*splits.notes, *([] if dropped is None else [dropped]), *(finding.said for finding in found)]
    many = {f.name: len(f.categories) for f in train.schema.features if len(f.categories) > max(20, train.rows // 4)}
    doubts += [
        f"{name!r} has {values} values in {train.rows} training rows: if it is an id or free text, "
        f"{remedies.without(name)}"
        for name, values in many.items()
        if (name,) not in told
    ]
    for name, part in (("training", train), ("validation", splits.valid), ("test", test)):
        unknown = mostly_unknown(categories_in(part), part.schema)
        doubts += [f"in the {name} queries, {said}" for column, said in unknown.items() if column not in many]
    if not split.informative(test):
        doubts.append(
            f"no test query ({len(test)} queries) has two candidates with different labels: the test figures say what "
            "a convention gives such queries, and measure no ranker"
        )
    return doubts


def measurable(splits: Splits) -> Splits:
    """The same splits, if rankers can be told apart on the test queries.

    Raises:
        DataError: if no test query has two candidates with different labels: every mean would be a convention's.
    """
    if not split.informative(splits.test):
        raise DataError(
            splits.how,
            f"no test query ({len(splits.test)} queries) has two candidates with different labels: rankers cannot be "
            "compared on it; take other --folds, or split otherwise",
        )
    return splits


def _shortened(names: list[str], limit: int = 8) -> str:
    return ", ".join(names) if len(names) <= limit else f"{', '.join(names[: limit - 1])}, … {names[-1]}"
