"""Judged rows, as ``listwright join`` writes them: a row for each shown candidate; metadata name the features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars.selectors import binary

from listwright.ranking.errors import DataError
from listwright.ranking.plain_file import files_below, from_json
from listwright.training.data.sources import check_exists, path_of
from listwright.training.data.tables.frames import UNREADABLE, is_parquet, listed
from listwright.training.recipe.data import TableData

KEY = "listwright.judged"
"""Metadata of the Parquet file: JSON of the feature columns, and the columns of query ids, labels and times."""

JUDGED = "*.parquet"
"""Pattern of the names of files in a folder of judged rows."""

NUMBERS = {"position": pl.Int64, "label": pl.Float64, "swapped": pl.Boolean}
"""Types of the columns of numbers: other tools write them as others where values are missing."""


def judged_metadata(
    features: Sequence[str],
    *,
    qid: str,
    label: str,
    time: str,
    prefix: str = "",
    only_seen: bool = False,
    unshown: bool = False,
) -> dict[str, str]:
    """Return the metadata of a file of judged rows.

    Args:
        features: Names of the feature columns, in order.
        qid, label, time: Names of the columns of query id, label and time of serving.
        prefix: Prefix of the names of all columns but the features.
        only_seen: Whether shown candidates that nobody saw are missing.
        unshown: Whether candidates that were not shown have rows, without place and label.
    """
    facts = {"features": list(features), "qid": qid, "label": label, "time": time, "prefix": prefix, "seen": only_seen}
    return {KEY: json.dumps(facts | {"unshown": unshown})}


def with_judged_columns(spec: TableData, sources: Sequence[str]) -> TableData:
    """Configure the reading of judged rows without options: their files name the query id, label and features.

    Args:
        spec: Specification from the recipe and the command line, which has priority.
        sources: Tables; judged rows are recognised by their metadata.

    Returns:
        The same specification where the first table holds no judged rows. Otherwise columns
        that are neither features nor named are ignored.

    Raises:
        DataError: if there are rows without labels.
    """
    metadata = read_judged_metadata(path_of(sources[0]), labelled=True) if sources else None
    if metadata is None:
        return spec
    features, split = metadata["features"], spec.split
    if split.by == "time" and split.column is None:
        split = split.model_copy(update={"column": metadata["time"]})
    qid, label = spec.qid or metadata["qid"], spec.label or metadata["label"]
    known_columns = {*features, qid, label, spec.weight, split.column, *spec.goals, *spec.categorical, *spec.ignore}
    columns = pl.read_parquet_schema(path_of(sources[0]))
    others = tuple(name for name in columns if name not in known_columns)
    return spec.model_copy(update={"qid": qid, "label": label, "split": split, "ignore": (*spec.ignore, *others)})


def read_judged_metadata(path: Path, *, labelled: bool = False) -> dict[str, Any] | None:
    """Return what a file of judged rows says about its columns; None for another file.

    Raises:
        DataError: if every row must be ``labelled``, and candidates that were not shown have rows.
    """
    if not path.is_file() or not is_parquet(path):
        return None
    try:
        text = pl.read_parquet_metadata(path).get(KEY)
        facts = None if text is None else from_json(text)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None  # reading the table raises the error
    if labelled and isinstance(facts, dict) and facts.get("unshown"):
        raise DataError(path, "has candidates that were not shown, without a label: join again without --unshown")
    return facts if isinstance(facts, dict) and {"features", "qid", "label", "time"} <= facts.keys() else None


def scan_judged(path: Path, columns: Iterable[str], *, rules: Sequence[str] | None = None) -> pl.LazyFrame:
    """Return judged rows of shown candidates as a lazy frame.

    Args:
        path: Parquet file of judged rows, or a folder of them.
        columns: Names of the needed columns, without a prefix.
        rules: Actions of rules, as ``listwright join`` writes them, that a list may have; None for any.

    Returns:
        A lazy frame of some of the columns, by these names. Behind the name of a bundle of several goals stand the
        weights that ordered the list.

    Raises:
        DataError: if there is nothing to read, a column is missing or holds something else, the files are no Parquet of
            the same columns, or shown candidates are missing; names the remedy.
    """
    check_exists(str(path))
    files = files_below(path, [JUDGED])
    if not files or not is_parquet(files[0]):
        raise DataError(path, "is no Parquet file, and no folder with one: give the rows that listwright join writes")
    rows = _scan_files(files)
    there = rows.collect_schema().names()
    metadata = read_judged_metadata(files[0]) or {}
    if metadata.get("seen", False):
        raise DataError(path, "lacks shown candidates that nobody saw: join again, without seen in the file of labels")
    prefix = metadata.get("prefix", "")
    names = {name: prefix + name if prefix + name in there else name for name in columns}
    missing = [name for name, column in names.items() if column not in there]
    if missing:
        raise DataError(
            path,
            f"has no column {' and no column '.join(map(repr, missing))}: give the rows that listwright join writes; "
            f"it has {listed(there)}",
        )
    if not collected(rows.select(pl.len()), path).item():
        raise DataError(path, "has no rows")
    rows = _with_numbers(rows, names, path)
    if rules is not None and (column := prefix + "rules") in there:
        rows = rows.filter(pl.col(column).is_null() | pl.col(column).is_in(list(rules)))
    if "bundle" in names and (weights := prefix + "weights") in there:
        served_by = pl.col(names["bundle"])
        rows = rows.with_columns(pl.coalesce(pl.concat_str(served_by, pl.lit(" "), weights), served_by))
    if (place := prefix + "position") in there:
        rows = rows.filter(pl.col(place).is_not_null())
    return rows.select(pl.col(column).alias(name) for name, column in names.items())


def _scan_files(files: Sequence[Path]) -> pl.LazyFrame:
    first: set[str] | None = None
    try:
        for file in files:
            columns = {f"{name!r} of type {kind}" for name, kind in pl.read_parquet_schema(file).items()}
            first = columns if first is None else first
            if columns != first:
                here, there = (listed(sorted(names)) or "nothing" for names in (columns - first, first - columns))
                raise DataError(file, f"has {here} where {files[0]} has {there}: give files of the same columns")
        return pl.scan_parquet([*files], glob=False).with_columns(binary().cast(pl.String))
    except UNREADABLE as error:
        raise DataError(file, f"cannot be read as Parquet: {_first_line(error)}") from error


def _with_numbers(rows: pl.LazyFrame, names: Mapping[str, str], path: Path) -> pl.LazyFrame:
    """Return rows whose columns of numbers have the types of :data:`NUMBERS`; raise DataError where one has others."""
    values = {name: pl.col(names[name]).cast(pl.Float64) for name in NUMBERS if name in names}
    valid = {name: value.is_finite() for name, value in values.items()}
    if (place := values.get("position")) is not None:
        valid["position"] &= (place >= 1.0) & (place == place.round())
    wrong = rows.select(pl.col(names[name]).filter(~is_valid).first().alias(name) for name, is_valid in valid.items())
    for name, value in collected(wrong, path).row(0, named=True).items() if valid else ():
        if value is not None:
            expected = "places from 1" if name == "position" else "numbers"
            fault = f"expected {expected}, found {value!r}: join the served log again"
            raise DataError(path, fault, column=names[name])
    return rows.with_columns(value.cast(NUMBERS[name]).alias(names[name]) for name, value in values.items())


def collected(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """Collect a plan over judged rows, in bounded memory where the plan allows it.

    Raises:
        DataError: if the rows cannot be read, or a column holds something else than the plan needs.
    """
    try:
        frame: pl.DataFrame = rows.collect(engine="streaming")
    except UNREADABLE as error:
        raise DataError(path, f"cannot be read as judged rows: {_first_line(error)}") from error
    return frame


def _first_line(error: BaseException) -> str:
    """Return the first line of polars' error, without the plan."""
    return str(error).partition("\n")[0]
