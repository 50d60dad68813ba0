"""What a weight does to a loss: that of a query counts it so often, that of a row multiplies its target."""

import math

import numpy as np
import pytest
import torch

from listwright.training.losses.listwise import ranking_loss
from listwright.training.specialists.em import Mixture
from listwright.training.specialists.lists import PaddedLists
from listwright.training.specialists.rankers import LinearRanker

LOSSES = ("per_query", "paper", "softmax", "plackett_luce")


@pytest.fixture
def batch():
    scores = torch.tensor([[0.3, -1.0, 2.0], [0.5, 0.1, math.nan], [0.0, 1.0, 2.0]]).double()
    labels = torch.tensor([[2, 0, 1], [0, 1, 7], [1, 0, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    return scores, labels, mask


@pytest.mark.parametrize("name", LOSSES)
def test_a_query_of_weight_2_is_two_queries(batch, name):
    scores, labels, mask = batch
    weights = torch.tensor([[2.0, 2.0, 2.0], [1.0, 1.0, math.nan], [0.0, 0.0, 0.0]]).double()
    twice = [0, 0, 1]
    found = ranking_loss(name, scores, labels, mask, weights=weights)
    assert found.item() == pytest.approx(ranking_loss(name, scores[twice], labels[twice], mask[twice]).item())
    assert ranking_loss(name, *batch, weights=torch.ones(3, 3).double()).item() == pytest.approx(
        ranking_loss(name, *batch).item()
    )


@pytest.mark.parametrize(("name", "targets"), [("per_query", (math.e**2, math.e)), ("softmax", (3.0, 1.0))])
def test_the_weight_of_a_row_multiplies_its_target(batch, name, targets):
    scores, labels, mask = (part[:1] for part in batch)
    log_s = torch.log_softmax(scores[0], dim=-1)
    weights = torch.tensor([[1.0, 4.0, 5.0]]).double()
    first, last = targets[0] * 1.0, targets[1] * 5.0
    expected = -(first * log_s[0] + last * log_s[2]) / (first + last) * (10 / 3)
    assert ranking_loss(name, scores, labels, mask, weights=weights).item() == pytest.approx(expected.item())
    weights[0, [0, 2]] = 0.0
    assert ranking_loss(name, scores, labels, mask, weights=weights).item() == 0.0, "nothing relevant counts"


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_stay_finite_where_weights_are_0(batch, name):
    scores, labels, mask = batch
    scores = scores.clone().requires_grad_()
    weights = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, math.nan], [0.0, 0.0, 0.0]]).double()
    ranking_loss(name, scores, labels, mask, weights=weights).backward()
    assert torch.isfinite(scores.grad[mask]).all()
    assert (scores.grad[2] == 0.0).all()


def test_em_counts_a_list_of_weight_2_twice():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(6, 4, 2)))
    labels = torch.from_numpy(rng.permuted(np.tile([0.0, 0.0, 1.0, 2.0], (6, 1)), axis=1))

    def steps(picked, counts=None):
        lists = PaddedLists.of(x[picked].reshape(-1, 2), labels[picked].reshape(-1), torch.full((len(picked),), 4))
        rankers = [LinearRanker(2, sigma=1.0) for _ in range(2)]
        for ranker, start in zip(rankers, (0.5, -0.5), strict=True):
            ranker.restore({"w": torch.full((2,), start, dtype=torch.float64)})
        shares = torch.tensor([[0.7, 0.3], [0.2, 0.8]], dtype=torch.float64)[[n % 2 for n in picked]]
        mixture = Mixture(lists, rankers, shares, alpha=1.5, counts=counts, seed=(0,))
        list(mixture.iterate(3))
        return [(step.objective, *step.weights) for step in mixture.steps]

    twice = steps([0, 1, 2, 2, 3, 4])
    weights = torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    for one, other in zip(steps([0, 1, 2, 3, 4, 5], weights), twice, strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    assert steps([0, 1, 2, 3, 4, 5])[-1] != pytest.approx(twice[-1], abs=1e-3)
