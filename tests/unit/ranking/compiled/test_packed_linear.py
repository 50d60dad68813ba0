"""Packed linear rankers: what they compute, and which ones are refused before they score anything."""

import logging
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.compiled import linear as packed_linear
from listwright.ranking.compiled import packed_graph
from listwright.ranking.compiled.linear import LinearScorer, PackedLinear
from listwright.ranking.errors import ScoringError

pytestmark = pytest.mark.skipif(
    packed_linear.linear_product is None, reason="ranking.compiled.linear_product is not built: there was no C compiler"
)


def floats(*values):
    return np.array(values, dtype=np.float32)


def numbers(*values):
    return np.array(values, dtype=np.int32)


def rankers(**others):
    """Two rankers over columns 2 and 0 as numbers, and column 1 as one of three categories."""
    parts = {
        "columns": numbers(2, 0),
        "fills": floats(1.0, 0.0),
        "lows": floats(-1.0, -10.0),
        "highs": floats(3.0, 10.0),
        "means": floats(1.0, 0.0),
        "scales": floats(0.5, 1.0),
        "weights": floats([1.0, 10.0], [2.0, 0.0]),
        "missing_weights": floats([100.0, 0.0], [200.0, 0.0]),
        "category_columns": numbers(1),
        "category_starts": numbers(0, 3),
        "category_weights": floats([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
    }
    return PackedLinear(**parts | others)


ROWS = {
    "z-scores times weights, and the category's own weight": ((2.0, 1.0, 3.0), (1.0 + 20.0 + 0.1, 2.0 + 0.4)),
    "clipped before they become z-scores": ((99.0, 3.0, -99.0), (-1.0 + 100.0 + 0.3, -2.0 + 0.6)),
    "a missing value stands for its fill, and has a weight of its own": ((np.nan, 1.0, np.nan), (100.1, 200.4)),
    "a category of which nothing is known": ((0.0, 0.0, 1.0), (0.0, 0.0)),
    "a category beyond the last": ((0.0, 4.0, 1.0), (0.0, 0.0)),
    "half a category": ((0.0, 1.5, 1.0), (0.0, 0.0)),
    "a missing category": ((0.0, np.nan, 1.0), (0.0, 0.0)),
}


@pytest.mark.parametrize("what", ROWS)
def test_a_row(what):
    row, expected = ROWS[what]
    assert LinearScorer(rankers()).score(floats(row))[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.integers(1, 50), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_many_columns_are_the_plain_product(width, count, seed):
    rng = np.random.default_rng(seed)
    weights, x = rng.normal(size=(count, width)).astype(np.float32), rng.normal(size=(5, width)).astype(np.float32)
    plain = rankers(
        columns=np.arange(width, dtype=np.int32),
        fills=np.zeros(width, dtype=np.float32),
        lows=np.full(width, -100, dtype=np.float32),
        highs=np.full(width, 100, dtype=np.float32),
        means=np.zeros(width, dtype=np.float32),
        scales=np.ones(width, dtype=np.float32),
        weights=weights,
        missing_weights=np.zeros_like(weights),
        category_columns=numbers(),
        category_starts=numbers(0),
        category_weights=np.zeros((count, 0), dtype=np.float32),
    )
    assert LinearScorer(plain).score(x) == pytest.approx(x @ weights.T, abs=1e-4)


def test_it_survives_its_own_text():
    again = PackedLinear.from_text(rankers().to_text())
    for name, array in asdict(rankers()).items():
        assert np.array_equal(getattr(again, name), array)


DAMAGES = {
    "a weight that is no number": {"weights": floats([1.0, np.nan], [2.0, 0.0])},
    "an infinite bound": {"highs": floats(np.inf, 10.0)},
    "scores beyond float32": {"scales": floats(1e35, 1.0)},
    "a column of which there is none": {"columns": numbers(2, -1)},
    "fewer means than columns": {"means": floats(1.0)},
    "weights of another width": {"weights": floats([1.0], [2.0])},
    "missing weights of another shape": {"missing_weights": floats([100.0, 0.0])},
    "categories that go back": {"category_starts": numbers(3, 0)},
    "categories beyond the weights": {"category_starts": numbers(0, 4)},
    "categories that begin late": {"category_starts": numbers(1, 3)},
    "numbers of another kind": {"fills": np.zeros(2)},
    "weights in one row": {"weights": floats(1.0, 10.0)},
    "weights in the order of columns": {"weights": np.asfortranarray(floats([1.0, 10.0], [2.0, 0.0]))},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rankers_are_refused(damage):
    with pytest.raises(ScoringError, match="packed rankers"):
        rankers(**DAMAGES[damage])


@given(st.text(max_size=50))
def test_any_other_text_is_refused(text):
    with pytest.raises(ScoringError, match="cannot be read"):
        PackedLinear.from_text(text)


class Graph:
    """Stands in for ONNX Runtime."""

    def __init__(self, text, off=0.0):
        self.metadata = {} if text is None else {packed_linear.METADATA: text}
        self.off = off

    def score(self, rows):
        return LinearScorer(rankers()).score(rows) + np.float32(self.off)


@pytest.mark.parametrize(("text", "off", "compiled"), [(None, 0.0, False), ("good", 0.0, True), ("good", 0.1, False)])
def test_the_graph_scores_where_its_metadata_do_not_agree(monkeypatch, caplog, text, off, compiled):
    graph = Graph(rankers().to_text() if text else None, off)
    monkeypatch.setattr(packed_graph, "OnnxScorer", lambda *_, **__: graph)
    with caplog.at_level(logging.ERROR):
        found = packed_linear.open_specialists(b"", 3, 2, "specialists' graph")
    assert isinstance(found, LinearScorer) == compiled
    assert ("differs" in caplog.text) == bool(off)


@pytest.mark.parametrize(("width", "columns"), [(2, 2), (3, 1)])
def test_rankers_of_another_shape_are_refused(monkeypatch, width, columns):
    monkeypatch.setattr(packed_graph, "OnnxScorer", lambda *_, **__: Graph(rankers().to_text()))
    with pytest.raises(ScoringError, match="map 3 columns to 2"):
        packed_linear.open_specialists(b"", width, columns, "specialists' graph")
