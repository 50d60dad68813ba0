"""What auto means: the simplest ranker that no other beats beyond doubt."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from listwright.ranking.manifest import Comparison
from listwright.training.evaluation.intervals import FEWEST
from listwright.training.pipeline import choice
from listwright.training.pipeline.choice import _measure_gain, compared_networks, pays, ranks_better
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice
from listwright.training.recipe.model import DlcmSpec, FirstStageAlone, MlpSpec, QilcmSpec
from listwright.training.second_stage.loop import fit_network
from support.training.planted import ranking_data


def of(mean, spread, ranker="qilcm", over="first_stage", n=90):
    return Comparison(ranker=ranker, over=over, metric="ndcg@10", mean=mean, low=mean - spread, high=mean + spread, n=n)


def test_a_comparison_is_paired_and_has_an_interval():
    gains = np.array([0.1, 0.2, 0.0, 0.1] * 20)
    found = _measure_gain("qilcm", "first_stage", gains, "ndcg@10")
    assert (found.ranker, found.over, found.n) == ("qilcm", "first_stage", 80)
    assert found.mean == pytest.approx(0.1)
    assert 0.08 < found.low < found.mean < found.high < 0.12


def test_intervals_of_several_comparisons_hold_together():
    drawn = np.random.default_rng(0).normal(0.0, 0.1, size=100)
    gains = drawn - drawn.mean() + 0.0212
    alone = _measure_gain("qilcm", "first_stage", gains, "ndcg@10")
    three = _measure_gain("qilcm", "first_stage", gains, "ndcg@10", comparisons=3)
    expected = NormalDist().inv_cdf(1 - 0.025 / 3) / NormalDist().inv_cdf(1 - 0.025)
    assert (three.high - three.low) / (alone.high - alone.low) == pytest.approx(expected, rel=0.1)
    assert pays(alone)
    assert not pays(three)


@pytest.mark.parametrize(
    ("mean", "spread", "expected"), [(0.02, 0.01, True), (0.02, 0.03, False), (-0.02, 0.01, False)]
)
def test_only_a_gain_beyond_doubt_pays(mean, spread, expected):
    assert pays(of(mean, spread)) is expected


def test_few_queries_choose_nothing():
    assert [pays(of(0.2, 0.01, n=n)) for n in (3, FEWEST - 1, FEWEST)] == [False, False, True]
    assert "too few queries" in choice.reason([of(0.2, 0.01, n=3)], {"qilcm": "QILCM"})


@pytest.mark.parametrize(
    ("mean", "spread", "n", "expected"),
    [
        (0.01, 0.03, 90, True),
        (0.0001, 0.03, 90, True),
        (0.0, 0.03, 90, False),
        (-0.01, 0.03, 90, False),
        (0.01, 0.005, FEWEST - 1, False),
    ],
)
def test_columns_are_chosen_by_the_mean_of_enough_queries(mean, spread, n, expected):
    assert ranks_better(of(mean, spread, "relative", "plain", n)) is expected


def test_queries_of_little_weight_do_not_count():
    gains, weights = np.full(36, 0.06), np.full(36, 1e-6)
    weights[7] = 1.0
    lone = _measure_gain("qilcm", "first_stage", gains, "ndcg@10", weights)
    assert (lone.n, pays(lone)) == (1, False)
    assert _measure_gain("qilcm", "first_stage", gains, "ndcg@10", np.ones(36)).n == 36
    assert _measure_gain("qilcm", "first_stage", gains, "ndcg@10", np.repeat([1.0, 0.0], 18)).n == 18


def test_a_tie_keeps_the_simpler_one():
    """QILCM2 that stops before its first epoch is the first stage to the bit: its gain is 0, and so is the interval."""
    assert not pays(_measure_gain("qilcm2", "first_stage", np.zeros(50), "ndcg@10"))


def test_the_reason_tells_every_comparison():
    said = choice.reason([of(0.02, 0.01, "relative", "plain"), of(-0.01, 0.02)], {"qilcm": "QILCM"})
    assert said.startswith("on 90 held-out queries, ")
    assert "NDCG@10 +0.0200 [+0.0100, +0.0300], gain; QILCM over the first stage: NDCG@10 -0.0100" in said


@pytest.fixture(scope="module")
def network():
    spec = MlpSpec(hidden=(2,), max_epochs=1)
    train, valid = (ranking_data(np.random.default_rng(seed), queries=8) for seed in (0, 1))
    return fit_network(spec, train, valid, np.zeros(train.rows), np.zeros(valid.rows), seed=0)


def by_halves(network, values, weights=None):
    """The values of a network that has these on the validation queries after each epoch."""
    valid = ranking_data(np.random.default_rng(1), queries=values.shape[1])
    valid = replace(valid, weights=None if weights is None else np.repeat(weights, 8))
    return choice.values_by_halves(replace(network, valid_values=values), valid, seed=0)


def test_no_query_is_ranked_by_an_epoch_that_it_chose(network):
    """The best epoch of pure noise looks good on the queries that chose it, and is not on others."""
    values = np.random.default_rng(3).normal(0.0, 1.0, size=(400, 300))
    assert values.mean(axis=1).max() > 0.13
    assert abs(by_halves(network, values).mean()) < 0.1
    assert by_halves(network, np.stack([np.zeros(8), np.full(8, 0.2), np.full(8, 0.1)])).tolist() == [0.2] * 8


def test_queries_without_weight_choose_no_epoch(network):
    values = np.stack([np.full(8, 0.1), np.full(8, 0.2)])
    values[0, 2] = 50.0
    weights = np.ones(8)
    weights[2] = 0.0
    assert by_halves(network, values, weights).tolist() == [0.2] * 8


@pytest.mark.parametrize(
    ("mean", "spread", "out"), [(0.0, 0.005, True), (-0.02, 0.01, True), (0.0, 0.02, False), (0.006, 0.003, False)]
)
def test_a_network_is_out_where_no_gain_is_shown_or_worthwhile(mean, spread, out):
    assert choice._is_excluded(of(mean, spread)) is out


def test_informative_queries_have_two_labels_and_count_by_their_weights():
    valid = ranking_data(np.random.default_rng(1), queries=8)
    few = replace(valid, weights=np.repeat([1.0] * 7 + [3.0], 8))
    alike = replace(valid, labels=np.where(np.arange(valid.rows) < 8, 1, valid.labels).astype(np.int32))
    nothing = replace(valid, labels=np.zeros_like(valid.labels))
    counts = [choice.count_informative(data) for data in (valid, few, alike, nothing)]
    assert counts == [8, round(100 / 16), 7, 0]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"choice": Choice()}, ["qilcm", "qilcm2"]),
        ({"choice": Choice(), "model": DlcmSpec()}, ["qilcm", "qilcm2", "dlcm"]),
        ({"choice": Choice(second_stages=("mlp",)), "model": QilcmSpec()}, ["mlp", "qilcm"]),
        ({"choice": Choice(second_stages=("mlp", "mlp", "qilcm2"))}, ["mlp", "qilcm2", "qilcm"]),
        ({"choice": Choice(), "model": FirstStageAlone()}, []),
    ],
)
def test_what_is_compared(changes, kinds):
    recipe = config.changed(config.load("shifted"), changes)
    assert [spec.kind for spec in compared_networks(recipe)] == kinds


def test_what_is_compared_is_what_is_shipped():
    """A recipe's own variant of a kind is compared, and not the kind's default."""
    recipe = config.changed(config.load("shifted"), {"choice": Choice(), "model": QilcmSpec(variant="V1", hidden=(8,))})
    assert compared_networks(recipe)[0] == recipe.model


def test_only_kinds_of_networks_can_be_compared():
    with pytest.raises(ValueError, match="second_stages"):
        Choice(second_stages=("first_stage",))


def test_with_a_router_nothing_is_compared():
    """It learns its gain over one second stage: another one, or none, as the default would make that untrue."""
    recipe = config.changed(config.load("planted"), {"choice": Choice()})
    assert recipe.router is not None
    assert compared_networks(recipe) == []
