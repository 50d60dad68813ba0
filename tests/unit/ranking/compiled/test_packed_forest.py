"""A packed forest: what it computes, and which ones are refused before they are walked through."""

import base64
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.compiled import forest as packed_forest
from listwright.ranking.compiled import packed_graph
from listwright.ranking.compiled.forest import ForestScorer, PackedForest
from listwright.ranking.compiled.lightgbm_trees import NODE
from listwright.ranking.errors import ScoringError

pytestmark = pytest.mark.skipif(
    packed_forest.tree_traversal is None, reason="ranking.compiled.tree_traversal is not built: there was no C compiler"
)

INF = np.inf
STUMP = [(0.5, 1, 1), (INF, 0, 1), (INF, 0, 2)]  # x1 <= 0.5 ? leaf 0 : leaf 1
LEAF = [(INF, 0, 0)]


def forest(nodes=(*STUMP, *LEAF), roots=(0, 3), leaves=(0, 0, 1, 2), values=((1, 10), (2, 20), (5, 50)), **others):
    parts = {
        "fills": np.array([0.0, 0.75], dtype=np.float32),
        "nodes": np.array(list(nodes), dtype=NODE),
        "roots": np.array(roots, dtype=np.int32),
        "leaves": np.array(leaves, dtype=np.uint32),
        "values": np.array(values, dtype=np.float32),
        "power": np.array([]),
    }
    return PackedForest(**parts | others)


def test_the_mean_over_trees_of_the_leaves_that_a_row_falls_into():
    rows = np.array([[9, 0.5], [9, 0.6], [9, np.nan]], dtype=np.float32)
    expected = [[(1 + 5) / 2, (10 + 50) / 2], [(2 + 5) / 2, (20 + 50) / 2], [(2 + 5) / 2, (20 + 50) / 2]]
    assert ForestScorer(forest()).score(rows).tolist() == expected


def test_a_power_of_two_of_the_mean():
    found = ForestScorer(forest(power=np.array([-0.5]))).score(np.zeros((1, 2), dtype=np.float32))
    assert found == pytest.approx(2.0 ** (-0.5 * np.array([[3.0, 30.0]])))


def test_more_trees_than_go_side_by_side():
    count = 37
    values = np.random.default_rng(0).normal(size=(count, 1))
    many = forest(nodes=LEAF * count, roots=range(count), leaves=range(count), values=values)
    assert ForestScorer(many).score(np.zeros((1, 2), dtype=np.float32)) == pytest.approx(values.mean(), rel=1e-6)


def test_it_survives_its_own_text():
    again = PackedForest.from_text(forest().to_text())
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    assert np.array_equal(ForestScorer(again).score(rows), ForestScorer(forest()).score(rows))


DAMAGES = {
    "a node that leads to itself": {"nodes": [(0.5, 1, 0), *STUMP[1:], *LEAF]},
    "a node that leads out of its tree": {"nodes": [(0.5, 1, 2), *STUMP[1:], *LEAF]},
    "a column that there is not": {"nodes": [(0.5, 2, 1), *STUMP[1:], *LEAF]},
    "a threshold that is no number": {"nodes": [(np.nan, 1, 1), (np.nan, 0, 1), STUMP[2], *LEAF]},
    "a leaf that leads elsewhere": {"nodes": [*STUMP, (INF, 0, 1)]},
    "a leaf without values": {"leaves": (0, 0, 3, 2)},
    "too few leaves": {"leaves": (0, 0, 1)},
    "roots that go back": {"roots": (3, 0)},
    "a root beyond the end": {"roots": (0, 9)},
    "no trees": {"nodes": [], "roots": (), "leaves": ()},
    "infinite values": {"values": ((1, 10), (INF, 20), (5, 50))},
    "values too large for a power of two": {"values": ((1, 10), (2, 20), (5, 5000)), "power": np.array([1.0])},
    "two powers": {"power": np.array([1.0, 2.0])},
    "numbers of another kind": {"fills": np.zeros(2)},
    "values in one row": {"values": (1, 2, 3)},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_forest_is_refused(damage):
    with pytest.raises(ScoringError, match="packed forest"):
        forest(**DAMAGES[damage])


@pytest.mark.parametrize(("at", "value"), [(6, 99), (8, 1), (8, 32), (8, 64), (10, 8), (10, 12), (10, 14), (10, 99)])
def test_an_archive_that_zipfile_cannot_open_is_refused(at, value):
    """Version, encryption, patches and methods of compression, in the first entry of the archive's directory."""
    archive = bytearray(base64.b64decode(forest().to_text()))
    archive[archive.index(b"PK\1\2") + at] = value
    with pytest.raises(ScoringError, match="packed arrays cannot be read"):
        PackedForest.from_text(base64.b64encode(archive).decode())


@given(st.integers(0, 2**16), st.binary(min_size=1, max_size=3))
def test_damaged_text_is_refused_or_harmless(place, bits):
    text = bytearray(forest().to_text().encode())
    at = place % len(text)
    text[at : at + len(bits)] = bits
    try:
        found = PackedForest.from_text(text.decode("latin-1"))
    except ScoringError:
        return
    ForestScorer(found).score(np.zeros((1, len(found.fills)), dtype=np.float32))


class Graph:
    """Stands in for ONNX Runtime."""

    def __init__(self, text, off=0.0):
        self.metadata = {} if text is None else {packed_forest.METADATA: text}
        self.off = off

    def score(self, rows):
        return ForestScorer(forest()).score(rows) + np.float32(self.off)


@pytest.mark.parametrize(("text", "off", "walks"), [(None, 0.0, False), ("good", 0.0, True), ("good", 1e-3, False)])
def test_the_graph_scores_where_its_metadata_do_not_agree(monkeypatch, caplog, text, off, walks):
    graph = Graph(forest().to_text() if text else None, off)
    monkeypatch.setattr(packed_graph, "OnnxScorer", lambda *_, **__: graph)
    with caplog.at_level(logging.ERROR):
        found = packed_forest.open_forest(b"", 2, 2, "router")
    assert isinstance(found, ForestScorer) == walks
    assert ("differs" in caplog.text) == bool(off)


def test_a_forest_of_another_shape_is_refused(monkeypatch):
    monkeypatch.setattr(packed_graph, "OnnxScorer", lambda *_, **__: Graph(forest().to_text()))
    with pytest.raises(ScoringError, match="maps 2 columns to 2"):
        packed_forest.open_forest(b"", 3, 2, "router")
