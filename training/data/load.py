"""Reading data: from a recipe and its sources to three splits.

Before the reading, an estimate says whether rows fit into memory. After it, notes say what a person should look at,
columns with one value in all training rows are left out, and features get their defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Int

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import FLOAT32_MAX, Feature, FeatureSchema, mostly_unknown, spelled
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data import split
from listwright.training.data.dataset import Remedies, Splits, categories_in
from listwright.training.data.leaks import leaks
from listwright.training.data.letor import layout
from listwright.training.data.shards.rows import Features
from listwright.training.data.sources import path_of
from listwright.training.data.synthetic import planted
from listwright.training.data.tables import public, table
from listwright.training.data.tables.frames import listed
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import Default, Defaults, LetorData, SyntheticData, TableData

_ROWS = 65_536
"""Rows that are compared at a time: most columns vary already in the first of them."""

_MOST_NAMES = 8

Shards = Literal["auto", "always", "never"]
"""Whether rows stay on disk: ``auto`` where they may not fit into memory."""

COPIES = 4
"""Largest number of copies of the rows in memory while they are read and split."""

_TEXT = 0.75
"""Bytes of float32 for each byte of text: about 8 characters a value; CSV is text in memory before it is numbers."""

_PACKED = 4.0
"""How much longer compressed text is than its file."""

_PACKED_ENDINGS = (".gz", ".zip", ".tgz", ".bz2", ".xz")


def load(recipe: Recipe, sources: Sequence[str], *, shards: Shards = "never", progress: Progress = SILENT) -> Splits:
    """Read the data of a recipe and split them by query.

    Args:
        recipe: Recipe whose ``data``, ``fold`` and ``seed`` are read.
        sources: Values of ``--data``; empty for synthetic data.
        shards: Whether rows stay on disk: ``always``, ``never``, or ``auto``, where they may not fit into memory.
        progress: Report of the reading of long files.

    Raises:
        RecipeError: if the sources do not fit the recipe; with the options to pass.
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
            if spec.made_of is not None:
                sources = [str(public.table_of(spec.made_of, source, progress)) for source in sources]
            on_disk = stays_on_disk(sources, shards, progress)
            return table.load(spec, sources, fold=recipe.fold, rng=rng, on_disk=on_disk, progress=progress)


def _need(recipe: Recipe, sources: Sequence[str]) -> None:
    if not sources:
        raise RecipeError(f"recipe {recipe.name!r} needs --data PATH ({recipe.about})")


def describe(schema: FeatureSchema) -> str:
    """Summarise in one line how columns were read: kinds, categories, missing values."""
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
    """Print what was read, and notes on what to check before anything is fitted; return the notes."""
    progress.say(splits.how, heading=recipe.name)
    progress.say(describe(splits.train.schema))
    notes = tuple(doubtful(splits))
    for note in notes:
        progress.remark(note)
    return notes


def doubtful(splits: Splits) -> list[str]:
    """Return notes on what to check: dropped columns, leaks, ids, text, a test split that measures nothing."""
    train, test, remedies = splits.train, splits.test, splits.remedies
    findings = leaks(train, remedies, splits.rounding)
    explained = {finding.columns for finding in findings}
    dropped = dropped_note(splits)
    doubts = [*splits.notes, *([] if dropped is None else [dropped]), *(finding.message for finding in findings)]
    many = {f.name: len(f.categories) for f in train.schema.features if len(f.categories) > max(20, train.rows // 4)}
    doubts += [
        f"{name!r} has {values} values in {train.rows} training rows: if it is an id or free text, "
        f"{remedies.exclusion(name)}"
        for name, values in many.items()
        if (name,) not in explained
    ]
    for name, part in splits.parts.items():
        unknown = mostly_unknown(categories_in(part), part.schema)
        doubts += [f"in the {name} queries, {note}" for column, note in unknown.items() if column not in many]
    if not split.informative(test):
        doubts.append(
            f"no test query ({len(test)} queries) has two candidates with different labels: the test figures say what "
            "a convention gives such queries, and measure no ranker"
        )
    return doubts


def _shortened(names: list[str], limit: int = 8) -> str:
    return ", ".join(names) if len(names) <= limit else f"{', '.join(names[: limit - 1])}, … {names[-1]}"


def without_constant(splits: Splits, needed: Collection[str] = ()) -> Splits:
    """Return the splits without the columns that are constant in all training rows; missing counts as a value.

    Args:
        splits: Splits under the schema that the training queries fix.
        needed: Names of columns that stay, whatever they hold.

    Returns:
        Copies of the other columns; :attr:`Splits.dropped` names those that are left out.

    Raises:
        DataError: if no column would be left.
    """
    names = splits.train.schema.names
    columns = [int(column) for column in _constant(splits.train.features) if names[column] not in needed]
    if not columns:
        return splits
    if len(columns) == len(names):
        fault = f"each feature ({_listed(names)}) has one value, or none, in all {splits.train.rows} training rows"
        raise DataError(splits.how, f"{fault}: nothing tells candidates apart; give columns that vary")
    varying = np.delete(np.arange(len(names)), columns)
    dropped = tuple((column, names[column]) for column in columns)
    return replace(splits.map(lambda part: part.narrowed(varying)), dropped=dropped)


def dropped_note(splits: Splits) -> str | None:
    """Return a note on the dropped columns; None if there are none."""
    if not splits.dropped:
        return None
    names = [name for _, name in splits.dropped]
    has, is_no, it = ("has", "is no feature", "it") if len(names) == 1 else ("have", "are no features", "them")
    fact = f"{_listed(names)} {has} one value, or none, in all {splits.train.rows} training rows"
    return (
        f"{fact}, and {is_no} of the bundle. Where callers go on sending {it}, serve with "
        f"LISTWRIGHT_UNKNOWN_FEATURES=ignore; {splits.remedies.keep_constant} keeps {it}"
    )


def _constant(features: Features) -> Int[np.ndarray, " columns"]:
    left, first = np.arange(features.shape[1]), features[0]
    for start in range(0, len(features), _ROWS):
        if len(left) == 0:
            break
        rows = features[start : start + _ROWS, left]
        same = (rows == first[left]) | (np.isnan(rows) & np.isnan(first[left]))
        left = left[same.all(axis=0)]
    return left


def _listed(names: Collection[str]) -> str:
    listed = ", ".join(repr(name) for name in list(names)[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"


def stays_on_disk(sources: Sequence[str], shards: Shards, progress: Progress) -> bool:
    """Return whether to read some sources into shards on disk.

    Args:
        sources: Values of ``--data``.
        shards: Value of ``--shards``; under ``auto``, the decision for shards is printed.
    """
    if shards != "auto":
        return shards == "always"
    needed, there = COPIES * sum(bytes_of(path_of(source)) for source in sources), available()
    if there is None or needed <= there:
        return False
    progress.say(
        f"Rows stay on disk: in memory they may need {needed / 2**30:.1f} GiB, and {there / 2**30:.1f} GiB are free "
        "(--shards never reads them all the same)"
    )
    return True


def bytes_of(path: Path) -> int:
    """Estimate the float32 bytes of a file's or folder's values; 0 for one that cannot be read."""
    try:
        if path.is_dir():
            return sum(bytes_of(file) for file in path.rglob("*") if file.is_file())
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            rows = pl.scan_parquet(path, glob=False)
            return 4 * len(rows.collect_schema()) * int(rows.select(pl.len()).collect().item())
        size = path.stat().st_size
    except (OSError, pl.exceptions.PolarsError):
        return 0  # reading it raises the error
    return int(size * _TEXT * (_PACKED if path.name.lower().endswith(_PACKED_ENDINGS) else 1.0))


def available() -> int | None:
    """Return the free bytes of memory, by the system and by the container's limit; None where neither is known."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    groups = Path("/sys/fs/cgroup")
    try:
        most, current = ((groups / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current"))
        limits += [int(most) - int(current)] if most != "max" else []
    except (OSError, ValueError):
        return min(limits, default=None)  # no container, or one that tells no limit
    return min(limits, default=None)


def with_defaults(schema: FeatureSchema, defaults: Defaults) -> FeatureSchema:
    """Return the schema with the defaults of its features.

    Args:
        schema: Schema of the training split.
        defaults: Default values by feature name. Text is a number where the feature is numeric; a category is spelled
            as in a request, so 2, 2.0 and "2" are one.

    Raises:
        RecipeError: if there is no such feature, a category is none that training saw, or a number does not fit
            float32; names the feature, the value, and what is possible.
    """
    features = list(schema.features)
    for name, value in defaults:
        column = schema.index.get(name)
        if column is None:
            near = difflib.get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            there = f"{hint}there are {listed(list(schema.names))}"
            raise RecipeError(f"the default {name} = {value}: {name!r} is no feature; {there}")
        features[column] = _with_default(features[column], value)
    return FeatureSchema(features=tuple(features))


def _with_default(feature: Feature, value: Default) -> Feature:
    default: float | str | None
    if feature.kind == "categorical":
        default, known = spelled(value), list(feature.categories)
        if default not in known:
            saw = f"a category that training never saw; it saw {listed(known) or 'none'}"
            raise RecipeError(f"the default of feature {feature.name!r} is {value!r}, {saw}")
    else:
        default = _number(value)
        if default is None:
            fits = f"expected a number from {-FLOAT32_MAX:.4g} to {FLOAT32_MAX:.4g} (float32)"
            raise RecipeError(f"the default of feature {feature.name!r} is {value!r}: {fits}")
    return Feature.model_validate({**feature.model_dump(), "default": default})


def _number(value: Default) -> float | None:
    """Convert a default to a number; None if it is none, or is none of float32."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # float() takes both
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= FLOAT32_MAX else None
