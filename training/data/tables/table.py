"""Tables with one row per candidate: CSV (also gzip) and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.cache import FULL, Beside, cached_with, stored
from listwright.training.data.cache import folder as cache_folder
from listwright.training.data.cells import coded_note, count_rounded, numbers_in, rounded_note
from listwright.training.data.container import file_digest
from listwright.training.data.dataset import Dataset, Remedies, Rounding, Splits, dataset_of
from listwright.training.data.leaks.evidence import rounding_of
from listwright.training.data.sources import NAMED, files_by_split, is_index
from listwright.training.data.split import by_name, by_query, by_time, check_fold, checked
from listwright.training.data.tables.alike import alike
from listwright.training.data.tables.columns import feature_of, grouped, whole_labels
from listwright.training.data.tables.frames import ColumnFile, Table, check_table, index_note, read_table
from listwright.training.data.tables.judged import with_judged_columns
from listwright.training.data.tables.marks import marks_of
from listwright.training.data.tables.row_weights import weights_of
from listwright.training.data.tables.streamed import check_together, open_table, stream_into
from listwright.training.data.times import Time
from listwright.training.progress import SILENT, Progress
from listwright.training.recipe.data import AnyData, TableData, TableSplit
from listwright.training.stored.shards import ShardWriter
from listwright.training.stored.writing import told_if_full

_OPTION = {"time": "--time-column", "column": "--split-column"}


def load(
    spec: TableData,
    sources: Sequence[str],
    *,
    fold: int,
    rng: np.random.Generator,
    on_disk: bool = False,
    progress: Progress = SILENT,
) -> Splits:
    """Read one table and split its queries, or read one table for each split.

    Args:
        spec: column names, and how one table is split.
        sources: the table, the folder that holds ``spec.file``, or ``train=FILE valid=FILE test=FILE``.
        fold: which fold of a table that is split here.
        rng: of the split.
        on_disk: whether rows stay on disk, in shards; those of a query must then stand together.
        progress: told how many rows are written there.

    Raises:
        RecipeError: if the sources make no sense together, there is no such fold, or no such column.
        DataError: if a file or a value in it cannot be used.
    """
    spec = with_judged_columns(spec, sources)
    named, split = files_by_split(sources), spec.split
    if named is not None:
        if split.by != "random":
            raise RecipeError(
                f"{NAMED} says which query belongs where: leave out {_OPTION[split.by]}, or give one table"
            )
        check_fold(fold, 1, NAMED)
        files = {name: Path(file) for name, file in named.items()}
        (train, valid, test), rounding, notes = _read_splits(spec, files, on_disk, progress)
        splits = checked(train, valid, test, ", ".join(f"{name} {path.name}" for name, path in files.items()))
        return replace(splits, rounding=rounding, notes=notes)
    if len(sources) > 1:
        raise RecipeError(f"--data takes one table, not {len(sources)}, or {NAMED}: {', '.join(sources)}")
    if split.by != "random":
        check_fold(fold, 1, f"a table that is split by {_OPTION[split.by]}")
    dataset, name, marks, rounding, notes = read(spec, sources[0], on_disk=on_disk, progress=progress)
    column = str(split.column)
    match split.by:
        case "random":
            splits = by_query(dataset, split, fold=fold, rng=rng, source=name)
        case "time":
            splits = by_time(dataset, marks, split, source=name, column=column)
        case "column":
            names = [str(mark) for mark in marks]
            splits = by_name(dataset, names, split, rng=rng, source=name, column=column)
    remedies = Remedies(split_by=_split_by(split))
    return replace(splits, remedies=remedies, rounding=rounding, notes=notes)


class Read(NamedTuple):
    """A table as it was read.

    Args:
        dataset: its queries; categories are sorted by name.
        name: of the file.
        marks: what each query is split by, ``N`` times or names of splits; empty for a random split.
        rounding, notes: of :class:`listwright.training.data.dataset.Splits`.
    """

    dataset: Dataset
    name: str
    marks: tuple[Time, ...]
    rounding: tuple[Rounding, ...]
    notes: tuple[str, ...]


def read(spec: TableData, source: str, *, on_disk: bool = False, progress: Progress = SILENT) -> Read:
    """Read a table.

    What a cell means, :mod:`listwright.training.data.cells` says. A column of numbers is numeric, in CSV and as text of
    Parquet, too, unless ``spec.categorical`` names it; text and booleans are categories. Rows of a query need not stand
    together: queries come in the order of their first row, candidates in row order. Dates, text that reads as dates,
    and columns without a name are no features.

    Args:
        spec: column names.
        source: the table, or the folder that holds ``spec.file``.
        on_disk, progress: as of :func:`load`.

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

    def write(writer: ShardWriter) -> Beside:
        with _scratch() if on_disk else nullcontext(Path()) as folder:
            table = open_table(path, folder)
            _check_named(spec, [table])
            return _streamed(writer, spec, table, progress, _split_by(spec.split))

    digest = _digest(spec, [path])
    dataset, beside = _stored(digest, path, write) if on_disk else cached_with(digest, path.name, parse)
    return Read(dataset, path.name, tuple(beside["marks"]), _rounding(beside), tuple(beside["notes"]))


def _read_splits(
    spec: TableData, files: dict[str, Path], on_disk: bool, progress: Progress
) -> tuple[list[Dataset], tuple[Rounding, ...], tuple[str, ...]]:
    """One dataset per file, and what :class:`listwright.training.data.dataset.Splits` has beside them: the training
    table says which columns there are, and which are categories.
    """
    for path in files.values():
        check_table(path)
    digest, ignore = _digest(spec, files.values()), frozenset(spec.ignore)
    named = frozenset(map(str, (spec.qid, spec.label, spec.weight, spec.position, *spec.categorical)))

    def tables(read: Callable[..., Table]) -> dict[str, Table]:
        found = [read(path) for path in files.values()]
        _check_named(spec, found)
        unnamed = [_unnamed(spec, table) for table in found]
        same = alike(found, ignore=ignore.union(*unnamed), named=named)
        kept = [[*table.frame.columns, *more] for table, more in zip(same, unnamed, strict=True)]
        return {split: table.select(names) for split, table, names in zip(files, found, kept, strict=True)}

    def as_trained(schema: FeatureSchema) -> TableData:
        return spec.model_copy(update={"categorical": tuple(schema.names[d] for d in schema.categorical)})

    @cache
    def parsed() -> dict[str, tuple[Dataset, Beside]]:
        train, *others = tables(read_table).values()
        first = _parsed(spec, train)
        later = as_trained(first[0].schema)
        return dict(zip(files, [first, *(_parsed(later, table) for table in others)], strict=True))

    with _scratch() as folder:
        opened = cache(lambda: tables(partial(open_table, scratch=folder)))

        def written(split: str, said: TableData, writer: ShardWriter) -> Beside:
            return _streamed(writer, said, opened()[split], progress)

        read: list[tuple[Dataset, Beside]] = []
        for split, path in files.items():
            said = as_trained(read[0][0].schema) if read and on_disk else spec
            if on_disk:
                write = partial(
                    lambda spec, split, writer: _streamed(writer, spec, opened()[split], progress), said, split
                )
                read.append(_stored(f"{digest}/{split}", path, write))
            else:
                parse = partial(lambda split: parsed()[split], split)
                read.append(cached_with(f"{digest}/{split}", path.name, parse))
    found = [beside for _, beside in read]
    notes = dict.fromkeys(note for beside in found for note in beside["notes"])
    return [dataset for dataset, _ in read], _rounding(*found), tuple(notes)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder on the disk where shards lie, for as long as they are written."""
    parent = cache_folder()
    with told_if_full(parent, FULL):
        parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent, prefix=".columns-") as folder:
        yield Path(folder)


def _stored(digest: str, path: Path, write: Callable[[ShardWriter], Beside]) -> tuple[Dataset, Beside]:
    found, beside = stored(f"table/{digest}", path.name, write)
    schema = FeatureSchema(features=tuple(Feature.model_validate(feature) for feature in beside["features"]))
    return dataset_of(found, schema), beside


def _digest(spec: TableData, paths: Iterable[Path]) -> str:
    """Of what is read and how; another version of polars may infer other types from the same text."""
    read_by = spec.model_dump_json(exclude=set(AnyData.model_fields))
    return "/".join([*(file_digest(path) for path in paths), pl.__version__, read_by])


def _check_named(spec: TableData, tables: Sequence[Table]) -> None:
    """Raise RecipeError unless all tables have the columns that are named; one that is ignored may stand in one."""
    for table in tables:
        table.named(spec.qid, "--qid")
        table.named(spec.label, "--label")
        for name, option in ((spec.weight, "--weight"), (spec.position, "--position")):
            if name is not None:
                table.named(name, option)
        for name in spec.categorical:
            table.named(name, "--categorical")
    if spec.split.by != "random":
        tables[0].named(spec.split.column, _OPTION[spec.split.by])
    for name in spec.ignore:
        if not any(name in table.frame.columns for table in tables):
            tables[0].named(name, "--ignore")


def _parsed(spec: TableData, table: Table, split_by: str = "") -> tuple[Dataset, Beside]:
    """The dataset, what its queries are split by, and which numbers float32 merges."""
    names = _feature_columns(spec, table)
    order, dataset = _judged(spec, table)
    features, schema = np.empty((dataset.rows, len(names)), dtype=np.float32), []
    rounding, notes = list[Rounding](), _notes(spec, table)
    for d, name in enumerate(names):
        values, feature, found, said = _feature(spec, table, name, split_by)
        features[:, d] = values[order]
        schema.append(feature)
        rounding += found
        notes += said
    whole = replace(dataset, features=features, schema=FeatureSchema(features=tuple(schema)))
    return whole, {"marks": marks_of(spec.split, table, dataset, order), "rounding": rounding, "notes": notes}


def _streamed(writer: ShardWriter, spec: TableData, table: Table, progress: Progress, split_by: str = "") -> Beside:
    """The same into shards: every column once for what it is as a whole, then all rows."""
    names = _feature_columns(spec, table)
    order, dataset = _judged(spec, table)
    check_together(table, str(spec.qid), order, dataset)
    features, rounding, notes = [], list[Rounding](), _notes(spec, table)
    looking = progress.begin(f"Looking through {table.path.name}, columns", len(names))
    for name in names:
        _, feature, found, said = _feature(spec, table, name, split_by)
        features.append(feature)
        rounding += found
        notes += said
        looking.reach(len(features))
    marks = marks_of(spec.split, table, dataset, order)
    writing = progress.begin(f"Writing shards of {table.path.name}, rows", dataset.rows)
    columns = table.select(names).frame
    assert isinstance(columns, ColumnFile)
    stream_into(writer, columns, dataset, FeatureSchema(features=tuple(features)), table.fault, writing)
    described = [feature.model_dump(mode="json") for feature in features]
    return {"marks": marks, "rounding": rounding, "notes": notes, "features": described}


def _feature_columns(spec: TableData, table: Table) -> list[str]:
    others = (spec.qid, spec.label, spec.weight, spec.position, spec.split.column, *spec.ignore)
    columns = [name for name in table.frame.columns if name not in others and name not in _unnamed(spec, table)]
    if not columns:
        raise DataError(table.path, f"has no feature columns besides {spec.qid!r} and {spec.label!r}")
    return columns


def _unnamed(spec: TableData, table: Table) -> list[str]:
    """Columns without a name that no option names."""
    named = (spec.qid, spec.label, spec.weight, spec.position, spec.split.column, *spec.categorical, *spec.ignore)
    return [name for name in table.frame.columns if is_index(name) and name not in named]


def _notes(spec: TableData, table: Table) -> list[str]:
    unnamed, ids = _unnamed(spec, table), table.frame[str(spec.qid)]
    rounded = count_rounded(ids)
    return [
        *([index_note(unnamed)] if unnamed else []),
        *([rounded_note(str(spec.qid), rounded, len(ids))] if rounded else []),
    ]


def _judged(spec: TableData, table: Table) -> tuple[Int[np.ndarray, " R"], Dataset]:
    """Row order that brings queries together, and the dataset in that order, without features yet."""
    frame = table.frame
    order, offsets, qids = grouped(frame[str(spec.qid)], table.fault)
    labels = whole_labels(frame[str(spec.label)], table.fault)[order]
    weights = weights_of(spec, table, order, labels, offsets)
    none = np.broadcast_to(np.float32(0.0), (len(order), 1))
    schema = FeatureSchema(features=(Feature(name="none yet"),))
    return order, Dataset(none, labels, offsets, qids, schema, weights=weights)


def _feature(
    spec: TableData, table: Table, name: str, split_by: str
) -> tuple[Float[np.ndarray, " R"], Feature, list[Rounding], list[str]]:
    """Values and description of one column, what float32 merges of its numbers, and notes."""
    column, named = table.frame[name], table.categories.union(spec.categorical)
    values, feature = feature_of(column, named, table.fault, leave_out="--ignore it", split_by=split_by)
    if feature.kind == "categorical":
        return values, feature, [], []
    found = rounding_of(numbers_in(column).values)
    note = coded_note(column, f"say --categorical {name}")
    return values, feature, [] if found is None else [found], [] if note is None else [note]


def _rounding(*tables: Beside) -> tuple[Rounding, ...]:
    """Of each column, in the first table where there is some."""
    by_name = {name: Rounding(name, *facts) for table in reversed(tables) for name, *facts in table["rounding"]}
    return tuple(by_name.values())


def _split_by(split: TableSplit) -> str:
    return ", or split by it with --split time --time-column {}" if split.by == "random" else ""
