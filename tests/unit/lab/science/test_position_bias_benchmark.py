"""Small versions of the benchmarks of interleaving and position bias: the machinery finds what was planted."""

from types import SimpleNamespace

import numpy as np
import pytest

from listwright_lab.crossed_means import resample_crossed_means
from listwright_lab.science import interleaving, position_bias


def test_interleaving_needs_fewer_queries_than_a_split():
    found = interleaving.measure(interleaving.SHOPS["people differ"], (1.5, 0.5), queries=2000, runs=2)
    assert set(found["times"]) == {"hit", "mrr", "ndcg@10"}
    assert min(found["times"].values()) > 1.5
    assert found["needed"]["interleaving"] == pytest.approx(
        2000 * (interleaving.POWER / found["z"]["interleaving"]) ** 2, rel=0.01
    )


@pytest.fixture(scope="module")
def planted():
    return position_bias.sets_of(None, queries=300)["planted"][0]


def test_clicks_follow_the_model(planted):
    served, _ = position_bias.show(planted, 0)
    data, places = served.sessions(4000, 1.0, np.random.default_rng(0))
    assert data.rows == len(places) == data.offsets[-1]
    assert np.diff(data.offsets).max() <= position_bias.PLACES
    naive = [float(data.labels[places == k].mean()) for k in (1, 5)]
    assert naive[0] > 2 * naive[1]


def test_debiased_beats_naive_on_true_labels(planted, tmp_path):
    """One strong bias, one seed: the full run has ten seeds and more strengths."""
    found = position_bias.measure([planted], seeds=1, strengths=(1.0,), sessions=(3000,), requests=40_000)
    (point,) = found["curves"]
    assert point["naive"] < point["debiased"] < point["full information"] + 0.02
    assert {one["method"] for one in found["propensities"]} == {"swaps", "harvest"}
    assert all(one["covered"] >= one["places"] - 3 for one in found["propensities"])
    text = position_bias.draw({"planted": found}, tmp_path / "figure.svg").read_text()
    assert all(way in text for way in position_bias.WAYS)


def test_samples_of_one_fold_are_crossed():
    gains = np.random.default_rng(3).normal(size=(4, 30))
    assert position_bias.resampled(list(gains), 1) == pytest.approx(resample_crossed_means(gains))


def test_seeds_of_one_fold_share_their_queries():
    """Each fold has one query that decides: it is drawn or not, for both seeds of its fold together."""
    folds = 5
    gains = [np.zeros(20) for _ in range(2 * folds)]
    for gain in gains:
        gain[0] = 20.0
    means = position_bias.resampled(gains, folds)
    assert means.mean() == pytest.approx(1.0, abs=0.05)
    # of five shared Poisson counts, weighed by a multinomial draw of ten seeds; of ten counts it would be 0.19
    assert means.var() == pytest.approx(0.28, rel=0.15)


def test_folds_take_turns_over_the_seeds(monkeypatch):
    served = []
    folds = [SimpleNamespace(train=None, valid=None, name=name) for name in "abc"]
    monkeypatch.setattr(position_bias, "show", lambda splits, seed: (served.append((seed, splits.name)), None))
    for name in ("propensities", "harvested"):
        monkeypatch.setattr(position_bias, name, lambda *_: None)
    monkeypatch.setattr(position_bias, "_against_truth", lambda *_: {})
    monkeypatch.setattr(position_bias.lambdamart, "tune", lambda *_, **__: None)
    position_bias.measure(folds, seeds=5, strengths=(1.0,), sessions=())
    assert served == [(0, "a"), (1, "b"), (2, "c"), (3, "a"), (4, "b")]


def test_strengths_of_earlier_runs_stay_unless_they_are_measured_again():
    def found(command, *strengths):
        points = [{"strength": strength, "of": command} for strength in strengths]
        return {"runs": [{"command": command, "strengths": list(strengths)}], "propensities": points, "curves": points}

    first = found("first", 0.5, 1.5)
    both = position_bias.beside(first, found("second", 1.0, 1.5))
    assert [(one["strength"], one["of"]) for one in both["curves"]] == [
        (0.5, "first"),
        (1.0, "second"),
        (1.5, "second"),
    ]
    assert both["propensities"] == both["curves"]
    assert [(run["command"], run["strengths"]) for run in both["runs"]] == [("first", [0.5]), ("second", [1.0, 1.5])]
    again = found("third", 0.5, 1.0, 1.5)
    assert position_bias.beside(both, again) == again
    assert position_bias.beside(None, first) is first
