"""The meaning of a column's cells, in a file or a frame: missing, a number, a name, or a time.

:func:`listwright.ranking.features.spelled` is the rule for one value, by which requests are read, too. Columns are
text, as in CSV, or typed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError
from listwright.ranking.features import MISSING_WORDS, PADDING, WHOLE, Feature, spelled

_TEXT = (pl.String, pl.Categorical, pl.Enum)

_WORDS = "|".join(word.replace("\\", r"\\") for word in (*MISSING_WORDS, "true", "false", "-0"))

_RESPELLED = rf"(?i)^[{PADDING}]|[{PADDING}]$|^(?:{_WORDS}|{WHOLE})$"
"""Texts that :func:`spelled` may change; few, where there are any."""

_NARROW: dict[type[pl.DataType], type[np.floating]] = {pl.Float32: np.float32, pl.Float16: np.float16}

EXACT: dict[type[pl.DataType], float] = {pl.Float64: 2.0**53, pl.Float32: 2.0**24, pl.Float16: 2.0**11}
"""Largest number below which a float holds all whole numbers."""

_ROUNDED = r"^-?\d(?:[.,]\d+)?[eE]\+?\d+$"
"""How programs write a whole number after they have rounded it."""

_CODE = r"^0\d"
"""What codes of digits may begin with; numbers seldom do."""

_CURRENCY = r"[\p{Sc}%]?"

_SIGN = r"[-+\x{2212}]?"

_WRITTEN = (
    rf"^\(?{_SIGN}{_CURRENCY}\s?{_SIGN}(?:\d+|\d{{1,3}}(?:[., \x{{a0}}\x{{202f}}'\x{{2019}}_]\d{{3}})+)(?:[.,]\d+)?"
    rf"\s?{_CURRENCY}\)?$"
)
"""Numbers as people and spreadsheets write them: with separators of thousands, decimal commas, currencies, per cent."""

LOOKED_AT = 10_000
"""Rows that are searched for codes."""

_ISO = (
    r"^(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
    r"(?:[T ]((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)? ?(?:(Z|UTC)|([+-]\d{2}):?(\d{2})?)?)?$"
)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)

_DAY = r"\d{1,2}(?:st|nd|rd|th)?"

_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"

_DATE = (
    r"(?i)^\d{1,2}(?:/\d{1,2}/(?:\d{4}|\d{2})|[.-]\d{1,2}[.-]\d{4})(?:[ ,]|$)|^\d{4}[./]\d{1,2}[./]\d{1,2}(?:[ ,]|$)"
    r"|^\d{4}-(?:1[0-2]|0?[1-9])-(?:[12]\d|3[01]|0?[1-9])(?:[ ,]|$)"
    rf"|^{_WEEKDAY}{_DAY}[ -]{_MONTH},?[ -]\d{{2,4}}(?:[ ,]|$)|^{_WEEKDAY}{_MONTH} {_DAY},? \d{{4}}(?:[ ,]|$)"
)
"""Dates as people write them: 31/05/2024, 5/31/24, 31.05.2024, 2024/05/31, 2 Jan 2024. 20-01-02 may be a code."""

_PARTS = ("day", "minute", "second", "fraction", "utc", "hours", "minutes")

_UNITS = (("seconds", 1.0), ("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9))

_DIGITS = (("YYYYMMDD", 1e6), ("YYYYMMDDhhmm", 1e10), ("YYYYMMDDhhmmss", 1e12))

Time = str | int | float
"""A time that compares with others of its column; text is ISO 8601 in UTC, of one form per column."""

TIMES_IN_NUMBERS = (
    *((f"{unit} since 1970", 5e8 * scale, 4.2e9 * scale) for unit, scale in _UNITS),
    *((form, 19.0 * scale, 21.01 * scale) for form, scale in _DIGITS),
)
"""What a time may be as a number: its form, the lowest and the highest; of the years 1985 to 2103, or 1900 to 2100."""


class Numbers(NamedTuple):
    """A column as numbers.

    Args:
        values: ``(R,)`` of a numeric type, null where there is none.
        wrong: Row numbers of cells that are neither a number nor missing, in order.
    """

    values: pl.Series
    wrong: Int[np.ndarray, " bad"]


def is_text(column: pl.Series) -> bool:
    """Return whether a column holds text, categorical or not, or bytes in UTF-8, as Spark, Hive and Impala write it."""
    with suppress(pl.exceptions.ComputeError):
        return column.dtype in _TEXT or (column.dtype == pl.Binary and len(column.cast(pl.String)) == len(column))
    return False


def is_usable(column: pl.Series) -> bool:
    """Return whether a column's type is usable: no list, struct, other bytes, object of Python, extension of Arrow."""
    dtype, others = column.dtype, (pl.Binary, pl.Object)
    return is_text(column) or not (dtype.is_nested() or dtype in others or isinstance(dtype, pl.BaseExtension))


def numbers_in(column: pl.Series, *, booleans: bool = False) -> Numbers:
    """Return the numbers of a column; whole ones stay exact.

    Args:
        booleans: Whether true is 1 and false is 0; otherwise they are no numbers.
    """
    dtype = column.dtype
    if dtype.is_numeric() or dtype == pl.Null:
        values = column.fill_nan(None) if dtype.is_float() else column
        return Numbers(values.cast(pl.Float64) if dtype == pl.Null else values, np.empty(0, dtype=np.int64))
    if dtype == pl.Boolean and booleans:
        return Numbers(column.cast(pl.UInt8), np.empty(0, dtype=np.int64))
    if not is_text(column):
        return Numbers(pl.Series([None], dtype=pl.Float64).new_from_index(0, len(column)), _rows(column.is_not_null()))
    text = column.cast(pl.String)
    values = text.cast(pl.Float64, strict=False)
    rows = _rows((values.is_null() | values.is_nan()) & text.is_not_null())
    wrong = rows
    if len(rows):
        names = names_in(text if len(rows) == len(text) else text.gather(rows))
        if booleans:
            names = names.replace(["true", "false"], ["1", "0"])
        respelled = names.cast(pl.Float64, strict=False)
        wrong = rows[(names.is_not_null() & respelled.is_null()).to_numpy()]
        if respelled.null_count() < len(rows):
            values = values.scatter(rows, respelled)
        values = values.fill_nan(None)
    if (values.abs() >= EXACT[pl.Float64]).any():
        whole = names_in(text).cast(pl.Int128, strict=False)
        values = whole if whole.null_count() == values.null_count() else values
    return Numbers(values.alias(column.name), wrong)


def written_numbers(column: pl.Series, numbers: Numbers) -> Int[np.ndarray, " bad"]:
    """Return the rows of a text column with a number as people write it, ``1,234.50 €``, which is not parsed as one."""
    names = names_in(column.gather(numbers.wrong))
    written = names.unique()
    rows: Int[np.ndarray, " bad"] = numbers.wrong[
        _rows(names.is_in(written.filter(written.str.contains(_WRITTEN)).implode()))
    ]
    return rows


def names_in(column: pl.Series) -> pl.Series:
    """Return the names of categories or ids in a column; null where one is missing."""
    if is_text(column):
        text = column.cast(pl.String)
        values = text.unique()
        values = values.filter(values.str.contains(_RESPELLED))
        return text.replace(values, _spelled(values)) if len(values) else text
    if column.dtype.is_integer() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.String)
    if column.dtype == pl.Datetime("ns"):  # Python has none, and would make one of several
        return column.dt.to_string("%F %T%.9f").str.replace(r"(?:\.0{9}|0{3})$", "")
    if column.dtype == pl.Binary:
        raise DataError("the data", "holds bytes that are no text in UTF-8", column=column.name)
    if not is_usable(column):
        return pl.Series(column.name, [spelled(value) for value in column.to_list()], dtype=pl.String)
    values = column.fill_nan(None) if column.dtype.is_float() else column  # no NaN is another one's equal
    different = values.unique()
    return values.replace_strict(different, _spelled(different), return_dtype=pl.String)


def codes_in(column: pl.Series, feature: Feature) -> Float[np.ndarray, " R"]:
    """Return the codes of a categorical feature."""
    names = column.cast(pl.String) if is_text(column) else names_in(column)
    values = names.unique()
    codes = pl.Series([feature.code(value) for value in values.to_list()], dtype=pl.Float32)
    codes_of_rows: Float[np.ndarray, " R"] = names.replace_strict(values, codes, return_dtype=pl.Float32).to_numpy()
    return codes_of_rows


def count_rounded(column: pl.Series) -> int:
    """Count the ids of a column that a program has rounded to float64, so that different ones may be equal now."""
    if is_text(column):
        return int(column.cast(pl.String).str.contains(_ROUNDED).sum())
    if not column.dtype.is_float():
        return 0
    return int((column.abs() > EXACT[type(column.dtype)]).sum())


def coded_note(column: pl.Series, leave_out: str) -> str | None:
    """Return a note on a column of text that was read as numbers, if they look like codes; else None."""
    cells = column.head(LOOKED_AT).cast(pl.String) if is_text(column) else pl.Series([], dtype=pl.String)
    codes = cells.filter(cells.str.contains(_CODE))
    if len(codes) == 0:
        return None
    return f"{column.name!r} has text such as {codes[0]!r}, and was read as numbers. If these are codes, {leave_out}"


def rounded_note(name: str, count: int, rows: int) -> str:
    """Return a note on a column of rounded ids."""
    return (
        f"{name!r} has rounded numbers in {count} of {rows} rows: float64 holds whole numbers up to 2^53, so different "
        "ids may have become one. Write them as text, or as whole numbers before anything makes floats of them"
    )


def _spelled(values: pl.Series) -> pl.Series:
    """Return the name of each value."""
    narrow = _NARROW.get(type(values.dtype))
    typed = (None if value is None or narrow is None else narrow(value) for value in values.to_list())
    plain_values = typed if narrow else values.to_list()
    return pl.Series([spelled(value) for value in plain_values], dtype=pl.String)


def _rows(mask: pl.Series) -> Int[np.ndarray, " bad"]:
    return mask.fill_null(value=False).arg_true().to_numpy().astype(np.int64)


def count_times(text: pl.Series) -> int:
    """Count the dates and datetimes in a column of text, as ISO 8601 or people write them."""
    return int(_looks(text).sum())


def reads_as_time(text: pl.Series) -> bool:
    """Return whether every value of a column of text is a date or a datetime; False if it has no value."""
    first = text.drop_nulls().head(1)
    return len(first) > 0 and bool(_looks(first)[0]) and bool(_looks(text).all())


def is_iso(text: pl.Series) -> bool:
    """Return whether every value of a column of text is a time that :func:`times_of` reads."""
    return bool(text.str.contains(_ISO).all())


def _looks(text: pl.Series) -> pl.Series:
    return text.str.contains(_ISO) | text.str.contains(_DATE)


def times_of(column: pl.Series, rows: Int[np.ndarray, " M"], fault: Fault) -> list[Time | None]:
    """Return the times in some rows of a column; None where there is none.

    Args:
        column: Numbers, dates, datetimes, or ISO 8601 text; a datetime without a zone counts as UTC.
        rows: Row numbers, from 0.
        fault: Function that creates the error for a wrong value.

    Raises:
        DataError: if any row of the column holds something else; names the first such value.
    """
    numbers_of_column = numbers_in(column)
    if is_text(column):
        column = numbers_of_column.values if len(numbers_of_column.wrong) == 0 else _parsed(names_in(column), fault)
    if column.dtype == pl.Date:
        return column.gather(rows).dt.strftime("%Y-%m-%d").to_list()
    if isinstance(column.dtype, pl.Datetime):
        moments = column.gather(rows)
        if column.dtype.time_zone:
            moments = moments.dt.convert_time_zone("UTC")
        return moments.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_list()
    if not column.dtype.is_numeric():
        expected = "expected times: numbers, dates, datetimes or text as ISO 8601 has it"
        raise fault(column, f"{expected}; the column holds {column.dtype}")
    if column.dtype.is_integer():
        return column.gather(rows).to_list()
    numbers = numbers_of_column.values.cast(pl.Float64)
    if numbers.is_infinite().any():
        row = int(numbers.is_infinite().arg_max() or 0)
        raise fault(column, f"expected a time; found {column[row]!r}", row)
    return numbers.gather(rows).to_list()


def time_text(time: Time) -> str:
    """Format a time for display, without a zero fraction of a second or a zero hour."""
    if isinstance(time, float):
        return f"{time:.15g}"
    return str(time).removesuffix(".000000").removesuffix("T00:00:00")


def _parsed(text: pl.Series, fault: Fault) -> pl.Series:
    parts = text.str.extract_groups(_ISO).struct.rename_fields(list(_PARTS)).struct.unnest()
    if parts.select(pl.all().exclude("day").is_null().all()).row(0) == (True,) * (len(_PARTS) - 1):
        times = parts["day"].str.to_date("%Y-%m-%d", strict=False)
    else:
        zone = pl.concat_str("hours", pl.lit(":"), pl.col("minutes").fill_null("00"))
        minute, second = pl.col("minute").fill_null("00:00"), pl.col("second").fill_null("00")
        fraction = pl.concat_str(pl.lit("."), pl.col("fraction").fill_null("0"))
        whole = pl.concat_str("day", pl.lit("T"), minute, pl.lit(":"), second, fraction, zone.fill_null("+00:00"))
        moment = whole.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", time_zone="UTC", strict=False)
        times = parts.select(moment).to_series()
    wrong = times.is_null() & text.is_not_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise fault(text, f"expected a time as ISO 8601 has it, such as 2024-05-31T18:30:00; found {text[row]!r}", row)
    return times.alias(text.name)


@runtime_checkable
class Fault(Protocol):
    """Constructor of the error for a fault in a source, with its place."""

    def __call__(self, column: pl.Series, expected: str, row: int | None = None) -> DataError:
        """Return the error of a column, or of one of its rows counted from 0."""
