"""Tables of the same columns: a column means the same in all, whichever of them its type was inferred from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from listwright.ranking.errors import DataError
from listwright.training.data.tables.frames import Table, is_parquet, read_table

TEXT, BOOLEANS, NUMBERS = "text", "booleans", "numbers"


def alike(
    tables: Sequence[Table],
    *,
    ignore: frozenset[str],
    spelled: frozenset[str],
    read: Callable[..., Table] = read_table,
) -> list[Table]:
    """The same tables with the same columns, of the same kinds.

    A column that is text in one file is read as it stands in all CSV files, if it is spelled or holds booleans there:
    else 007 would be 7 in the one file that has nothing but digits in it.

    Args:
        tables: the first one fixes columns and kinds.
        ignore: columns that are not looked at.
        read: reads one of the files again, with ``as_text`` as :func:`read_table` has it.
        spelled: columns of ids, labels and categories, which are told apart as they are spelled.

    Returns:
        The tables, with the columns of the first in its order; ignored ones are left out.

    Raises:
        DataError: if a file lacks a column, or a column holds text in one file and numbers in another; names both.
    """
    columns = _same_columns(tables, ignore)
    mixed = frozenset(name for name in columns if _as_text(name, tables, name in spelled))
    if mixed:
        tables = [table if is_parquet(table.path) else read(table.path, as_text=mixed) for table in tables]
    for name in columns:
        if name not in spelled:
            _check_kinds(name, tables)
    return [table.select(columns) for table in tables]


def _same_columns(tables: Sequence[Table], ignore: frozenset[str]) -> list[str]:
    everywhere = [name for name in dict.fromkeys(n for t in tables for n in t.frame.columns) if name not in ignore]
    for name in everywhere:
        having = next(table for table in tables if name in table.frame.columns)
        for table in tables:
            if name not in table.frame.columns:
                raise DataError(table.path, f"has no column {name!r}, {having.path} has: add it, or --ignore {name}")
    return [name for name in tables[0].frame.columns if name not in ignore]


def _as_text(name: str, tables: Sequence[Table], is_spelled: bool) -> bool:
    kinds = {kind_of(table.frame[name]) for table in tables}
    return TEXT in kinds and (BOOLEANS in kinds or (is_spelled and NUMBERS in kinds))


def _check_kinds(name: str, tables: Sequence[Table]) -> None:
    first = tables[0]
    wanted = kind_of(first.frame[name])
    for table in tables[1:]:
        column = table.frame[name]
        kind = kind_of(column)
        if kind is None or kind == (wanted or NUMBERS) or {kind, wanted} == {TEXT, BOOLEANS}:
            continue
        there = f"{wanted or 'no value, which makes it a number,'} in {first.path}"
        remedy = f"make them alike, name it with --categorical {name}, or leave it out with --ignore {name}"
        if {kind, wanted} != {TEXT, NUMBERS}:
            raise table.fault(column, f"holds {kind}, but {there}: {remedy}")
        text, other = (table, first) if kind == TEXT else (first, table)
        values = text.frame[name]
        word = values.is_not_null() & values.cast(pl.String).cast(pl.Float64, strict=False).is_null()
        row = int(word.arg_max() or 0) if word.any() else None
        found = TEXT if row is None else f"text ({values[row]!r})"
        missing = "a missing value is an empty field or NULL"
        raise text.fault(values, f"holds {found}, but numbers in {other.path}: {missing}; {remedy}", row)


def kind_of(column: pl.Series) -> str | None:
    """What a column holds; None where it has no value, of which CSV cannot tell the kind."""
    dtype = column.dtype
    if column.null_count() == len(column):
        return None
    if dtype.is_numeric():
        return NUMBERS
    if dtype == pl.Boolean:
        return BOOLEANS
    return TEXT if dtype in (pl.String, pl.Categorical, pl.Enum) else str(dtype)
