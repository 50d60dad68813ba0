"""Tables of judged rows: their metadata says what their columns are; what a command line says comes first."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.tables import table
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.recipe.data import TableData, TableSplit

FRAME = pl.DataFrame(
    {
        "query_id": np.repeat([f"q{n}" for n in range(10)], 2).tolist(),
        "position": [1, 2] * 10,
        "label": [1, 0] * 10,
        "price": np.arange(20.0),
        "stars": np.arange(20.0)[::-1],
        "served_at": [f"2026-05-{20 - n // 2:02}T12:00:00" for n in range(20)],
        "score": np.zeros(20),
        "swapped": [False] * 20,
        "importance": [2.0] * 20,
    }
)
SAID = judged_metadata(["price", "stars"], qid="query_id", label="label", time="served_at")


@pytest.fixture
def load(tmp_path):
    def run(metadata=SAID, **changes):
        path = tmp_path / "rows.parquet"
        FRAME.lazy().sink_parquet(path, metadata=metadata)
        return table.load(TableData(**changes), [str(path)], fold=1, rng=np.random.default_rng(0))

    return run


def test_nothing_need_be_said(load):
    splits = load()
    assert splits.train.schema.names == ("price", "stars")
    assert sum(len(part) for part in (splits.train, splits.valid, splits.test)) == 10


def test_a_split_by_time_goes_by_the_time_of_serving(load):
    splits = load(split=TableSplit(by="time"))
    assert splits.test.qids == ("q0", "q1")
    assert splits.train.schema.names == ("price", "stars")


def test_what_is_said_comes_first(load):
    splits = load(label="position", weight="importance", ignore=("stars",), categorical=("score",))
    assert splits.train.schema.names == ("price", "score")
    assert set(splits.train.labels) == {1, 2}
    assert splits.train.weights.tolist() == [2.0] * splits.train.rows


def test_three_files(tmp_path):
    files = []
    for number, name in enumerate(("train", "valid", "test")):
        path = tmp_path / f"{name}.parquet"
        FRAME.with_columns(pl.col("query_id") + str(number)).lazy().sink_parquet(path, metadata=SAID)
        files.append(f"{name}={path}")
    splits = table.load(TableData(), files, fold=1, rng=np.random.default_rng(0))
    assert splits.train.schema.names == ("price", "stars")


@pytest.mark.parametrize("metadata", [None, {"listwright.judged": "[]"}])
def test_other_tables_are_read_as_before(load, metadata):
    with pytest.raises(RecipeError, match="--qid"):
        load(metadata=metadata)


def test_candidates_that_were_not_shown_are_refused_for_a_fit(load):
    with pytest.raises(DataError, match="without --unshown"):
        load(judged_metadata(["price", "stars"], qid="query_id", label="label", time="served_at", unshown=True))
