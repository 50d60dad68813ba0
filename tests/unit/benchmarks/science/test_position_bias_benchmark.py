"""Small versions of the benchmarks of interleaving and position bias: the machinery finds what was planted."""

import numpy as np
import pytest

from benchmarks.science import interleaving, position_bias


def test_interleaving_needs_fewer_queries_than_a_split():
    found = interleaving.measure(interleaving.SHOPS["people differ"], (1.5, 0.5), queries=2000, runs=2)
    assert set(found["times"]) == {"hit", "mrr", "ndcg@10"}
    assert min(found["times"].values()) > 1.5
    assert found["needed"]["interleaving"] == pytest.approx(
        2000 * (interleaving.POWER / found["z"]["interleaving"]) ** 2, rel=0.01
    )


@pytest.fixture(scope="module")
def planted():
    return position_bias.sets_of(None, queries=300)["planted"]


def test_clicks_follow_the_model(planted):
    served, _ = position_bias.serve(planted, 0)
    data, places = served.sessions(4000, 1.0, np.random.default_rng(0))
    assert data.rows == len(places) == data.offsets[-1]
    assert np.diff(data.offsets).max() <= position_bias.SHOWN
    naive = [float(data.labels[places == k].mean()) for k in (1, 5)]
    assert naive[0] > 2 * naive[1]


def test_debiased_beats_naive_on_true_labels(planted, tmp_path):
    """One strong bias, one seed: the full run has ten seeds and more strengths."""
    found = position_bias.measure(planted, seeds=1, strengths=(1.0,), sessions=(3000,), requests=40_000)
    (point,) = found["curves"]
    assert point["naive"] < point["debiased"] < point["full information"] + 0.02
    assert {one["method"] for one in found["propensities"]} == {"swaps", "harvest"}
    assert all(one["covered"] >= one["places"] - 3 for one in found["propensities"])
    text = position_bias.draw({"planted": found}, tmp_path / "figure.svg").read_text()
    assert all(way in text for way in position_bias.WAYS)
