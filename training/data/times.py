"""What is a time in a table: dates, datetimes, ISO 8601 text, numbers that grow."""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Int

from listwright.training.data.cells import is_text, names_in, numbers_in
from listwright.training.data.fault import Fault

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


def count_times(text: pl.Series) -> int:
    """How many values of a column of text are a date or a datetime, as ISO 8601 or people write them."""
    return int(_looks(text).sum())


def reads_as_time(text: pl.Series) -> bool:
    """Whether every value of a column of text is a date or a datetime; False if there is none."""
    first = text.drop_nulls().head(1)
    return len(first) > 0 and bool(_looks(first)[0]) and bool(_looks(text).all())


def is_iso(text: pl.Series) -> bool:
    """Whether every value of a column of text is a time as :func:`times_of` reads it."""
    return bool(text.str.contains(_ISO).all())


def _looks(text: pl.Series) -> pl.Series:
    return text.str.contains(_ISO) | text.str.contains(_DATE)


def times_of(column: pl.Series, rows: Int[np.ndarray, " N"], fault: Fault) -> list[Time | None]:
    """The times in some rows of a column; None where there is none.

    Args:
        column: numbers, dates, datetimes, or ISO 8601 text; a datetime without a zone counts as UTC.
        rows: their numbers, from 0.
        fault: says where a wrong value stands.

    Raises:
        DataError: if any row of the column holds something else; names the first such value.
    """
    found = numbers_in(column)
    if is_text(column):
        column = found.values if len(found.wrong) == 0 else _parsed(names_in(column), fault)
    if column.dtype == pl.Date:
        return column.gather(rows).dt.strftime("%Y-%m-%d").to_list()
    if isinstance(column.dtype, pl.Datetime):
        moments = column.gather(rows)
        if column.dtype.time_zone:
            moments = moments.dt.convert_time_zone("UTC")
        return moments.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_list()
    if not column.dtype.is_numeric():
        wanted = "expected times: numbers, dates, datetimes or text as ISO 8601 has it"
        raise fault(column, f"{wanted}; the column holds {column.dtype}")
    if column.dtype.is_integer():
        return column.gather(rows).to_list()
    numbers = found.values.cast(pl.Float64)
    if numbers.is_infinite().any():
        row = int(numbers.is_infinite().arg_max() or 0)
        raise fault(column, f"expected a time; found {column[row]!r}", row)
    return numbers.gather(rows).to_list()


def shown(time: Time) -> str:
    """A time as a person reads it: without a fraction of a second, or an hour, that says nothing."""
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
