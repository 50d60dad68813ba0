"""Data that are drawn block by block: the same whatever their number, with lengths, ties and grades as promised."""

import numpy as np
import pytest

from listwright.training.data.synthetic import stream
from listwright.training.data.synthetic.stream import BLOCK_QUERIES, GRADE_SHARES, blocks


def test_more_queries_begin_with_those_of_fewer():
    many = list(blocks(2 * BLOCK_QUERIES + 3, 5, length=4, seed=1))
    (few,) = blocks(BLOCK_QUERIES - 1, 5, length=4, seed=1)
    assert [len(block.lengths) for block in many] == [BLOCK_QUERIES, BLOCK_QUERIES, 3]
    assert [block.first for block in many] == [0, BLOCK_QUERIES, 2 * BLOCK_QUERIES]
    np.testing.assert_array_equal(many[0].features[: len(few.labels)], few.features)
    np.testing.assert_array_equal(many[0].labels[: len(few.labels)], few.labels)


@pytest.mark.parametrize(
    ("features", "length", "at_once"), [(64, 8, 8), (640, 8, 1), (4096, 8, 1), (1, 8, 512), (64, 99, 4)]
)
def test_blocks_are_bounded_by_cells_and_not_by_queries_alone(monkeypatch, features, length, at_once):
    monkeypatch.setattr(stream, "BLOCK_CELLS", 4096)
    many = list(blocks(2 * at_once + 1, features, length=length, longest=16, seed=1))
    (few,) = blocks(max(1, at_once - 1), features, length=length, longest=16, seed=1)
    assert [len(block.lengths) for block in many] == [at_once, at_once, 1]
    assert max(block.features.size for block in many) <= 16 * features * at_once
    np.testing.assert_array_equal(many[0].features[: len(few.labels)], few.features)


def test_lengths_grades_ties_and_holes_are_as_promised():
    (block,) = blocks(BLOCK_QUERIES, 20, length=50, longest=120, seed=0)
    assert block.lengths.max() <= 120
    assert block.lengths.min() >= 1
    assert block.lengths.mean() == pytest.approx(50, rel=0.1)
    np.testing.assert_allclose(np.bincount(block.labels) / len(block.labels), GRADE_SHARES, atol=0.02)
    assert len(np.unique(block.features[:, 2])) < 200  # a count
    assert (block.features[:, 3] == 0.0).mean() == pytest.approx(0.5, abs=0.02)
    assert 0.01 < np.isnan(block.features[:, 9]).mean() < 0.03
    assert not np.isnan(block.features[:, :9]).any()


def test_features_say_something_about_the_labels():
    (block,) = blocks(200, 10, seed=3)
    correlations = [abs(np.corrcoef(block.features[:, d], block.labels)[0, 1]) for d in (0, 5)]
    assert max(correlations) > 0.05
