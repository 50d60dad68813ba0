"""Features of a part: the fast way reads what the thorough one does, and leaves it what it cannot read."""

from itertools import pairwise
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, SchemaMismatchError, ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.memory import read_unjudged
from listwright.training.scoring import worker
from listwright.training.scoring.worker import _plain, lists_of, rank_rows
from support.training.scored import lists

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price", kind="numeric", missing_in_training=True),
        Feature(name="city", kind="categorical", categories=("bern", "oslo", "rome")),
        Feature(name="stars", kind="numeric", missing_in_training=True),
    )
)
NUMBERS = st.one_of(st.none(), st.floats(-1e30, 1e30), st.just(float("nan")))
CITIES = st.one_of(st.none(), st.sampled_from(["bern", "oslo", "rome", "paris", "", "2.0"]))
ROWS = st.lists(st.tuples(NUMBERS, CITIES, st.one_of(st.none(), st.integers(-(2**60), 2**60))), min_size=1, max_size=20)


def frame(rows, ids=None, **kinds):
    prices, cities, stars = zip(*rows, strict=True)
    kinds = {"price": pl.Float64, "city": pl.String, "stars": pl.Int64, **kinds}
    ids = sorted(n % 4 for n in range(len(rows))) if ids is None else ids
    made = {"stars": stars, "qid": ids, "price": prices, "city": cities}
    return pl.DataFrame({name: pl.Series(name, made[name], dtype=kinds.get(name)) for name in made})


def in_blocks(found, rows):
    """Features of each list, read in blocks of so many rows."""
    lists = []
    with patch.object(worker, "BLOCK_ROWS", rows):
        for block in found.blocks():
            assert block.rows.dtype == np.float32
            assert block.rows.flags.c_contiguous
            assert len(block.rows) <= max(rows, block.bounds[1]), "more rows than asked for, and more than a list"
            lists += [block.rows[begin:end].copy() for begin, end in pairwise(block.bounds)]
    return lists


@given(ROWS, st.sampled_from([pl.Float64, pl.Float32]), st.integers(1, 25))
def test_plain_columns_are_read_as_the_thorough_way_reads_them(rows, kind, turned):
    table = frame(rows, price=kind)
    found = lists_of(table, SCHEMA, "qid")
    data, order = read_unjudged(table.select(SCHEMA.names), table["qid"], SCHEMA, SCHEMA.names)
    assert found.order is None
    assert (order == np.arange(len(rows))).all()
    lists = in_blocks(found, turned)
    np.testing.assert_array_equal([len(features) for features in lists], np.diff(found.offsets))
    np.testing.assert_array_equal(np.concatenate(lists), data.features)
    np.testing.assert_array_equal(found.codes(SCHEMA), data.features[:, SCHEMA.categorical])
    np.testing.assert_array_equal(np.signbit(found.codes(SCHEMA)), np.signbit(data.features[:, SCHEMA.categorical]))
    np.testing.assert_array_equal(found.offsets, data.offsets)
    assert [str(qid) for qid in found.qids] == list(data.qids)


@pytest.mark.parametrize(
    ("column", "values"),
    [("price", ["1", "few"]), ("price", [float("inf"), 1.0]), ("price", [1.0, 1e39]), ("stars", [True, False])],
)
def test_what_is_not_plain_is_left_to_the_thorough_way(column, values):
    table = frame([(1.0, "bern", 1), (2.0, "oslo", 2)]).with_columns(pl.Series(column, values))
    assert _plain(table, SCHEMA) is None


def test_a_column_that_is_absent_is_left_to_it_too():
    assert _plain(frame([(1.0, "bern", 1)]).drop("price"), SCHEMA) is None


def test_faults_are_named_as_before():
    rows = [(1.0, "bern", 1), (2.0, "oslo", 2)]
    with pytest.raises(DataError, match="price"):
        lists_of(frame(rows).with_columns(price=pl.Series([1.0, 1e300])), SCHEMA, "qid")
    with pytest.raises(SchemaMismatchError, match="stars"):
        lists_of(frame(rows).with_columns(stars=pl.Series(["many", "few"])), SCHEMA, "qid")
    with pytest.raises(DataError, match="missing"):
        lists_of(frame(rows, ids=[1.0, float("nan")]), SCHEMA, "qid")


def test_ids_that_read_alike_are_one_list_for_the_thorough_way_only():
    found = lists_of(frame([(1.0, "bern", 1)] * 3, ids=[1.5, 1.5, 2.0]), SCHEMA, "qid")
    assert found.order is not None
    assert list(found.offsets) == [0, 2, 3]
    assert [features.shape for features in in_blocks(found, 1)] == [(2, 3), (1, 3)]


def test_a_first_stage_that_fails_in_a_block_names_the_query(folder):
    loaded, frame = bundle.load(folder), lists((3, 4, 5))
    whole = loaded.reranker.first_stage

    class Failing:
        engine = "compiled"

        def score(self, features):
            if (features[:, 0] == 77.0).any():
                raise ScoringError("no such price")
            return whole.score(features)

    loaded.reranker.first_stage = Failing()
    with pytest.raises(ScoringError, match="query q1: no such price"):
        rank_rows(
            frame.with_columns(price=pl.when(pl.int_range(12) == 5).then(77.0).otherwise("price")), loaded, "query"
        )
    assert rank_rows(frame, loaded, "query")[0].height == 12
