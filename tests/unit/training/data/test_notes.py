"""What is pointed out about data, from the source to the note."""

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from listwright.training.data import leaks
from listwright.training.data.leaks import NEARLY, rounding_of
from listwright.training.data.load import doubtful, load
from listwright.training.recipe import config
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import TableData, TableSplit
from support.lists import lists
from support.strategies import scale_examples

_, QUERY, PLACE, LABELS, RNG = lists()
ROWS = len(QUERY)
NOISE = RNG.normal(size=ROWS)


def only(said):
    (one,) = said
    return one


@pytest.fixture
def table(tmp_path):

    def load_table(*, split=None, **columns):
        frame = pl.DataFrame({"q": [f"q{q}" for q in QUERY], "y": LABELS, "price": NOISE.round(2), **columns})
        frame.write_parquet(tmp_path / "t.parquet")
        recipe = Recipe(name="shop", about="x", data=TableData(qid="q", label="y", split=split or TableSplit()))
        return load(recipe, [str(tmp_path / "t.parquet")])

    return load_table


@pytest.mark.parametrize("first", [4_000_000_000, 2**60])
def test_large_ids_in_a_table_are_seen_before_they_are_rounded(table, first):
    said = only(doubtful(table(session=[first + n for n in range(ROWS)])))
    assert said.startswith(
        f"'session' has {ROWS} different whole numbers in {ROWS} rows, more than float32 tells apart"
    )
    assert said.endswith("leave it out with --ignore session")


def test_large_ids_that_float32_tells_apart_are_ids_like_smaller_ones(table):
    said = only(doubtful(table(session=17_000_000 + 2 * RNG.permutation(ROWS))))
    assert "different values in" in said
    assert "float32" not in said


def test_text_that_tells_rows_apart_is_told_of_once(table):
    assert "looks like an id" in only(doubtful(table(note=[f"r{n}" for n in range(ROWS)])))
    (often,) = doubtful(table(note=[f"r{n // 2}" for n in range(ROWS)]))
    assert "if it is an id or free text, leave it out with --ignore note" in often


@pytest.mark.parametrize("values", [1e9 * np.exp(NOISE), (1e5 * np.exp(NOISE)).round(), 17_000_000 + 2 * (QUERY % 7)])
def test_large_amounts_are_no_ids_and_lose_nothing(table, values):
    assert not any("float32" in said for said in doubtful(table(amount=values)))


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
@pytest.mark.parametrize(
    ("values", "different", "left"),
    [
        (1_700_000_000 + RNG.integers(0, 600, ROWS).repeat(2)[:ROWS], None, 6),  # seconds
        (4_000_000_000 + QUERY % 7, 7, 1),
        (np.where(PLACE == 1, 0, 1_700_000_000 + PLACE), None, 2),  # 0 where there is none
    ],
)
def test_numbers_that_are_one_as_float32_are_told_of(table, kind, values, different, left):
    different = different or len(np.unique(values))
    said = [one for one in doubtful(table(amount=pl.Series(values, dtype=kind))) if "float32" in one]
    assert f"'amount' has {different} different values in {ROWS} rows" in only(said)
    assert re.search(r"tells (\d+) of them apart", only(said))[1] == str(left)


def test_a_price_with_an_offset_is_told_of_and_one_without_is_not(table):
    prices = RNG.permutation(10_000)[:ROWS] / 100
    assert not any("float32" in said for said in doubtful(table(amount=prices)))
    assert any("'amount'" in said and "float32" in said for said in doubtful(table(amount=1e6 + prices)))


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e12, 1e12)))
@settings(max_examples=scale_examples(200))
def test_values_are_counted_as_numpy_counts_them(values):
    found = rounding_of(pl.Series("x", values))
    different, left = (len(np.unique(kind + 0.0)) for kind in (values, values.astype(np.float32)))
    assert (found is None) == (left >= NEARLY * different)
    assert found is None or (found.values, found.left, found.rows) == (different, left, len(values))


def test_numbers_that_are_not_whole_are_counted_in_the_first_rows(monkeypatch):
    """Float32 merges some of very many, whatever they mean."""
    values = pl.Series("x", 1.0 + np.random.default_rng(0).random(1000) * 1e-4)
    assert rounding_of(values) is not None
    monkeypatch.setattr(leaks, "FIRST", 20)
    assert rounding_of(values) is None


@pytest.mark.parametrize("on_disk", [False, True])
def test_files_for_the_splits_are_all_looked_at(tmp_path, on_disk):
    for n, name in enumerate(("train", "valid", "test")):
        amount = 1_700_000_000 + np.arange(ROWS) % 100 if name == "test" else np.arange(ROWS) % 100
        shop = np.array(["a", "b", ""] if name == "train" else ["a-", "B", ""])[np.arange(ROWS) % 3]
        frame = pl.DataFrame({"q": [f"{name}{q}" for q in QUERY], "y": LABELS, "x": NOISE.round(1), "amount": amount})
        frame = frame.with_columns(shop=pl.Series(shop).replace("", None), other=pl.lit("uv"[n % 2]))
        frame.write_parquet(tmp_path / f"{name}.parquet")
    recipe = Recipe(name="shop", about="x", data=TableData(qid="q", label="y"))
    sources = [f"{name}={tmp_path / name}.parquet" for name in ("train", "valid", "test")]
    notes = doubtful(load(recipe, sources, shards="always" if on_disk else "never"))
    assert sum("'amount' has 100 different values" in said for said in notes) == 1
    unknown = [said for said in notes if "unknown categories" in said]
    present = ROWS - len(range(2, ROWS, 3))
    assert [f"'shop' has {present} unknown categories in {present} values" in said for said in unknown] == [
        True,
        False,
        True,
    ]
    assert "'other'" in unknown[1]


def test_large_numbers_close_to_each_other_in_letor_text_are_told_of(tmp_path):
    rows = zip(QUERY, LABELS, NOISE, 1_700_000_000 + np.arange(ROWS) % 600, strict=True)
    (tmp_path / "rows.txt").write_text("".join(f"{y} qid:{q} 1:{x} 2:{t} 3:{t / 1e4}\n" for q, y, x, t in rows))
    said = [one for one in doubtful(load(config.load("letor"), [str(tmp_path / "rows.txt")])) if "float32" in one]
    assert only(said).startswith("'f2' ")


def test_training_queries_alone_are_judged(table):
    """What the test queries show, and what they would hide, changes nothing."""
    clean = table()
    tested = {int(qid[1:]) for part in (clean.valid, clean.test) for qid in part.qids}
    held_out = np.isin(QUERY, list(tested))
    counts = doubtful(table(place=np.where(held_out, 7, PLACE)))
    assert only(counts).startswith("'place' counts the candidates in row order in 24 of 24 training lists")
    assert doubtful(table(place=np.where(held_out, PLACE, NOISE))) == []


def test_each_source_has_its_own_remedy(table, tmp_path):
    assert only(doubtful(table(x=PLACE))).endswith("leave it out with --ignore x")
    assert doubtful(table(ts=1_700_000_000 + QUERY))[0].endswith("or split by it with --split time --time-column ts")
    text = "".join(f"{y} qid:{q} 1:{x} 2:{p}\n" for q, y, x, p in zip(QUERY, LABELS, NOISE, PLACE, strict=True))
    (tmp_path / "rows.txt").write_text(text)
    said = only(doubtful(load(config.load("letor"), [str(tmp_path / "rows.txt")])))
    assert said.startswith("'f2' counts the candidates")
    assert said.endswith("leave it out of the text")
    assert only(doubtful(load(config.load("planted"), []))).endswith("change [data] of the recipe")


def test_a_time_is_no_remedy_where_the_split_is_made_already(table):
    columns = {"ts": 1_700_000_000 + QUERY, "part": [("train", "train", "dev", "test")[q % 4] for q in QUERY]}
    said = doubtful(table(**columns, split=TableSplit(by="column", column="part")))[0]
    assert said.endswith("leave it out with --ignore ts")
