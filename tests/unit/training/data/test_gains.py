"""Gains of a recipe: what is refused, and every loss and metric that they reach."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from listwright import training
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.metrics import EvalProtocol, ndcg
from listwright.training.commands import fit
from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart
from listwright.training.losses import softmax_cross_entropy
from listwright.training.losses.listwise import ranking_loss
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.model import MlpSpec
from listwright.training.recipe.options import recipe_from
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import fit_network, query_ndcg
from listwright_lab import experiment

GAINS = (0.0, 5.0, 6.0)


def recipe(gains):
    return config.of({"name": "x", "data": {"kind": "synthetic", "gains": gains}}, "x")


@pytest.mark.parametrize(
    ("gains", "says"),
    [
        ([0.0], "expected two numbers or more"),
        ([0, 1e-320, 1.0], "label 1 gains .*: expected 1e-06 to 1e"),
        ([0, 1.0, 1e308], "label 2 gains 1e.308: expected 1e-06 to 1e"),
        ([1, 2], "label 0 is irrelevant and gains nothing: begin with 0"),
        ([0, -1], "label 1 gains -1, label 0 0"),
        ([0, 3, 3], "label 2 gains 3, label 1 3: expected finite numbers, each larger"),
        ([0, math.inf], "label 1 gains inf"),
        ([0, "many"], r"gains\.1: Input should be a valid number"),
    ],
)
def test_gains_grow_from_0(gains, says):
    with pytest.raises(RecipeError, match=says):
        recipe(gains)


def test_the_command_line_and_the_estimator_say_them_as_a_recipe_does():
    asked = recipe_from(fit._parser().parse_args(["demo", "--gains", "0, 5,6"]))
    assert asked.data.gains == training.Qilcm(gains=GAINS)._recipe().data.gains == recipe(GAINS).data.gains == GAINS


def test_a_suite_says_that_it_has_none(capsys):
    assert experiment.main(["table2", "--recipe", "demo", "--gains", "0,1"]) == 1
    assert "leave out gains" in " ".join(capsys.readouterr().out.split())


def test_a_label_without_a_gain_is_named(planted_data):
    low = dataclasses.replace(planted_data[0], labels=np.minimum(planted_data[0].labels, 1))
    splits = Splits(low, planted_data[1], low, "by hand")
    with pytest.raises(DataError, match=r"validation labels: label 2 has no gain: gains = \[0.0, 1.0\] .* give 3"):
        splits.with_gains((0.0, 1.0))


def test_gains_go_with_the_queries_that_are_selected(planted_data):
    assert planted_data[0].with_gains(GAINS, "x").select([1, 2]).gains == GAINS


def test_lambdamart_learns_by_them(planted_data):
    """2^y - 1 given as gains changes no tree; others do, and so does what early stopping looks at."""
    spec = LambdaMart(trials=1, max_trees=10, folds=2)
    plain, same, other = (
        lambdamart.tune(*(part.with_gains(gains, "x") for part in planted_data), spec, seed=0)
        for gains in (None, (0.0, 1.0, 3.0), GAINS)
    )
    scores = [lambdamart.scores_of(tuned.model, planted_data[1]) for tuned in (plain, same, other)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])
    assert other.valid_ndcg == lambdamart.mean_ndcg(planted_data[1].with_gains(GAINS, "x"), scores[2], 10)
    assert other.valid_ndcg != lambdamart.mean_ndcg(planted_data[1], scores[2], 10)
    folds = [
        lambdamart.out_of_fold_scores(planted_data[0].with_gains(gains, "x"), plain, folds=2, seed=0)
        for gains in (None, (0.0, 1.0, 3.0), GAINS)
    ]
    assert np.array_equal(folds[0], folds[1])
    assert not np.array_equal(folds[0], folds[2])


def test_the_softmax_loss_aims_at_them():
    scores, labels = torch.tensor([[0.3, -1.0, 2.0]]).double(), torch.tensor([[2, 0, 1]])
    log_s = torch.log_softmax(scores, dim=-1)[0]
    expected = -(6 / 11 * log_s[0] + 5 / 11 * log_s[2])
    assert softmax_cross_entropy(scores, labels, gains=GAINS).item() == pytest.approx(expected.item())
    for name in ("per_query", "paper", "plackett_luce"):
        assert ranking_loss(name, scores, labels, gains=GAINS) == ranking_loss(name, scores, labels)


def test_a_network_is_fitted_and_chosen_by_them(planted_data):
    spec = MlpSpec(encoder_width=4, hidden=(4,), max_epochs=2, rank_loss="softmax")
    zeros = [np.zeros(part.rows) for part in planted_data]
    plain, same, other = (
        fit_network(spec, *(part.with_gains(gains, "x") for part in planted_data), *zeros, seed=0)
        for gains in (None, (0.0, 1.0, 3.0), GAINS)
    )
    losses = [[epoch.rank_loss for epoch in fitted.history] for fitted in (plain, same, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[2], rel=1e-5)
    valid = planted_data[1].with_gains(GAINS, "x")
    lists = Lists(valid, zeros[1], cutoff=3, append_score=False)
    found = query_ndcg([np.arange(3.0)] * len(valid), lists, valid, zeros[1], 10)
    last_first = np.zeros(8)  # the three that are kept, in the order of their scores, before the others, which tie
    last_first[lists.candidates(0)] = [1.0, 2.0, 3.0]
    assert found[0] == pytest.approx(ndcg(last_first, valid.labels[:8], cutoff=10, gains=GAINS))


def test_a_protocol_prints_them():
    assert "gain 0, 5, 6 of label 0, 1, ...," in str(EvalProtocol(gains=GAINS))
    assert "gain 2^y-1," in str(EvalProtocol())
