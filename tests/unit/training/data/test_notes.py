"""What is pointed out about data, from the source to the note."""

import numpy as np
import polars as pl
import pytest

from listwright.training.data.load import doubtful, load
from listwright.training.recipe import config
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import TableData, TableSplit
from support.lists import lists

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


@pytest.mark.parametrize("values", [1e9 * np.exp(NOISE), (1e5 * np.exp(NOISE)).round(), 4e9 + (QUERY % 7)])
def test_large_amounts_are_no_ids(table, values):
    assert not any("float32" in said for said in doubtful(table(amount=values)))


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
    assert only(doubtful(table(ts=1_700_000_000 + QUERY))).endswith("or split by it with --split time --time-column ts")
    text = "".join(f"{y} qid:{q} 1:{x} 2:{p}\n" for q, y, x, p in zip(QUERY, LABELS, NOISE, PLACE, strict=True))
    (tmp_path / "rows.txt").write_text(text)
    said = only(doubtful(load(config.load("letor"), [str(tmp_path / "rows.txt")])))
    assert said.startswith("'f2' counts the candidates")
    assert said.endswith("leave it out of the text")
    assert only(doubtful(load(config.load("planted"), []))).endswith("change [data] of the recipe")


def test_a_time_is_no_remedy_where_the_split_is_made_already(table):
    columns = {"ts": 1_700_000_000 + QUERY, "part": [("train", "train", "dev", "test")[q % 4] for q in QUERY]}
    said = only(doubtful(table(**columns, split=TableSplit(by="column", column="part"))))
    assert said.endswith("leave it out with --ignore ts")
