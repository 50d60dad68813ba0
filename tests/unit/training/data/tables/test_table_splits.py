"""One table split by time, or as a column of it says: who goes where, and what is no time and no split."""

import datetime

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.tables import table
from listwright.training.recipe.data import TableData, TableSplit

DAY = datetime.date(2024, 1, 1)
MOMENT = datetime.datetime(2024, 1, 1, 12)


def rows(marks, **more):
    """Two candidates per query, 1 to N, of which the first is relevant; ``marks`` has one per query."""
    qids = [f"q{n}" for n in range(1, len(marks) + 1)]
    twice = {
        "q": np.repeat(qids, 2).tolist(),
        "y": [1, 0] * len(marks),
        "t": [m for mark in marks for m in (mark, mark)],
    }
    return pl.DataFrame(twice | {"x": range(2 * len(marks))} | more, strict=False)


@pytest.fixture
def splits_of(tmp_path):
    def load(frame, by="time", *, fold=1, seed=0, column="t", suffix=".csv", parts=5, name="rows", **changes):
        path = tmp_path / f"{name}{suffix}"
        frame.write_csv(path) if suffix == ".csv" else frame.write_parquet(path)
        split = TableSplit(by=by, column=column, parts=parts)
        spec = TableData(qid="q", label="y", split=split, **changes)
        return table.load(spec, [str(path)], fold=fold, rng=np.random.default_rng(seed))

    return load


def numbers(splits):
    return [[int(qid[1:]) for qid in part.qids] for part in (splits.train, splits.valid, splits.test)]


KINDS = {  # ten times from the newest to the oldest, the file they stand in, and how the fifth is shown
    "whole numbers": ([1_700_000_000_000_000_000 - n for n in range(10)], ".csv", "1699999999999999996"),
    "fractions": ([-n / 8 for n in range(10)], ".csv", "-0.5"),
    "days as text": ([str(DAY - datetime.timedelta(days=n)) for n in range(10)], ".csv", "2023-12-28"),
    "seconds as text": ([f"2024-01-{20 - n} 12:00:05" for n in range(10)], ".csv", "2024-01-16T12:00:05"),
    "minutes as text": ([f"2024-01-01T{20 - n}:30Z" for n in range(10)], ".csv", "2024-01-01T16:30:00"),
    "fractions as text": ([f"2024-01-01T12:00:00.{20 - n}" for n in range(10)], ".csv", "2024-01-01T12:00:00.160000"),
    "text in Parquet": ([f"2024-01-{20 - n} 00:00" for n in range(10)], ".parquet", "2024-01-16"),
    "dates": ([DAY - datetime.timedelta(days=n) for n in range(10)], ".parquet", "2023-12-28"),
    "datetimes": ([MOMENT - datetime.timedelta(hours=n) for n in range(10)], ".parquet", "2024-01-01T08:00:00"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_oldest_train_and_the_newest_test(splits_of, kind):
    marks, suffix, fifth = KINDS[kind]
    splits = splits_of(rows(marks), suffix=suffix)
    assert numbers(splits) == [[5, 6, 7, 8, 9, 10], [3, 4], [1, 2]]
    assert splits.train.schema.names == ("x",), "the time is no feature"
    assert splits.how.startswith(f"rows{suffix}, split by time (t) 60/20/20, train until {fifth}, valid from ")


def test_the_borders_are_told(splits_of):
    assert splits_of(rows([f"2024-01-{20 - n}" for n in range(10)])).how == (
        "rows.csv, split by time (t) 60/20/20, train until 2024-01-16, valid from 2024-01-17 until 2024-01-18, test from "
        "2024-01-19: training 6 queries / 12 candidates, validation 2 queries / 4 candidates, test 2 queries / 4 candidates"
    )


def test_times_with_other_zones_compare_as_moments(splits_of):
    """In text the first is the latest; as moments it is the earliest."""
    marks = [
        "2024-01-01T12:00+05:00",
        "2024-01-01T11:00Z",
        "2024-01-01T09:30-02",
        "2024-01-01 12:00:00 UTC",
        "2024-01-01T10:00",
    ]
    assert numbers(splits_of(rows(marks))) == [[1, 2, 5], [3], [4]]


def test_an_hour_that_comes_twice_in_its_zone_is_told_apart(splits_of):
    """The night in which Berlin goes back from 03:00 to 02:00: clocks show 02:30 and 02:45 twice."""
    minutes = [30, 45, 30 + 60, 45 + 60, 180]
    night = [datetime.datetime(2024, 10, 27, 0, tzinfo=datetime.UTC) + datetime.timedelta(minutes=m) for m in minutes]
    frame = rows(night).with_columns(pl.col("t").cast(pl.Datetime("ms", "Europe/Berlin")))
    splits = splits_of(frame, suffix=".parquet")
    assert numbers(splits) == [[1, 2, 3], [4], [5]]
    assert "train until 2024-10-27T01:30:00, valid from 2024-10-27T01:45:00" in splits.how


def test_a_query_is_as_old_as_its_first_row(splits_of):
    frame = rows(list(range(10))).with_columns(
        t=pl.when(pl.int_range(pl.len()) % 2 == 1).then(None).otherwise(pl.col("t"))
    )
    shuffled = pl.concat([frame, frame.with_columns(t=pl.lit(-5, pl.Int64), y=pl.lit(0, pl.Int64))])
    assert numbers(splits_of(shuffled)) == [[1, 2, 3, 4, 5, 6], [7, 8], [9, 10]]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([1, 2, 3, 4, 5, 5, 5, 5, 6, 7], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]),
        ([1, 2, 3, 3, 3, 3, 4, 5, 6, 7], [[1, 2, 3, 4, 5, 6], [7, 8], [9, 10]]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 8, 8], [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10]]),
        ([1, 1, 1, 1, 1, 1, 1, 1, 2, 3], [[1, 2, 3, 4, 5, 6, 7, 8], [9], [10]]),
        ([1, 2, 3, 3, 3, 3, 3, 3, 3, 3], [[1], [2], [3, 4, 5, 6, 7, 8, 9, 10]]),
    ],
)
def test_equal_times_stay_on_one_side_of_a_border(splits_of, marks, expected):
    assert numbers(splits_of(rows(marks))) == expected


def test_shares_are_those_of_a_random_split(splits_of):
    frame = rows(list(range(40)))
    by_time = splits_of(frame, parts=10)
    at_random = splits_of(frame, "random", column=None, parts=10, ignore=("t",))
    assert [len(part) for part in (by_time.train, by_time.valid, by_time.test)] == [32, 4, 4]
    assert [len(part) for part in (at_random.train, at_random.valid, at_random.test)] == [32, 4, 4]
    assert "split by time (t) 80/10/10" in by_time.how


@pytest.mark.parametrize(
    ("marks", "suffix", "says"),
    [
        ([*range(9), None], ".csv", "line 20, column t: the first row of a query has no time: give it one"),
        ([*(n / 2 for n in range(9)), float("nan")], ".parquet", "line 19, column t: the first row of a query has no"),
        ([*(n / 2 for n in range(9)), float("inf")], ".parquet", "line 19, column t: expected a time; found inf"),
        ([*["2024-01-01"] * 9, "soon"], ".csv", "line 20, column t: expected a time as ISO 8601 has it.* found 'soon'"),
        ([*["2024-01-01"] * 9, "2023-02-29"], ".csv", "line 20, column t: .* found '2023-02-29'"),
        ([*["2024-01-01"] * 9, "01/02/2024"], ".csv", "line 20, column t: .* found '01/02/2024'"),
        ([True, False] * 5, ".csv", "line 2, column t: expected a time .* found 'true'"),
        ([1] * 5 + [2] * 5, ".csv", "column t: the first rows of all queries are of 1 and 2: .* three different ones"),
        ([1, 2, 3, 4], ".csv", "4 queries cannot be split into 5 parts"),
    ],
)
def test_what_is_no_time_is_named_with_its_place(splits_of, marks, suffix, says):
    with pytest.raises(DataError, match=says):
        splits_of(rows(marks), suffix=suffix)


WORDS = ["train", "dev", "test", "train", "vali", "test", "train", "valid", "validation"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_says_who_goes_where(splits_of, suffix):
    splits = splits_of(rows(WORDS).with_columns(pl.col("t").cast(pl.Categorical)), "column", suffix=suffix)
    assert numbers(splits) == [[1, 4, 7], [2, 5, 8, 9], [3, 6]]
    assert splits.train.schema.names == ("x",), "the split is no feature"
    assert splits.how.startswith(f"rows{suffix}, split by its column t: training 3 queries")


def test_without_validation_queries_some_training_queries_are_set_aside(splits_of):
    frame = rows(["train"] * 10 + ["test"] * 2)
    splits, again, other = (splits_of(frame, "column", seed=seed) for seed in (1, 1, 2))
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [8, 2, 2]
    assert numbers(splits) == numbers(again) != numbers(other)
    assert "its column t (no row of it says valid: 2 training queries were set aside)" in splits.how


@pytest.mark.parametrize(
    ("marks", "more", "says"),
    [
        (["train", "valid", "Test"], {}, "line 6, column t: expected 'train', 'valid' or 'test'; found 'Test'"),
        (["train", None, "test"], {}, "line 4, column t: expected 'train', 'valid' or 'test'; found None"),
        ([0, 1, 2], {}, "line 2, column t: expected 'train', 'valid' or 'test'; found '0'"),
        (["train", "dev", "valid"], {}, "column t: no row says 'test', only 'train' and 'valid'"),
        (["test", "dev"], {}, "column t: no row says 'train'"),
        (["train", "dev", "test"], {"q": ["a", "b", "c", "b", "d", "d"]}, "line 5, column t: query 'b' is 'dev' here and 'train' in line 3"),
    ],
)  # fmt: skip
def test_what_is_no_split_is_named_with_its_place(splits_of, marks, more, says):
    with pytest.raises(DataError, match=says):
        splits_of(rows(marks, **more), "column")


@pytest.mark.parametrize("by", ["time", "column"])
def test_a_table_that_says_itself_how_it_is_split_has_no_folds(splits_of, by):
    marks = list(range(10)) if by == "time" else WORDS
    with pytest.raises(
        RecipeError, match=f"split by --{'time' if by == 'time' else 'split'}-column has one split, there is no fold 2"
    ):
        splits_of(rows(marks), by, fold=2)


def test_the_column_must_be_named_and_be_there(splits_of):
    with pytest.raises(
        RecipeError, match=r"the column of times is not named: pass --time-column COL; .* has q, y, t, x"
    ):
        splits_of(rows([1, 2, 3]), column=None)
    with pytest.raises(RecipeError, match=r"--split-column: no column 'tt' in .*; did you mean 't'\?"):
        splits_of(rows([1, 2, 3]), "column", column="tt")
    with pytest.raises(ValueError, match="a random split looks at none"):
        TableSplit(column="t")


def test_files_that_are_told_apart_are_not_split_once_more(tmp_path):
    spec = TableData(qid="q", label="y", split=TableSplit(by="time", column="t"))
    with pytest.raises(RecipeError, match="says which query belongs where: leave out --time-column, or give one table"):
        table.load(spec, [f"{name}=a.csv" for name in ("train", "valid", "test")], fold=1, rng=np.random.default_rng(0))


def test_what_a_table_is_split_by_comes_from_the_cache_too(splits_of, monkeypatch):
    first = splits_of(rows([f"2024-01-{20 - n}" for n in range(10)]))
    monkeypatch.setattr(pl, "read_csv", lambda *_args, **_more: pytest.fail("parsed again"))
    second = splits_of(rows([f"2024-01-{20 - n}" for n in range(10)]))
    assert (numbers(second), second.how) == (numbers(first), first.how)
