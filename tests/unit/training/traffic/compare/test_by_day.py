"""Sums that grow from day to day, and which days are looked at."""

from datetime import date, timedelta

import polars as pl

from listwright.training.traffic.compare.compare import MOST_LOOKS, _cumulative_sums, _looks_of

FIRST = date(2026, 1, 1)


def test_sums_of_units_grow():
    sums = pl.DataFrame(
        {"unit": ["b", "a", "b", "b"], "day": [FIRST + timedelta(days=n) for n in (2, 0, 0, 2)], "n": [4, 1, 2, 8]}
    )
    found = [(day, totals[:, 0].tolist()) for day, totals in _cumulative_sums(sums, ["n"])]
    assert found == [(FIRST, [1.0, 2.0]), (FIRST + timedelta(days=2), [1.0, 14.0])]


def test_many_days_are_looked_at_every_few():
    days = pl.Series([FIRST + timedelta(days=n) for n in range(200)])
    looks = _looks_of(days)
    assert len(looks) <= MOST_LOOKS
    assert looks[0] == FIRST
    assert looks[-1] == days[-1]
    assert len(_looks_of(days.head(MOST_LOOKS))) == MOST_LOOKS


def test_days_between_two_looks_are_not_lost():
    days = [FIRST + timedelta(days=n) for n in range(200)]
    sums = pl.DataFrame({"unit": [str(n % 7) for n in range(200)], "day": days, "n": 1})
    *_, (last, totals) = _cumulative_sums(sums, ["n"])
    assert last == days[-1]
    assert totals.sum() == 200
