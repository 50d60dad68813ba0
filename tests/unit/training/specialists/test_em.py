"""Each equation of EM, against the same formula written out; and what EM does when a component or a promise breaks."""

import math

import numpy as np
import pytest
import torch

from listwright.ranking.errors import ScoringError
from listwright.training.losses.exact_plackett_luce import log_likelihood, log_likelihood_of_top
from listwright.training.specialists.em import (
    CONVERGED,
    SETTLING,
    SMALLEST_SHARE,
    Mixture,
    Step,
    log_likelihoods,
    mixture_weights,
    responsibilities,
)
from listwright.training.specialists.lists import PaddedLists
from listwright.training.specialists.rankers import LinearRanker

LENGTHS = (4, 2, 5, 3, 6, 2, 3, 4)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def lists(lengths=LENGTHS, width=3, seed=0, top=None):
    """Random rows; every list has two different labels."""
    rng = np.random.default_rng(seed)
    labels = [np.r_[0, 1, rng.integers(0, 3, length - 2)] for length in lengths]
    x = rng.normal(size=(sum(lengths), width))
    return PaddedLists.of(tensor(x), tensor(np.concatenate(labels)), torch.tensor(lengths), top=top)


def rankers(count, width=3, sigma=0.7, **options):
    found = [LinearRanker(width, sigma, **options) for _ in range(count)]
    for k, ranker in enumerate(found):
        ranker.forget(np.random.default_rng(k))
    return found


def mixture(count=2, alpha=1.01, seed=(0,), data=None, given=None, shares=None):
    data = lists() if data is None else data
    given = rankers(count) if given is None else given
    if shares is None:
        shares = tensor(np.random.default_rng(5).dirichlet(np.ones(count), len(data)))
    return Mixture(data, given, shares, alpha=alpha, seed=seed)


def one_by_one(data, top=None):
    """Features and labels of each list, unpadded."""
    ends = data.mask.sum(dim=1).cumsum(0).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield data.x[start:end], data.labels[start:end]


def test_responsibilities_are_equation_10():
    p, weights = np.array([[0.2, 0.5, 0.1], [0.9, 0.001, 0.3]]), np.array([0.5, 0.2, 0.3])
    shares, total = responsibilities(tensor(np.log(p)), tensor(weights))
    joint = weights * p
    assert shares.numpy() == pytest.approx(joint / joint.sum(axis=1, keepdims=True))
    assert total.tolist() == pytest.approx(np.log(joint.sum(axis=1)))


def test_responsibilities_of_very_unequal_probabilities():
    """Each of these is 0 as a plain number; their ratio is not."""
    shares, total = responsibilities(tensor([[-5000.0, -5002.0], [-1.0, -4000.0], [-1e6, -9e5]]), tensor([0.25, 0.75]))
    odds = math.log(0.25 / 0.75) + 2.0
    assert shares[0].tolist() == pytest.approx([1 / (1 + math.exp(-odds)), 1 / (1 + math.exp(odds))], rel=1e-9)
    assert shares[1:].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    expected = -5000.0 + math.log(0.25 + 0.75 * math.exp(-2.0))
    assert total.tolist() == pytest.approx([expected, -1.0 + math.log(0.25), -9e5 + math.log(0.75)], rel=1e-12)


def test_a_component_without_weight_has_no_responsibility():
    shares, total = responsibilities(tensor([[-3.0, -1.0]]), tensor([1.0, 0.0]))
    assert shares.tolist() == [[1.0, 0.0]]
    assert total.tolist() == [-3.0]


@pytest.mark.parametrize("alpha", [1.0, 1.01, 5.0])
def test_mixture_weights_are_equation_11(alpha):
    shares = tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]])
    above = alpha - 1.0
    expected = [(above + 2.2) / (3 * above + 3.0), (above + 0.8) / (3 * above + 3.0), above / (3 * above + 3.0)]
    assert mixture_weights(shares, alpha).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("top", [None, 1, 2, 4, 100])
def test_log_likelihoods_are_those_of_each_list_alone(top):
    data, given = lists(top=top), rankers(3)
    found = log_likelihoods(data, given)
    assert found.shape == (len(LENGTHS), 3)
    for n, (x, labels) in enumerate(one_by_one(data)):
        for k, ranker in enumerate(given):
            scores = (x @ ranker.w)[None]
            whole = log_likelihood(scores, labels[None]) if top is None else None
            expected = log_likelihood_of_top(scores, labels[None], top=top) if whole is None else whole
            assert found[n, k].item() == pytest.approx(expected.item(), abs=1e-9)


@pytest.mark.parametrize("top", [None, 1, 3])
def test_gradient_of_the_lists_is_that_of_autograd(top):
    data, w = lists(top=top), tensor([0.3, -1.0, 0.5])
    found = data.likelihood(data.x @ w)
    assert not found.value.requires_grad
    for n, (x, labels) in enumerate(one_by_one(data)):
        scores = (x @ w)[None].requires_grad_()
        whole = log_likelihood(scores, labels[None]) if top is None else None
        (log_likelihood_of_top(scores, labels[None], top=top) if whole is None else whole).backward()
        assert found.gradient[n, : len(x)].tolist() == pytest.approx(scores.grad[0].tolist(), abs=1e-8)
        assert not found.gradient[n, len(x) :].any()


@pytest.mark.parametrize("top", [None, 2])
def test_selected_lists_are_the_same_lists(top):
    data, w = lists(top=top), tensor([0.3, -1.0, 0.5])
    picked = torch.tensor([5, 0, 3, 0])
    part = data.select(picked)
    assert (len(part), part.top) == (4, top)
    assert part.mask.shape == (4, 4), "as wide as the longest list that was picked"
    whole = list(one_by_one(data))
    for n, (x, labels) in zip(picked.tolist(), one_by_one(part), strict=True):
        assert torch.equal(x, whole[n][0])
        assert torch.equal(labels, whole[n][1])
    found, expected = part.likelihood(part.x @ w), data.likelihood(data.x @ w)
    assert found.value.tolist() == pytest.approx(expected.value[picked].tolist(), abs=1e-12)


@pytest.mark.parametrize("top", [None, 2])
def test_objective_is_the_penalised_likelihood_of_the_whole_mixture(top):
    """log p(pi) and log p(w), each but for its constant, and sum_n log sum_k pi_k P(Omega_n | w_k)."""
    alpha, sigma, data = 1.7, 0.7, lists(top=top)
    em = mixture(3, alpha=alpha, data=data, given=rankers(3, sigma=sigma, concave=top is None))
    list(em.iterate(2))
    expected = (alpha - 1.0) * em.weights.log().sum().item()
    expected -= sum(ranker.w.square().sum().item() for ranker in em.rankers) / (2 * sigma**2)
    for x, labels in one_by_one(data):
        p = 0.0
        for k, ranker in enumerate(em.rankers):
            scores = (x @ ranker.w)[None]
            log_p = log_likelihood_of_top(scores, labels[None], top=top or len(x))
            p += em.weights[k].item() * math.exp(log_p.item())
        expected += math.log(p)
    assert em.objective == pytest.approx(expected, abs=1e-6)


def test_an_iteration_is_m_step_then_e_step():
    em = mixture(2, alpha=1.5)
    list(em.iterate(1))
    before = em.shares.clone()
    list(em.iterate(2))
    step = em.steps[1]
    assert step.number == 2
    assert step.weights == pytest.approx(mixture_weights(before, 1.5).tolist())
    expected, _ = responsibilities(log_likelihoods(em.lists, em.rankers), tensor(step.weights))
    assert torch.equal(em.shares, expected)
    entropy = -(expected * expected.log()).sum(dim=1).mean().item()
    assert step.entropy == pytest.approx(entropy)
    assert 0.0 < entropy < math.log(2)


def test_it_stops_when_the_objective_stands_still():
    em = mixture(2, alpha=3.0)
    told = list(em.iterate(100))
    assert told == em.steps
    assert 2 < len(told) < 100
    changes = np.abs(np.diff([step.objective for step in told]) / [step.objective for step in told[:-1]])
    assert (changes[:-1] > CONVERGED).all()
    assert changes[-1] <= CONVERGED
    assert list(em.iterate(200)) == []
    assert told == em.steps, "what has arrived does not go on"


@pytest.mark.nightly
def test_a_dead_component_starts_anew():
    many = lists((3,) * 40)
    shares = tensor([[1.0, 0.0]] * 40)
    em = mixture(2, alpha=1.001, data=many, shares=shares)
    assert em.weights[1] < SMALLEST_SHARE
    em._iterate(may_reseed=True)
    assert em.steps[0].reseeded == (1,)
    assert em.steps[0].weights == (0.5, 0.5)
    expected = LinearRanker(3, 0.7)
    expected.forget(np.random.default_rng([0, 0]))
    assert torch.equal(em.rankers[1].w, expected.w), "random weights, not an M-step without queries"
    assert not em.converged
    assert em.shares[:, 1].sum() > 0.1, "lists to learn from in the next iteration"
    list(em.iterate(50))
    assert all(step.reseeded == () for step in em.steps[1:])


def test_no_component_starts_anew_when_the_end_is_near():
    """It would be left as it was drawn."""
    em = mixture(2, alpha=1.001, data=lists((3,) * 40), shares=tensor([[1.0, 0.0]] * 40))
    list(em.iterate(SETTLING))
    assert [step.reseeded for step in em.steps] == [()] * len(em.steps)


def test_a_component_that_dies_later_may_cost_likelihood():
    em = mixture(2, seed=(7,))
    list(em.iterate(3))
    em.weights = tensor([1.0 - 1e-4, 1e-4])
    em._iterate(may_reseed=True)
    assert em.steps[3].reseeded == (1,)
    assert em.steps[3].objective < em.steps[2].objective - 0.1
    expected = LinearRanker(3, 0.7)
    expected.forget(np.random.default_rng([7, 3]))
    assert torch.equal(em.rankers[1].w, expected.w), "drawn by start and iteration, so that a resumed run repeats it"
    assert torch.equal(em.weights, tensor([0.5, 0.5]))


def test_a_living_component_without_a_list_follows_its_prior():
    """Few lists and a strong prior of pi: its weight is far from 0, its responsibilities are not."""
    em = mixture(2, alpha=3.0, shares=tensor([[1.0, 0.0]] * len(LENGTHS)))
    list(em.iterate(1))
    assert em.steps[0].reseeded == ()
    assert not em.rankers[1].w.any()
    list(em.iterate(30))


def test_negligible_responsibilities_are_left_out():
    data = lists()
    whole, part = LinearRanker(3, 0.7), LinearRanker(3, 0.7)
    weights = tensor([1.0, 0.5, 1e-12, 1.0, 1e-10, 0.2, 0.0, 1.0])
    part.fit(data, weights, np.random.default_rng(0))
    counted = torch.tensor([0, 1, 3, 5, 7])
    whole.fit(data.select(counted), weights[counted], np.random.default_rng(0))
    assert torch.equal(part.w, whole.w)


class Liar(LinearRanker):
    """Says that it ascends, and goes where nothing agrees with the labels."""

    worst = 0.0

    def fit(self, lists, weights, rng):
        super().fit(lists, weights, rng)
        self.worst = self.worst * 10.0 + 1.0
        self.w = -self.worst * self.w


def test_a_fall_of_the_objective_is_an_error():
    em = mixture(2, given=[Liar(3, 0.7), *rankers(1)])
    with pytest.raises(
        ScoringError, match=r"EM iteration 2: the penalised log-likelihood fell from -[\d.]+ to -[\d.]+"
    ):
        list(em.iterate(10))
    assert len(em.steps) == 1, "the step that fell is not kept"


def test_a_fall_is_expected_of_a_ranker_that_promises_nothing():
    liar = Liar(3, 0.7, concave=False)
    assert not liar.ascends
    em = mixture(2, given=[liar, *rankers(1)])
    list(em.iterate(4))
    assert em.steps[1].objective < em.steps[0].objective


def test_an_objective_that_is_no_number_is_an_error():
    data = lists()
    data.x[0, 0] = math.nan
    em = mixture(1, data=data, given=[LinearRanker(3, 0.7)])
    with pytest.raises(ScoringError, match="features that overflow"):
        list(em.iterate(3))


def test_steps_done_already_are_gone_on_from():
    one, other = mixture(2), mixture(2)
    list(one.iterate(4))
    list(other.iterate(2))
    again = Mixture(other.lists, other.rankers, other.shares, alpha=1.01, seed=(0,), steps=other.steps)
    assert again.objective == other.objective
    assert torch.equal(again.weights, other.weights)
    list(again.iterate(4))
    assert again.steps == one.steps
    assert isinstance(again.steps[0], Step)
    assert torch.equal(again.shares, one.shares)
