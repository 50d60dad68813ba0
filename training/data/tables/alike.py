"""Tables of the same columns: a column means the same in all, whichever of them its kind was decided by."""

from __future__ import annotations

from collections.abc import Sequence

from listwright.ranking.errors import DataError
from listwright.training.command import in_list
from listwright.training.data.cells import numbers_in
from listwright.training.data.tables.columns import Kind, kind_of
from listwright.training.data.tables.frames import Table

_NAMES = ("text", "booleans")


def alike(tables: Sequence[Table], *, ignore: frozenset[str], named: frozenset[str]) -> list[Table]:
    """The same tables with the same columns, of the same kinds.

    Args:
        tables: the first one fixes columns and kinds.
        ignore: columns that are not looked at.
        named: columns of ids, labels and categories, whose kind is known.

    Returns:
        The tables, with the columns of the first in its order; ignored ones are left out.

    Raises:
        DataError: if a file lacks a column, or a column holds text in one file and numbers in another; names both.
    """
    columns = _same_columns(tables, ignore)
    for name in columns:
        if name not in named:
            _check_kinds(name, tables)
    return [table.select(columns) for table in tables]


def _same_columns(tables: Sequence[Table], ignore: frozenset[str]) -> list[str]:
    everywhere = [name for name in dict.fromkeys(n for t in tables for n in t.frame.columns) if name not in ignore]
    for name in everywhere:
        having = next(table for table in tables if name in table.frame.columns)
        for table in tables:
            if name not in table.frame.columns:
                raise DataError(
                    table.path, f"has no column {name!r}, {having.path} has: add it, or --ignore {in_list(name)}"
                )
    return [name for name in tables[0].frame.columns if name not in ignore]


def _check_kinds(name: str, tables: Sequence[Table]) -> None:
    first = tables[0]
    wanted = _kind(first, name)
    for table in tables[1:]:
        kind = _kind(table, name)
        if kind is None or kind == (wanted or "numbers") or (kind in _NAMES and wanted in _NAMES):
            continue
        there = f"{wanted or 'no value, which makes it a number,'} in {first.path}"
        quoted = in_list(name)
        remedy = f"make them alike, name it with --categorical {quoted}, or leave it out with --ignore {quoted}"
        if {kind, wanted} != {"text", "numbers"}:
            raise table.fault(table.frame[name], f"holds {kind}, but {there}: {remedy}")
        text, other = (table, first) if kind == "text" else (first, table)
        column = text.frame[name]
        wrong = numbers_in(column).wrong
        row = int(wrong[0]) if len(wrong) else None
        found = "text" if row is None else f"text ({column[row]!r})"
        raise text.fault(column, f"holds {found}, but numbers in {other.path}; {remedy}", row)


def _kind(table: Table, name: str) -> Kind | None:
    column = table.frame[name]
    return kind_of(column, numbers_in(column))
