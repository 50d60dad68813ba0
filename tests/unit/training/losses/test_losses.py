"""The ranking losses, by their formulas."""

import itertools
import math
import subprocess
import sys

import pytest
import torch

from listwright.training.losses import att_rank, plackett_luce, softmax_cross_entropy


def test_losses_come_alone():
    """For anyone's torch module: nothing is imported that only a fit or a service needs."""
    heavy = ("lightgbm", "sklearn", "polars", "pandas", "onnx", "onnxruntime", "optuna", "matplotlib")
    code = f"import sys, training.losses; print(*[name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def loss(logits, labels, mask=None, **options):
    logits, labels = torch.tensor(logits, dtype=torch.float64), torch.tensor(labels)
    mask = torch.ones_like(labels, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return att_rank(logits, labels, mask, **options).item()


def by_hand(logits, labels):
    psi = [math.exp(y) if y > 0 else 0.0 for y in labels]
    log_sum = math.log(sum(math.exp(s) for s in logits))
    return -sum(p / sum(psi) * (s - log_sum) for p, s in zip(psi, logits, strict=True))


def test_both_forms():
    logits, labels = [0.3, -1.0, 2.0, 0.0], [2, 0, 1, 4]
    assert loss([logits], [labels]) == pytest.approx(by_hand(logits, labels))
    assert loss([logits], [labels], form="paper") == pytest.approx(by_hand(logits, labels) / 4)


def test_list_without_relevant_candidate_counts_in_the_mean():
    logits, labels = [0.3, -1.0, 2.0], [2, 0, 1]
    both = loss([logits, logits], [labels, [0, 0, 0]])
    assert both == pytest.approx(by_hand(logits, labels) / 2)


def test_paper_form_divides_by_real_candidates():
    logits, labels = [0.3, -1.0], [1, 0]
    padded = loss([[*logits, 9.0]], [[*labels, 3]], [[True, True, False]], form="paper")
    assert padded == pytest.approx(by_hand(logits, labels) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_high_labels_and_far_logits_stay_finite(dtype):
    logits = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    labels = torch.tensor([[0, 1000, 30], [30, 4, 0]])
    value = att_rank(logits, labels, torch.ones(2, 3, dtype=torch.bool))
    value.backward()
    share = math.exp(-26.0) / (1.0 + math.exp(-26.0))
    assert value.item() == pytest.approx((2e4 + math.log(3.0)) / 2, rel=1e-6)
    expected = torch.tensor([[0.5, -0.5, 0.0], [(1 / 3 - 1 + share) / 2, (1 / 3 - share) / 2, 1 / 6]], dtype=dtype)
    torch.testing.assert_close(logits.grad, expected)


def test_nan_logits_on_padding_do_no_harm():
    logits = torch.tensor([[1.0, 0.0, torch.nan], [torch.nan] * 3], requires_grad=True)
    mask = torch.tensor([[True, True, False], [False] * 3])
    value = att_rank(logits, torch.tensor([[1, 0, 5], [1, 1, 1]]), mask)
    value.backward()
    assert value.item() == pytest.approx(by_hand([1.0, 0.0], [1, 0]) / 2)
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[~mask].any()


def test_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.randint(0, 4, (3, 5), generator=generator)
    mask = torch.arange(5) < torch.tensor([[5], [2], [1]])
    for form in ("per_query", "paper"):
        assert torch.autograd.gradcheck(lambda s, form=form: att_rank(s, labels, mask, form=form), logits)


EVERY = pytest.mark.parametrize("any_loss", [att_rank, softmax_cross_entropy, plackett_luce])


def random_lists(seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 4, (4, 6), generator=generator)
    mask = torch.arange(6) < torch.tensor([[6], [3], [1], [5]])
    return scores, labels, mask


def test_softmax_cross_entropy_by_hand():
    scores, labels = [0.3, -1.0, 2.0, 0.0], [2, 0, 1, 4]
    gains = [2**y - 1 for y in labels]
    log_sum = math.log(sum(math.exp(s) for s in scores))
    expected = -sum(g / sum(gains) * (s - log_sum) for g, s in zip(gains, scores, strict=True))
    found = softmax_cross_entropy(torch.tensor([scores, scores]).double(), torch.tensor([labels, [0] * 4]))
    assert found.item() == pytest.approx(expected / 2), "an empty list has loss 0 and counts"


def test_softmax_cross_entropy_of_high_labels():
    """2^1000 is no float32."""
    scores = torch.zeros(1, 3, requires_grad=True)
    value = softmax_cross_entropy(scores, torch.tensor([[1000, 999, 0]]))
    value.backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[1 / 3 - 2 / 3, 0.0, 1 / 3]]))


def test_plackett_luce_by_enumeration():
    scores, labels = [0.3, -1.0, 2.0, 0.5], [2, 0, 2, 1]
    total = 0.0
    for order in itertools.permutations(range(4)):
        ranked = [labels[i] for i in order]
        if ranked == sorted(ranked, reverse=True):
            weights = [math.exp(scores[i]) for i in order]
            total += math.prod(weights[i] / sum(weights[i:]) for i in range(4))
    found = plackett_luce(torch.tensor([scores, scores]).double(), torch.tensor([labels, [3] * 4]))
    assert found.item() == pytest.approx(-math.log(total) / 2, abs=1e-6), "equal labels have loss 0 and count"


@EVERY
def test_no_mask_means_no_padding(any_loss):
    scores, labels, _ = random_lists()
    assert any_loss(scores, labels).item() == any_loss(scores, labels, torch.ones_like(labels, dtype=torch.bool)).item()


@EVERY
@pytest.mark.parametrize("fill", [torch.nan, torch.inf, 7.0])
def test_padding_never_matters(any_loss, fill):
    scores, labels, mask = random_lists()
    clean, dirty = scores.clone().requires_grad_(), scores.masked_fill(~mask, fill).requires_grad_()
    expected, found = any_loss(clean, labels.masked_fill(~mask, 0), mask), any_loss(dirty, labels, mask)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    found.backward()
    expected.backward()
    torch.testing.assert_close(dirty.grad, clean.grad)
    assert not dirty.grad[~mask].any()


@EVERY
def test_a_shift_of_a_list_changes_nothing(any_loss):
    scores, labels, mask = random_lists(1)
    shifted = scores + torch.tensor([[3.0], [-2.0], [0.5], [10.0]])
    assert any_loss(shifted, labels, mask).item() == pytest.approx(any_loss(scores, labels, mask).item())


@EVERY
def test_gradients_are_those_of_finite_differences(any_loss):
    scores, labels, mask = random_lists(2)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: any_loss(s, labels, mask), scores, atol=1e-6)


@EVERY
def test_better_orders_cost_less(any_loss):
    labels = torch.tensor([[3, 2, 1, 0]])
    falling = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    costs = [any_loss(falling * slope, labels).item() for slope in (-1.0, 0.0, 1.0)]
    assert costs == sorted(costs, reverse=True)
