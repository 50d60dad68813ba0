"""Tables with one row per candidate: CSV (also gzip) and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.cache import Beside, cached_with
from listwright.training.data.container import file_digest
from listwright.training.data.dataset import Dataset, Ids, Remedies, Splits
from listwright.training.data.leaks.evidence import ids_beyond_float32
from listwright.training.data.sources import NAMED, files_by_split
from listwright.training.data.split import by_name, by_query, by_time, check_fold, checked
from listwright.training.data.tables.alike import alike
from listwright.training.data.tables.columns import features_of, grouped, row_weights, whole_labels
from listwright.training.data.tables.frames import Table, check_table, read_table
from listwright.training.data.tables.marks import marks_of
from listwright.training.data.times import Time
from listwright.training.recipe.data import AnyData, TableData, TableSplit

_OPTION = {"time": "--time-column", "column": "--split-column"}


def load(spec: TableData, sources: Sequence[str], *, fold: int, rng: np.random.Generator) -> Splits:
    """Read one table and split its queries, or read one table for each split.

    Args:
        spec: column names, and how one table is split.
        sources: the table, the folder that holds ``spec.file``, or ``train=FILE valid=FILE test=FILE``.
        fold: which fold of a table that is split here.
        rng: of the split.

    Raises:
        RecipeError: if the sources make no sense together, there is no such fold, or no such column.
        DataError: if a file or a value in it cannot be used.
    """
    named, split = files_by_split(sources), spec.split
    if named is not None:
        if split.by != "random":
            raise RecipeError(
                f"{NAMED} says which query belongs where: leave out {_OPTION[split.by]}, or give one table"
            )
        check_fold(fold, 1, NAMED)
        files = {name: Path(file) for name, file in named.items()}
        (train, valid, test), ids = _read_splits(spec, files)
        splits = checked(train, valid, test, ", ".join(f"{name} {path.name}" for name, path in files.items()))
        return replace(splits, ids=ids)
    if len(sources) > 1:
        raise RecipeError(f"--data takes one table, not {len(sources)}, or {NAMED}: {', '.join(sources)}")
    if split.by != "random":
        check_fold(fold, 1, f"a table that is split by {_OPTION[split.by]}")
    dataset, name, marks, ids = read(spec, sources[0])
    column = str(split.column)
    match split.by:
        case "random":
            splits = by_query(dataset, split, fold=fold, rng=rng, source=name)
        case "time":
            splits = by_time(dataset, marks, split, source=name, column=column)
        case "column":
            names = [str(mark) for mark in marks]
            splits = by_name(dataset, names, split, rng=rng, source=name, column=column)
    return replace(splits, remedies=Remedies(split_by=_split_by(split)), ids=ids)


class Read(NamedTuple):
    """A table as it was read.

    Args:
        dataset: its queries; categories are sorted by name.
        name: of the file.
        marks: what each query is split by, ``N`` times or names of splits; empty for a random split.
        ids: of :attr:`listwright.training.data.dataset.Splits.ids`.
    """

    dataset: Dataset
    name: str
    marks: tuple[Time, ...]
    ids: Ids


def read(spec: TableData, source: str) -> Read:
    """Read a table.

    Text, boolean and categorical columns are categories; numbers are numeric unless ``spec.categorical`` names them (a
    whole number is then spelled without a decimal point). A null or NaN, in CSV also an empty field and the words NULL,
    NaN and nan, is a missing value. Rows of a query need not stand together: queries come in the order of their first
    row, candidates in row order. Dates, and text that reads as dates, are no features.

    Args:
        spec: column names.
        source: the table, or the folder that holds ``spec.file``.

    Raises:
        RecipeError: if the id or the label column is not named, or there is no column of a name.
        DataError: if the file or a value in it cannot be used; names the column, and the line (in Parquet the row,
            from 1).
    """
    path = Path(source)
    if path.is_dir() and spec.file is not None:
        path /= spec.file
    check_table(path)

    def parse() -> tuple[Dataset, Beside]:
        table = read_table(path)
        _check_named(spec, [table])
        return _parsed(spec, table, _split_by(spec.split))

    dataset, beside = cached_with(_digest(spec, [path]), path.name, parse)
    return Read(dataset, path.name, tuple(beside["marks"]), _ids(beside))


def _read_splits(spec: TableData, files: dict[str, Path]) -> tuple[list[Dataset], Ids]:
    """One dataset per file; the training table says which columns there are, and which are categories."""
    for path in files.values():
        check_table(path)

    @cache
    def parsed() -> dict[str, tuple[Dataset, Beside]]:
        found = [read_table(path) for path in files.values()]
        _check_named(spec, found)
        spelled = frozenset((str(spec.qid), str(spec.label), *spec.categorical))
        train, *others = alike(found, ignore=frozenset(spec.ignore), spelled=spelled)
        first = _parsed(spec, train)
        schema = first[0].schema
        as_trained = spec.model_copy(update={"categorical": tuple(schema.names[d] for d in schema.categorical)})
        return dict(zip(files, [first, *(_parsed(as_trained, table) for table in others)], strict=True))

    digest = _digest(spec, files.values())
    read = [
        cached_with(f"{digest}/{split}", path.name, partial(lambda split: parsed()[split], split))
        for split, path in files.items()
    ]
    return [dataset for dataset, _ in read], _ids(read[0][1])


def _digest(spec: TableData, paths: Iterable[Path]) -> str:
    """Of what is read and how; another version of polars may infer other types from the same text."""
    read_by = spec.model_dump_json(exclude=set(AnyData.model_fields))
    return "/".join([*(file_digest(path) for path in paths), pl.__version__, read_by])


def _check_named(spec: TableData, tables: Sequence[Table]) -> None:
    """Raise RecipeError unless all tables have the columns that are named; one that is ignored may stand in one."""
    for table in tables:
        table.named(spec.qid, "--qid")
        table.named(spec.label, "--label")
        if spec.weight is not None:
            table.named(spec.weight, "--weight")
        for name in spec.categorical:
            table.named(name, "--categorical")
    if spec.split.by != "random":
        tables[0].named(spec.split.column, _OPTION[spec.split.by])
    for name in spec.ignore:
        if not any(name in table.frame.columns for table in tables):
            tables[0].named(name, "--ignore")


def _parsed(spec: TableData, table: Table, split_by: str = "") -> tuple[Dataset, Beside]:
    """The dataset, what its queries are split by, and which numbers look like ids."""
    frame, qid, label, split = table.frame, str(spec.qid), str(spec.label), spec.split
    columns = [name for name in frame.columns if name not in (qid, label, spec.weight, split.column, *spec.ignore)]
    if not columns:
        raise DataError(table.path, f"has no feature columns besides {qid!r} and {label!r}")
    order, offsets, qids = grouped(frame[qid], table.fault)
    labels = whole_labels(frame[label], table.fault)
    weights = None if spec.weight is None else row_weights(frame[spec.weight], table.fault)[order]
    chosen, named = frame.select(columns), frozenset(spec.categorical)
    features, schema = features_of(chosen, named, table.fault, leave_out="--ignore it", split_by=split_by)
    dataset = Dataset(features[order], labels[order], offsets, qids, schema, weights=weights)
    numeric = [feature.name for feature in schema.features if feature.kind == "numeric"]
    ids = [[name, *found] for name in numeric if (found := ids_beyond_float32(frame[name])) is not None]
    return dataset, {"marks": marks_of(split, table, dataset, order), "ids": ids}


def _ids(beside: Beside) -> Ids:
    return tuple((name, distinct, rows) for name, distinct, rows in beside["ids"])


def _split_by(split: TableSplit) -> str:
    return ", or split by it with --split time --time-column {}" if split.by == "random" else ""
