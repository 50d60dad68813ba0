"""AttRank, by its formula."""

import math

import pytest
import torch

from training.losses import att_rank


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
