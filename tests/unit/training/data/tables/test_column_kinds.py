"""Columns that could be mistaken: dates, numbers with words among them, neither numbers nor text."""

import datetime

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.training.recipe.data import TableSplit
from support.training.own_table import SPEC


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1], [2]], "List"),
        ([{"a": 1}, {"a": 2}], "Struct"),
        ([b"1", b"\xff"], "Binary, neither numbers nor text: --ignore it"),
        (
            [datetime.date(2020, 1, 1)] * 2,
            "holds Date: make it a number, or --ignore it, or split by it with --split time",
        ),
        ([datetime.timedelta(1)] * 2, "holds Duration"),
    ],
)
def test_columns_that_are_neither_numbers_nor_text(parquet, values, expected):
    frame = pl.DataFrame({"q": [1, 1], "y": [0, 1], "x": values})
    with pytest.raises(DataError, match="column x") as caught:
        parquet(frame)
    assert expected in str(caught.value)


TEXT = {
    "q": ["a", "a", "b"],
    "y": ["0", "1", "0"],
    "number": ["1.5", "NA", None],
    "name": ["é", " x ", None],
}


def test_bytes_in_utf8_are_text(parquet):
    """As Spark, Hive and Impala write text into Parquet without saying so."""
    spec = SPEC.model_copy(update={"categorical": ("name",)})
    of_text = parquet(pl.DataFrame(TEXT), spec)
    of_bytes = parquet(pl.DataFrame(TEXT).with_columns(pl.all().cast(pl.Binary)), spec)
    assert of_bytes.qids == ("a", "b")
    assert of_bytes.schema == of_text.schema
    assert of_bytes.labels.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(of_bytes.features, of_text.features)
    assert of_bytes.features[:, 0].tolist()[:1] == [1.5]


def test_dates_in_bytes_are_no_categories(parquet):
    frame = pl.DataFrame({"q": [1, 1], "y": [0, 1], "x": [b"2024-05-31", b"2024-06-01"]})
    with pytest.raises(DataError, match="column x: holds text that reads as dates"):
        parquet(frame)


@pytest.mark.parametrize("name", ["q", "name"])
def test_other_bytes_are_refused_with_their_column(parquet, name):
    other = pl.Series(name, [b"a", b"a\xff", b"b"])
    with pytest.raises(DataError, match=rf"t\.parquet, column {name}: holds Binary"):
        parquet(pl.DataFrame(TEXT).with_columns(other))


def test_a_date_may_be_a_category(parquet):
    frame = pl.DataFrame({"q": [1, 1], "y": [0, 1], "x": [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]})
    data = parquet(frame, SPEC.model_copy(update={"categorical": ("x",)}))
    assert data.schema.features[0].categories == ("2020-01-01", "2020-01-02")


def test_ids_that_differ_by_a_nanosecond_are_two(parquet):
    begin = "2024-05-31 18:30:00"
    times = pl.Series([f"{begin}.{end}" for end in ("000000000", "000000001", "123000000", "123456000")])
    frame = pl.DataFrame(
        {"q": times.str.to_datetime("%F %T.%9f", time_unit="ns"), "y": [0, 1, 0, 1], "x": [1, 2, 3, 4]}
    )
    assert parquet(frame).qids == (begin, f"{begin}.000000001", f"{begin}.123000", f"{begin}.123456")


TIMES = [
    "31/05/2024",
    "5/31/24",
    "31.05.2024",
    "2024/5/31",
    "2024/05/31 10:00",
    "2020-01-02",
    "2020-01-02 03:04",
    "2020-01-02T03:04:05",
    "2020-01-02T03:04:05.678Z",
    "2020-01-02T03:04+01:00",
    "2020-1-2",
    "2 Jan 2024",
    "31-May-2024",
    "Tue, 02 Jan 2024 10:30:00 GMT",
    "Jan 2nd, 2024",
    "31 JANUARY 2024",
    "Tue Jan 02 2024 10:30:00 GMT+0100",
    "Tuesday, 2 January 2024",
]


@pytest.mark.parametrize("time", TIMES)
def test_text_that_reads_as_dates_is_refused_as_dates_are(table, time):
    with pytest.raises(DataError, match="column x: holds text that reads as dates") as caught:
        table(f'q,y,x\n1,0,\n1,1,"{time}"\n')
    assert f"({time!r}): make it a number, or --ignore it" in str(caught.value)
    assert ("--split time --time-column x" in str(caught.value)) == time.startswith("2020-01-02")
    data = table(f'q,y,x\n1,0,\n1,1,"{time}"\n', SPEC.model_copy(update={"categorical": ("x",)}))
    assert data.schema.features[0].categories == (time,)
    by_another = SPEC.model_copy(update={"split": TableSplit(by="time", column="t")})
    with pytest.raises(DataError, match=r"make it a number, or --ignore it$"):
        table(f'q,y,x,t\n1,0,,1\n1,1,"{time}",1\n', by_another)


@pytest.mark.parametrize(
    "text",
    [
        "2020",
        "2020-13-02",
        "2020-01-32",
        "2020-01-02x",
        "20-01-02",
        "2020-01-02T25:00",
        "soon",
        "12 Market 500",
        "3 Decks 12",
        "Mars 5, 2020",
    ],
)
def test_text_that_is_no_date_is_a_category(table, text):
    assert (
        table(f'q,y,x,c\n1,0,2020-01-02,a\n1,0,2020-01-03,a\n1,1,"{text}",b\n').schema.features[0].kind == "categorical"
    )


NUMBERS = [f"{n}.5" for n in range(40)]


def rows(cells):
    return "q,y,x,k\n" + "".join(f"1,0,{cell},1\n" for cell in cells)


@pytest.mark.parametrize("cell", ["unknown", "?", "1,5", "\uff15", "1e", "12 EUR"])
def test_a_cell_that_is_no_number_among_numbers_is_refused(table, cell):
    cells = [*NUMBERS[:7], f'"{cell}"', *NUMBERS[7:]]
    with pytest.raises(DataError, match="line 9, column x: expected a number, as most rows have; found") as caught:
        table(rows(cells))
    assert f"{cell!r}: leave such cells empty" in str(caught.value)
    data = table(rows(cells), SPEC.model_copy(update={"categorical": ("x",)}))
    assert data.schema.features[0].kind == "categorical"


WRITTEN = [
    *("1,234.50", "1,234", "12,5", "-1,5", "1.234,50", "1 234", "1\u202f234,5", "1'234.5", "1_000", "\u22125"),
    *("$1,234.50", "\u20ac12", "12 \u20ac", "-$5", "12%", "5 %", "(1,200.00)"),
]


@pytest.mark.parametrize("cell", WRITTEN)
def test_numbers_as_people_write_them_are_no_categories(table, cell):
    """A spreadsheet writes a whole column so, but for numbers below 1,000, or but for some words."""
    cells = ["15", "", *[f'"{cell}"'] * 4, "many"]
    with pytest.raises(DataError, match="column x: expected a number") as caught:
        table(rows(cells))
    assert (caught.value.line, repr(cell) in str(caught.value)) == (4, True)
    data = table(rows(cells), SPEC.model_copy(update={"categorical": ("x",)}))
    assert data.schema.features[0].categories == tuple(sorted(["15", cell, "many"]))


@pytest.mark.parametrize(
    "cell", ["A5", "XL 5", "BMW 320", "10-12", "1:30", "1.2.3", "5 x", "12/3", "%", "$", ",", "v1"]
)
def test_text_with_digits_in_it_is_a_category(table, cell):
    assert table(rows([f'"{cell}"'] * 4)).schema.features[0].categories == (cell,)


@pytest.mark.parametrize("numbers", [1, 9, 10, 11, 19])
def test_text_of_which_half_are_numbers_is_no_category_by_itself(table, numbers):
    cells = [*(str(n % 3) for n in range(numbers)), *["NA", ""], *["many"] * (20 - numbers)]
    if numbers < 10:
        assert table(rows(cells)).schema.features[0].kind == "categorical"
        return
    with pytest.raises(DataError, match=r"column x: .*'many'") as caught:
        table(rows(cells))
    assert caught.value.line == 2 + numbers + 2
    named = table(rows(cells), SPEC.model_copy(update={"categorical": ("x",)}))
    assert named.schema.features[0].categories == (*sorted({str(n % 3) for n in range(numbers)}), "many")


def test_dates_that_say_themselves_that_they_are_categories(parquet):
    frame = pl.DataFrame({"q": [1, 1], "y": [0, 1], "x": pl.Series(["2020-01-02"] * 2, dtype=pl.Categorical)})
    assert parquet(frame).schema.features[0].categories == ("2020-01-02",)
