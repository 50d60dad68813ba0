"""Tables with one row per candidate: CSV (also gzip) and Parquet, in memory or streamed into shards.

A column means the same in all tables of a run, whichever of them its kind was decided by. Rows may be weighted by a
column, or by inverse propensities where labels are clicks.
"""

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
from listwright.ranking.remote import cache_folder
from listwright.training.console.command import in_list
from listwright.training.console.progress import SILENT, Progress, Task
from listwright.training.data.cache import FULL, Extras, cached_with, stored
from listwright.training.data.cells import (
    Fault,
    Time,
    coded_note,
    count_rounded,
    names_in,
    numbers_in,
    rounded_note,
    times_of,
)
from listwright.training.data.dataset import Dataset, Remedies, Rounding, Splits, dataset_of
from listwright.training.data.leaks import rounding_of
from listwright.training.data.shards.shards import QueryBlock, ShardWriter
from listwright.training.data.sources import SPLIT_SOURCES, file_digest, files_by_split, is_index
from listwright.training.data.split import by_name, by_query, by_time, check_fold, checked
from listwright.training.data.tables.columns import (
    amounts,
    check_cells,
    encoded,
    feature_of,
    floats,
    grouped,
    kind_of,
    whole_labels,
)
from listwright.training.data.tables.frames import (
    UNREADABLE,
    ColumnFile,
    Table,
    check_fields,
    check_table,
    index_note,
    is_parquet,
    line_of,
    read_table,
    scan_csv,
    unreadable,
)
from listwright.training.data.tables.judged import with_judged_columns
from listwright.training.job_folder import disk_full_as_data_error
from listwright.training.recipe.data import AnyData, Propensity, TableData, TableSplit

_OPTION = {"time": "--time-column", "column": "--split-column"}

_NAMES = ("text", "booleans")

_SPLIT_OF = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "validation", "vali", "dev"), "valid")
"""Names of a row's split in a table, and the splits that they mean."""


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
        spec: Column names, and the way to split a single table.
        sources: Path of the table, of the folder that holds ``spec.file``, or ``train=FILE valid=FILE test=FILE``.
        fold: Number of the fold of a table that is split here.
        rng: Generator of the split.
        on_disk: Whether rows stay on disk, in shards; those of a query must then stand together.
        progress: Report of the rows written there.

    Raises:
        RecipeError: if the sources make no sense together, there is no such fold, or no such column.
        DataError: if a file or a value in it cannot be used.
    """
    spec = with_judged_columns(spec, sources)
    files_of_splits, split = files_by_split(sources), spec.split
    if files_of_splits is not None:
        if split.by != "random":
            raise RecipeError(
                f"{SPLIT_SOURCES} says which query belongs where: leave out {_OPTION[split.by]}, or give one table"
            )
        check_fold(fold, 1, SPLIT_SOURCES)
        files = {name: Path(file) for name, file in files_of_splits.items()}
        (train, valid, test), rounding, notes = _read_splits(spec, files, on_disk, progress)
        splits = checked(train, valid, test, ", ".join(f"{name} {path.name}" for name, path in files.items()))
        return replace(splits, rounding=rounding, notes=notes)
    if len(sources) > 1:
        raise RecipeError(f"--data takes one table, not {len(sources)}, or {SPLIT_SOURCES}: {', '.join(sources)}")
    at_random = split.by == "random"
    what = sources[0] if at_random else f"a table that is split by {_OPTION[split.by]}"
    check_fold(fold, split.parts if at_random else 1, what)
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


class ReadTable(NamedTuple):
    """A table as it was read: what its queries are split by, and parts of :class:`Splits`; categories are sorted."""

    dataset: Dataset
    name: str
    marks: tuple[Time, ...]
    rounding: tuple[Rounding, ...]
    notes: tuple[str, ...]


def read(spec: TableData, source: str, *, on_disk: bool = False, progress: Progress = SILENT) -> ReadTable:
    """Read a table.

    What a cell means, :mod:`listwright.training.data.cells` says. A column of numbers is numeric, in CSV and as text of
    Parquet, too, unless ``spec.categorical`` names it; text and booleans are categories. Rows of a query need not stand
    together: queries come in the order of their first row, candidates in row order. Dates, text that reads as dates,
    and columns without a name are no features.

    Args:
        spec: Column names.
        source: Path of the table, or of the folder that holds ``spec.file``.
        on_disk, progress: Arguments of :func:`load`.

    Raises:
        RecipeError: if the id or the label column is not named, or there is no column of a name.
        DataError: if the file or a value in it cannot be used; names the column, and the line (in Parquet the row,
            from 1).
    """
    path = Path(source)
    if path.is_dir() and spec.file is not None:
        path /= spec.file
    check_table(path)

    def parse() -> tuple[Dataset, Extras]:
        table = read_table(path)
        _check_named(spec, [table])
        return _parsed(spec, table, _split_by(spec.split))

    def write(writer: ShardWriter) -> Extras:
        with _scratch() if on_disk else nullcontext(Path()) as folder:
            table = _open_table(path, folder)
            _check_named(spec, [table])
            return _streamed(writer, spec, table, progress, _split_by(spec.split))

    digest = _digest(spec, [path])
    dataset, beside = _stored(digest, path, write) if on_disk else cached_with(digest, path.name, parse)
    return ReadTable(dataset, path.name, tuple(beside["marks"]), _rounding(beside), tuple(beside["notes"]))


def _read_splits(
    spec: TableData, files: dict[str, Path], on_disk: bool, progress: Progress
) -> tuple[list[Dataset], tuple[Rounding, ...], tuple[str, ...]]:
    """Read a dataset of each file, what float32 merges, and notes; the training table fixes columns and categories."""
    for path in files.values():
        check_table(path)
    digest, ignore = _digest(spec, files.values()), frozenset(spec.ignore)
    known_columns = frozenset(map(str, (*_special_columns(spec), *spec.categorical)))

    def tables(read: Callable[..., Table]) -> dict[str, Table]:
        whole = [read(path) for path in files.values()]
        _check_named(spec, whole)
        unnamed = [_unnamed(spec, table) for table in whole]
        same = _with_same_columns(whole, ignore.union(*unnamed), known_columns)
        column_names = [[*table.frame.columns, *more] for table, more in zip(same, unnamed, strict=True)]
        return {split: table.select(names) for split, table, names in zip(files, whole, column_names, strict=True)}

    def as_trained(schema: FeatureSchema) -> TableData:
        return spec.model_copy(update={"categorical": tuple(schema.names[d] for d in schema.categorical)})

    @cache
    def parsed() -> dict[str, tuple[Dataset, Extras]]:
        train, *others = tables(read_table).values()
        first = _parsed(spec, train)
        later = as_trained(first[0].schema)
        return dict(zip(files, [first, *(_parsed(later, table) for table in others)], strict=True))

    with _scratch() as folder:
        opened = cache(lambda: tables(partial(_open_table, scratch=folder)))

        def write(split: str, spec_of_split: TableData, writer: ShardWriter) -> Extras:
            return _streamed(writer, spec_of_split, opened()[split], progress)

        read: list[tuple[Dataset, Extras]] = []
        for split, path in files.items():
            if on_disk:
                spec_of_split = as_trained(read[0][0].schema) if read else spec
                read.append(_stored(f"{digest}/{split}", path, partial(write, split, spec_of_split)))
            else:
                read.append(cached_with(f"{digest}/{split}", path.name, partial(lambda split: parsed()[split], split)))
    facts = [beside for _, beside in read]
    notes = dict.fromkeys(note for beside in facts for note in beside["notes"])
    return [dataset for dataset, _ in read], _rounding(*facts), tuple(notes)


@contextmanager
def _scratch() -> Iterator[Path]:
    """Create a temporary folder on the disk of the shards, for as long as they are written."""
    parent = cache_folder()
    with disk_full_as_data_error(parent, FULL):
        parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent, prefix=".columns-") as folder:
        yield Path(folder)


def _stored(digest: str, path: Path, write: Callable[[ShardWriter], Extras]) -> tuple[Dataset, Extras]:
    shards = stored(f"table/{digest}", path.name, write)
    beside = shards.facts["beside"]
    schema = FeatureSchema(features=tuple(Feature.model_validate(feature) for feature in beside["features"]))
    return dataset_of(shards, schema), beside


def _digest(spec: TableData, paths: Iterable[Path]) -> str:
    """Return a digest of what is read and how; another version of polars may infer other types from the same text."""
    read_by = spec.model_dump_json(exclude=set(AnyData.model_fields))
    return "/".join([*(file_digest(path) for path in paths), pl.__version__, read_by])


def _check_named(spec: TableData, tables: Sequence[Table]) -> None:
    """Raise RecipeError unless all tables have the named columns; an ignored one needs to be in one table only."""
    for table in tables:
        table.find_column(spec.qid, "--qid")
        table.find_column(spec.label, "--label")
        for name, option in ((spec.weight, "--weight"), (spec.position, "--position")):
            if name is not None:
                table.find_column(name, option)
        for name in spec.categorical:
            table.find_column(name, "--categorical")
    others = {*_special_columns(spec.model_copy(update={"goals": ()})), *spec.categorical, *spec.ignore}
    for number, name in enumerate(spec.goals):
        if "=" in name and name not in tables[0].frame.columns:
            raise RecipeError(f"--goal {name}: no column; expected NAME, NAME=WEIGHT from 0, or NAME>=RATIO above 0")
        if name in others or name in spec.goals[:number]:
            raise RecipeError(f"--goal {name}: another option or goal names that column already: leave one out")
        for table in tables:
            table.find_column(name, "--goal")
    if spec.split.by != "random":
        tables[0].find_column(spec.split.column, _OPTION[spec.split.by])
    for name in spec.ignore:
        if not any(name in table.frame.columns for table in tables):
            tables[0].find_column(name, "--ignore")


def _parsed(spec: TableData, table: Table, split_by: str = "") -> tuple[Dataset, Extras]:
    """Return the dataset, what its queries are split by, and which numbers float32 merges."""
    names = _feature_columns(spec, table)
    order, dataset = _judged(spec, table)
    features = np.empty((dataset.rows, len(names)), dtype=np.float32)

    def keep(place: int, values: Float[np.ndarray, " R"]) -> None:
        features[:, place] = values[order]

    schema, beside = _described(spec, table, names, split_by, keep)
    whole = replace(dataset, features=features, schema=schema)
    return whole, {"marks": _marks_of(spec.split, table, dataset, order), **beside}


def _streamed(writer: ShardWriter, spec: TableData, table: Table, progress: Progress, split_by: str = "") -> Extras:
    """Write the rows into shards, after reading every column once for its kind; return the same as :func:`_parsed`."""
    names = _feature_columns(spec, table)
    order, dataset = _judged(spec, table)
    _check_together(table, str(spec.qid), order, dataset)
    looking = progress.begin(f"Looking through {table.path.name}, columns", len(names))
    schema, beside = _described(spec, table, names, split_by, lambda place, _values: looking.reach(place + 1))
    marks = _marks_of(spec.split, table, dataset, order)
    writing = progress.begin(f"Writing shards of {table.path.name}, rows", dataset.rows)
    columns = table.frame.select(names)
    assert isinstance(columns, ColumnFile)
    _stream_into(writer, columns, dataset, schema, table.fault, writing)
    return {"marks": marks, **beside, "features": schema.model_dump(mode="json")["features"]}


def _described(
    spec: TableData,
    table: Table,
    names: list[str],
    split_by: str,
    keep: Callable[[int, Float[np.ndarray, " R"]], None],
) -> tuple[FeatureSchema, Extras]:
    """Return the schema of the feature columns, what float32 merges, and notes; pass each column's values on."""
    features, rounding, notes = list[Feature](), list[Rounding](), _notes(spec, table)
    categories = table.categories.union(spec.categorical)
    for place, column in enumerate(table.frame.select(names).iter_columns()):
        values, feature = feature_of(column, categories, table.fault, leave_out="--ignore it", split_by=split_by)
        features.append(feature)
        if feature.kind == "numeric":
            loss = rounding_of(numbers_in(column).values)
            note = coded_note(column, f"say --categorical {column.name}")
            rounding += [] if loss is None else [loss]
            notes += [] if note is None else [note]
        keep(place, values)
    return FeatureSchema(features=tuple(features)), {"rounding": rounding, "notes": notes}


def _feature_columns(spec: TableData, table: Table) -> list[str]:
    others = {*_special_columns(spec), *spec.ignore, *_unnamed(spec, table)}
    columns = [name for name in table.frame.columns if name not in others]
    if not columns:
        raise DataError(table.path, f"has no feature columns besides {spec.qid!r} and {spec.label!r}")
    return columns


def _special_columns(spec: TableData) -> tuple[str | None, ...]:
    """Return the columns that have another meaning than a feature's; None for one that is not used."""
    return spec.qid, spec.label, spec.weight, spec.position, spec.split.column, *spec.goals


def _unnamed(spec: TableData, table: Table) -> list[str]:
    """Return the columns without a name that no option names."""
    columns = (*_special_columns(spec), *spec.categorical, *spec.ignore)
    return [name for name in table.frame.columns if is_index(name) and name not in columns]


def _notes(spec: TableData, table: Table) -> list[str]:
    unnamed, ids = _unnamed(spec, table), table.frame[str(spec.qid)]
    rounded = count_rounded(ids)
    return [
        *([index_note(unnamed)] if unnamed else []),
        *([rounded_note(str(spec.qid), rounded, len(ids))] if rounded else []),
    ]


def _judged(spec: TableData, table: Table) -> tuple[Int[np.ndarray, " R"], Dataset]:
    """Return the row order that brings queries together, and the dataset in that order, without features yet."""
    frame = table.frame
    order, offsets, qids = grouped(frame[str(spec.qid)], table.fault)
    labels = whole_labels(frame[str(spec.label)], table.fault)[order]
    none = np.broadcast_to(np.float32(0.0), (len(order), 1))
    schema = FeatureSchema(features=(Feature(name="none yet"),))
    goals = {name: amounts(frame[name], table.fault, "the value of a goal")[order] for name in spec.goals}
    unweighted = Dataset(none, labels, offsets, qids, schema, goals=goals)
    return order, replace(unweighted, weights=_weights(spec, table, order, unweighted))


def _rounding(*tables: Extras) -> tuple[Rounding, ...]:
    """Return what float32 merges, for each column by the first table that has some."""
    by_name = {name: Rounding(name, *facts) for table in reversed(tables) for name, *facts in table["rounding"]}
    return tuple(by_name.values())


def _split_by(split: TableSplit) -> str:
    return ", or split by it with --split time --time-column {}" if split.by == "random" else ""


def _with_same_columns(tables: Sequence[Table], ignore: frozenset[str], known: frozenset[str]) -> list[Table]:
    """Return the tables with the columns of the first, of the same kinds but for those whose kind is known."""
    names = [set(table.frame.columns) for table in tables]
    for name in dict.fromkeys(name for table in tables for name in table.frame.columns if name not in ignore):
        has = [name in there for there in names]
        if not all(has):
            lacking, having = tables[has.index(False)], tables[has.index(True)]
            fault = f"has no column {name!r}, {having.path} has: add it, or --ignore {in_list(name)}"
            raise DataError(lacking.path, fault)
    columns = [name for name in tables[0].frame.columns if name not in ignore]
    unknown = [name for name in columns if name not in known]
    for alike in zip(*(table.frame.select(unknown).iter_columns() for table in tables), strict=True):
        _check_kinds(alike, tables)
    return [table.select(columns) for table in tables]


def _check_kinds(columns: Sequence[pl.Series], tables: Sequence[Table]) -> None:
    first, name = tables[0], columns[0].name
    first_kind, *kinds = (kind_of(column, numbers_in(column)) for column in columns)
    for table, kind, own in zip(tables[1:], kinds, columns[1:], strict=True):
        if kind is None or kind == (first_kind or "numbers") or (kind in _NAMES and first_kind in _NAMES):
            continue
        there = f"{first_kind or 'no value, which makes it a number,'} in {first.path}"
        quoted = in_list(name)
        remedy = f"make them alike, name it with --categorical {quoted}, or leave it out with --ignore {quoted}"
        if {kind, first_kind} != {"text", "numbers"}:
            raise table.fault(own, f"holds {kind}, but {there}: {remedy}")
        text, column, other = (table, own, first) if kind == "text" else (first, columns[0], table)
        wrong = numbers_in(column).wrong
        row = int(wrong[0]) if len(wrong) else None
        text_there = "text" if row is None else f"text ({column[row]!r})"
        raise text.fault(column, f"holds {text_there}, but numbers in {other.path}; {remedy}", row)


def _marks_of(split: TableSplit, table: Table, dataset: Dataset, order: Int[np.ndarray, " R"]) -> list[Time]:
    """Return the value that each query is split by."""
    if split.by == "random":
        return []
    column, first = table.frame[str(split.column)], order[dataset.offsets[:-1]]
    if split.by == "time":
        times = times_of(column, first, table.fault)
        if None in times:
            fault = "the first row of a query has no time: give it one, or leave the query out"
            raise table.fault(column, fault, int(first[times.index(None)]))
        return [time for time in times if time is not None]
    of_row = np.array(_names(column, table.fault))[order]
    of_query = of_row[dataset.offsets[:-1]]
    other = np.flatnonzero(of_row != np.repeat(of_query, dataset.lengths))
    if len(other):
        query = int(np.searchsorted(dataset.offsets, other[0], side="right")) - 1
        row, before = int(order[other[0]]), int(first[query])
        place = f"{column[before]!r} in line {line_of(table.path, before)}"
        fault = f"query {dataset.qids[query]!r} is {column[row]!r} here and {place}"
        raise table.fault(column, f"{fault}: all rows of a query belong into one split", row)
    names: list[Time] = of_query.tolist()
    return names


def _names(column: pl.Series, fault: Fault) -> list[str]:
    """Return the split of every row."""
    expected = "expected 'train', 'valid' or 'test'"
    names = names_in(column).replace_strict(_SPLIT_OF, default=None)
    if names.null_count():
        row = int(names.is_null().arg_max() or 0)
        raise fault(column, f"{expected}; found {column[row]!r}", row)
    return names.to_list()


def _weights(
    spec: TableData, table: Table, order: Int[np.ndarray, " R"], unweighted: Dataset
) -> Float[np.ndarray, " R"] | None:
    """Return the weight of each row in the order that brings queries together; None if all are alike."""
    weights = None if spec.weight is None else amounts(table.frame[spec.weight], table.fault)[order]
    if spec.propensity is None:
        return weights
    column = table.frame[spec.propensity.column]
    places = floats(numbers_in(column))
    expected = "expected the shown place of the candidate, a whole number from 1"
    check_cells(column, (places >= 1.0) & (places < 2.0**31) & (np.floor(places) == places), expected, table.fault)
    whole = places.astype(np.int64)[order]
    inverse = inverse_propensities(unweighted.labels, whole, unweighted.offsets, spec.propensity)
    return inverse if weights is None else weights * inverse


def inverse_propensities(
    labels: Int[np.ndarray, " R"], places: Int[np.ndarray, " R"], offsets: Int[np.ndarray, " O"], propensity: Propensity
) -> Float[np.ndarray, " R"]:
    """Return weights under which clicks count as if every place had been examined alike.

    Definition (Joachims et al. 2017, eq. 5; clipped as in Strehl et al. 2010): a clicked candidate at place k counts
    ``u = 1 / max(p_k, clip)``. The other candidates of its list count the mean u of the clicked ones. So a list with
    one click counts u as a whole, in every pair of candidates and in every listwise loss; a list with several counts
    their mean, and divides it among them by u.

    Args:
        labels: ``(R,)`` labels, above 0 where clicked.
        places: ``(R,)`` shown places of the candidates, from 1.
        offsets: ``(N + 1,)`` bounds of the lists.
        propensity: Propensities of the places.

    Convention: a list without a click has weights of 1: it gives no pairs, and metrics count it as before.
    """
    p = np.array(propensity.values)[np.minimum(places, len(propensity.values)) - 1]
    clicked = labels > 0
    u = np.where(clicked, 1.0 / np.maximum(p, propensity.clip), 0.0)
    count = np.add.reduceat(clicked.astype(np.float64), offsets[:-1])
    mean = np.divide(np.add.reduceat(u, offsets[:-1]), count, out=np.ones(len(count)), where=count > 0.0)
    weights: Float[np.ndarray, " R"] = np.where(clicked, u, np.repeat(mean, np.diff(offsets)))
    return weights


def _open_table(path: Path, scratch: Path) -> Table:
    """Open a file like ``read_table``, but leave the rows of CSV on disk: in a folder, as Parquet."""
    if is_parquet(path):
        return read_table(path)
    columns_path = scratch / f"{len(list(scratch.iterdir()))}.parquet"
    try:
        _as_parquet(path, columns_path)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    columns = ColumnFile(columns_path, path)
    if columns.height == 0:
        raise DataError(path, "has no rows")
    return Table(path, columns)


def _as_parquet(path: Path, target: Path) -> None:
    rows = scan_csv(path)
    with disk_full_as_data_error(target.parent, FULL):
        rows.sink_parquet(target, compression="lz4")
        last = rows.collect_schema().names()[-1]
    if pl.scan_parquet(target).select(pl.col(last).is_null().any()).collect().item():  # a short line ends in nulls
        check_fields(path)


def _check_together(table: Table, qid: str, order: Int[np.ndarray, " R"], dataset: Dataset) -> None:
    """Raise DataError unless the rows of every query are together."""
    apart = np.flatnonzero(order != np.arange(len(order)))
    if len(apart) == 0:
        return
    first = int(apart[0])  # the row in its place begins another query: that one was cut in two
    query = int(np.searchsorted(dataset.offsets, first, side="right")) - 1
    fault = (
        f"query {dataset.qids[query]!r} comes back here, and rows on disk must stand together by query: sort the table "
        f"by {qid!r}, or read it into memory with --shards never"
    )
    raise table.fault(table.frame[qid], fault, int(order[first]))


def _stream_into(
    writer: ShardWriter, columns: ColumnFile, dataset: Dataset, schema: FeatureSchema, fault: Fault, task: Task
) -> None:
    """Write the rows of feature columns behind the last whole shard, with all else that a dataset has."""
    first = writer.rows
    rest = np.empty((0, len(schema)), dtype=np.float32)
    for frame in columns.batches(first):
        held = np.concatenate([rest, encoded(frame, schema, fault)])
        begin = int(np.searchsorted(dataset.offsets, first))
        end = int(np.searchsorted(dataset.offsets, first + len(held), side="right")) - 1
        if end > begin:
            rows = slice(first, int(dataset.offsets[end]))
            count = rows.stop - rows.start
            weights = None if dataset.weights is None else dataset.weights[rows]
            lengths, qids = dataset.lengths[begin:end], dataset.qids[begin:end]
            goals = {name: values[rows] for name, values in dataset.goals.items()}
            writer.add(QueryBlock(held[:count], dataset.labels[rows], lengths, qids, weights, goals), rows.stop)
            held, first = held[count:], rows.stop
        rest = held.copy()
        task.reach(first)
    task.end(dataset.rows)
