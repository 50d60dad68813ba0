"""The exact likelihood: what can be counted by hand, what no input may break."""

import itertools
import math

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from listwright.training.losses.exact_plackett_luce import (
    DEPTHS,
    LabelGroups,
    evaluate,
    log1mexp,
    log_likelihood,
    log_likelihood_of_top,
    sample,
)
from listwright_lab.science.plackett_luce_paper import by_sampling, by_subsets


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def by_counting(scores, labels, top=None):
    """The sum over all rankings whose first ``top`` places agree with the labels."""
    top = len(scores) if top is None else top
    wanted = sorted(labels, reverse=True)[:top]
    total = 0.0
    for order in itertools.permutations(range(len(scores))):
        if [labels[i] for i in order[:top]] == wanted:
            weights = [math.exp(scores[i]) for i in order]
            total += math.prod(w / sum(weights[n:]) for n, w in enumerate(weights))
    return math.log(total)


@pytest.mark.parametrize(
    "labels", [[2, 1, 1, 0, 0], [1, 1, 1, 1, 0], [4, 3, 2, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]]
)
def test_every_way_agrees_with_counting_all_rankings(labels):
    scores = [0.3, -1.2, 2.0, 0.0, 0.7]
    expected = by_counting(scores, labels)
    assert log_likelihood(tensor(scores), tensor(labels), nodes=64).item() == pytest.approx(expected, abs=1e-10)
    assert by_subsets(np.array(scores), np.array(labels)) == pytest.approx(expected, abs=1e-12)
    sampled = by_sampling(np.array(scores), np.array(labels), 20_000, np.random.default_rng(0))
    assert sampled == pytest.approx(expected, abs=0.02)
    for top in range(1, 7):
        found = log_likelihood_of_top(tensor(scores), tensor(labels), top=top, nodes=64).item()
        assert found == pytest.approx(by_counting(scores, labels, top), abs=1e-10)


def test_without_ties_it_is_the_product_of_the_paper():
    """Jagerman et al., 2017, eqs. (1) and (2)."""
    scores = torch.randn(1, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40.0)[None].flip(1)
    tails = scores.flip(1).logcumsumexp(1).flip(1)
    assert log_likelihood(scores, labels, nodes=64).item() == pytest.approx((scores - tails).sum().item(), abs=1e-9)


def test_equal_labels_and_single_candidates_are_certain():
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    value = log_likelihood(
        scores, torch.tensor([[3] * 5, [1, 2, 0, 0, 0]]), torch.tensor([[True] * 5, [True] + [False] * 4])
    )
    assert value.tolist() == [0.0, 0.0]
    value.sum().backward()
    assert torch.equal(scores.grad, torch.zeros_like(scores))
    assert log_likelihood(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0,)
    assert log_likelihood(torch.zeros(2, 0), torch.zeros(2, 0)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("top", [None, 1, 3])
def test_padding_is_inert_whatever_it_holds(top):
    def value(scores, labels, mask):
        if top is None:
            return log_likelihood(scores, labels, mask)
        return log_likelihood_of_top(scores, labels, mask, top=top)

    scores, labels = tensor([0.5, 1.0, -1.0, 0.2]), tensor([1, 0, 1, 0])
    expected = value(scores, labels, None)
    mask = torch.tensor([[True, False, True, True, False, True]])
    for filler in (math.nan, math.inf, -math.inf, 1e30, 0.0):
        padded = tensor([0.5, filler, 1.0, -1.0, filler, 0.2]).requires_grad_()
        found = value(padded, tensor([1, 9, 0, 1, -9, 0]), mask)
        found.sum().backward()
        assert found.item() == pytest.approx(expected.item(), abs=1e-12)
        assert padded.grad[~mask].tolist() == [0.0, 0.0]
        assert padded.grad.isfinite().all()


@pytest.mark.parametrize("top", [None, 2, 4])
def test_gradient(top):
    torch.manual_seed(0)
    scores = (3 * torch.randn(3, 7, dtype=torch.float64)).requires_grad_()
    labels = torch.tensor([[2, 2, 2, 1, 0, 0, 1], [0, 0, 0, 0, 1, 1, 1], [6, 5, 4, 3, 2, 1, 0]])
    mask = torch.ones_like(labels, dtype=torch.bool)
    mask[1, 2] = mask[2, 5:] = False

    def value(scores):
        if top is None:
            return log_likelihood(scores, labels, mask, nodes=64)
        return log_likelihood_of_top(scores, labels, mask, top=top, nodes=64)

    assert torch.autograd.gradcheck(value, scores)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_large_groups_and_extreme_scores_stay_finite(dtype, scale):
    generator = torch.Generator().manual_seed(1)
    scores = scale * (2 * torch.rand(3, 1000, dtype=dtype, generator=generator) - 1)
    labels = torch.stack(
        [torch.ones(1000), torch.arange(1000.0) % 3, torch.randint(0, 5, (1000,), generator=generator)]
    )
    labels[0, :2] = 0
    scores[2, :500] = scores[2, 0]
    found = evaluate(scores, LabelGroups.of(labels))
    assert found.value.isfinite().all()
    assert (found.value <= 0).all()
    assert found.gradient.isfinite().all()


def test_float32_is_float64_to_five_digits():
    generator = torch.Generator().manual_seed(2)
    scores = 3 * torch.randn(30, 120, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 5, (30, 120), generator=generator)
    exact = evaluate(scores, LabelGroups.of(labels), nodes=64)
    rough = evaluate(scores.float(), LabelGroups.of(labels))
    assert rough.value.double() == pytest.approx(exact.value, rel=1e-5)
    assert (rough.gradient - exact.gradient).norm() < 2e-5 * exact.gradient.norm()


def test_error_falls_with_the_nodes():
    generator = torch.Generator().manual_seed(3)
    scores = 10 * (2 * torch.rand(1, 300, dtype=torch.float64, generator=generator) - 1)
    labels = torch.randint(0, 3, (1, 300), generator=generator)
    values = {nodes: log_likelihood(scores, labels, nodes=nodes).item() for nodes in DEPTHS}
    for nodes, limit in ((16, 2e-4), (24, 1e-5), (32, 5e-7), (48, 1e-8)):
        assert abs(values[nodes] - values[64]) < limit


def test_chunks_do_not_show(monkeypatch):
    scores = torch.randn(20, 30, dtype=torch.float64)
    groups = LabelGroups.of(torch.randint(0, 4, (20, 30)))
    whole = evaluate(scores, groups)
    monkeypatch.setattr("listwright.training.losses.exact_plackett_luce._CHUNK", 7)
    parts = evaluate(scores, groups)
    assert torch.equal(parts.value, whole.value)
    assert torch.equal(parts.gradient, whole.gradient)


def test_log1mexp_over_its_whole_range():

    mp.dps = 80
    t = torch.linspace(-100, 10, 400, dtype=torch.float64)
    log, phi = log1mexp(t)
    for n, point in enumerate(t.tolist()):
        s = mp.exp(mpf(point))
        assert log[n].item() == pytest.approx(float(mp.log(1 - mp.exp(-s))), rel=1e-13, abs=2e-16)
        assert phi[n].item() == pytest.approx(float(s / (mp.exp(s) - 1)), rel=1e-12, abs=1e-14)


def test_samples_follow_the_model():
    """How often each ranking is drawn, against its probability."""
    scores = tensor([0.0, 1.0, -0.5])
    draws = sample(scores.expand(60_000, 3), generator=torch.Generator().manual_seed(0))
    for order in itertools.permutations(range(3)):
        weights = scores[0, list(order)].exp()
        expected = math.prod((weights[n] / weights[n:].sum()).item() for n in range(3))
        share = (draws == torch.tensor(order)).all(dim=1).double().mean().item()
        assert share == pytest.approx(expected, abs=0.006)


def test_samples_put_padding_last():
    mask = torch.tensor([[True, False, True]])
    for seed in range(20):
        draw = sample(torch.zeros(1, 3), mask, generator=torch.Generator().manual_seed(seed))
        assert draw[0, 2] == 1


@pytest.mark.parametrize("nodes", [0, 31, 128])
def test_other_numbers_of_nodes_are_refused(nodes):
    with pytest.raises(ValueError, match=f"nodes {nodes}: expected one of 16, 24, 32, 48, 64"):
        log_likelihood(torch.zeros(1, 2), torch.tensor([[1, 0]]), nodes=nodes)


def test_a_top_that_is_no_rank_is_refused():
    with pytest.raises(ValueError, match="top 0: expected a rank"):
        log_likelihood_of_top(torch.zeros(1, 2), torch.tensor([[1, 0]]), top=0)


def test_the_dynamic_program_says_what_is_too_much_for_it():
    with pytest.raises(ValueError, match="has 25 candidates: the dynamic program takes at most 24"):
        by_subsets(np.zeros(26), np.array([1] * 25 + [0]))
