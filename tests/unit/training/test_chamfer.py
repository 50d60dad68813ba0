"""The cheap route equals the definition, in value and gradient."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from training.chamfer import confusion_loss, normalised_weight


def naive(h, mask):
    """Eqs. (13) and (14) as printed, self pairs included."""
    total = h.new_zeros(())
    for first, there in zip(h, mask, strict=True):
        for second, here in zip(h, mask, strict=True):
            distances = (first[there][:, None] - second[here][None]).square().sum(dim=-1)
            total = total + distances.min(dim=1).values.sum() + distances.min(dim=0).values.sum()
    return total / len(h) ** 2


def lists(lengths, width, *, spread=1.0, seed=0, dtype=torch.float64):
    """Lists around common points: the smaller the spread, the closer the nearest neighbours."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(1, max(lengths), width, dtype=torch.float64, generator=generator)
    h = common + spread * torch.randn(len(lengths), max(lengths), width, dtype=torch.float64, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return h.to(dtype), mask


def value_and_gradient(loss, h, mask):
    h = h.clone().requires_grad_()
    value = loss(h, mask)
    (gradient,) = torch.autograd.grad(value, h)
    return value.item(), gradient


@pytest.mark.parametrize("lengths", [[7, 4, 1, 3], [1, 1], [5, 5, 5], [2, 9]])
def test_equals_the_definition(lengths):
    h, mask = lists(lengths, 6)
    expected, expected_gradient = value_and_gradient(naive, h, mask)
    value, gradient = value_and_gradient(confusion_loss, h, mask)
    assert value == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 0.1, 0.01])
def test_single_precision_is_good_to_four_digits(spread):
    h, mask = lists([30, 20, 25, 30, 1], 200, spread=spread, dtype=torch.float32)
    expected, expected_gradient = value_and_gradient(naive, h.double(), mask)
    value, gradient = value_and_gradient(confusion_loss, h, mask)
    assert value == pytest.approx(expected, rel=1e-4)
    worst = (gradient - expected_gradient).abs().max() / expected_gradient.abs().max()
    assert worst < 1e-4


def test_gradient_is_that_of_finite_differences():
    h, mask = lists([4, 2, 3], 3, seed=1)
    assert torch.autograd.gradcheck(lambda h: confusion_loss(h, mask), h.requires_grad_())


def test_equal_lists_are_at_distance_zero():
    h, mask = lists([6], 300, dtype=torch.float32)
    value = confusion_loss(1e3 * h.expand(4, -1, -1), mask.expand(4, -1))
    assert 0.0 <= value.item() < 1e-6 * 1e6 * 300


def test_self_pairs_count_below_the_line():
    h = torch.tensor([[[0.0]], [[3.0]]])
    value = confusion_loss(h, torch.ones(2, 1, dtype=torch.bool))
    assert value.item() == pytest.approx(2 * (9.0 + 9.0) / 2**2)


@pytest.mark.parametrize("lengths", [[3], [3, 2]])
def test_padding_may_hold_anything(lengths):
    h, mask = lists([*lengths[:1], *lengths[1:]], 4)
    h, mask = torch.cat([h, h], dim=1), torch.cat([mask, torch.zeros_like(mask)], dim=1)
    expected, expected_gradient = value_and_gradient(confusion_loss, h.masked_fill(~mask[..., None], 0.0), mask)
    for fill in (torch.nan, torch.inf, 1e30):
        value, gradient = value_and_gradient(confusion_loss, h.masked_fill(~mask[..., None], fill), mask)
        assert value == expected
        assert torch.equal(gradient, expected_gradient)
        assert not gradient[~mask].any()


def test_one_list_has_nothing_to_be_confused_with():
    h, mask = lists([3], 4)
    value, gradient = value_and_gradient(confusion_loss, h, mask)
    assert value == 0.0
    assert not gradient.any()


class Picks:
    """Stands for a generator whose choice of pairs the test makes."""

    def __init__(self, picks):
        self.picks = picks

    def choice(self, count, *, size, replace):
        assert len(self.picks) == size
        assert not replace
        return np.array(self.picks)


def test_sampled_pairs_are_unbiased():
    h, mask = lists([3, 1, 4, 2], 5)
    expected, expected_gradient = value_and_gradient(confusion_loss, h, mask)
    samples = [(a, b) for a in range(6) for b in range(6) if a < b]
    found = [
        value_and_gradient(lambda h, m, s=s: confusion_loss(h, m, pairs=2, rng=Picks(s)), h, mask) for s in samples
    ]
    assert np.mean([value for value, _ in found]) == pytest.approx(expected)
    assert np.ptp([value for value, _ in found]) > 0.1 * expected
    torch.testing.assert_close(torch.stack([g for _, g in found]).mean(dim=0), expected_gradient)


def test_sample_of_one_pair_by_its_formula():
    h, mask = lists([3, 1, 4], 5)
    both = naive(h[[0, 2]], mask[[0, 2]]).item() * 4 / 2  # d_CH of that pair
    found = confusion_loss(h, mask, pairs=1, rng=Picks([1])).item()  # pairs in order: 01, 02, 12
    assert found == pytest.approx((3 - 1) / 3 * both)


def test_sampling_needs_a_generator_and_repeats_with_it():
    h, mask = lists([3, 1, 4, 2], 5)
    with pytest.raises(ValueError, match="generator"):
        confusion_loss(h, mask, pairs=2)
    first, again = (confusion_loss(h, mask, pairs=2, rng=np.random.default_rng(3)).item() for _ in range(2))
    assert first == again
    assert confusion_loss(h, mask, pairs=99).item() == confusion_loss(h, mask).item()


def test_normalised_weight():
    assert normalised_weight(0.01, mean_length=50.0, width=472) == pytest.approx(0.01 / (2 * 50 * 472))
    paper = normalised_weight(0.01, mean_length=50.0, width=472, form="paper")
    assert paper == pytest.approx(0.01 / (2 * 50 * 472 * 50))


def test_memory_does_not_grow_with_the_number_of_pairs():
    """Between forward and backward only arrays of the input's size are alive, not one per pair."""
    sizes = []
    for count in (4, 8, 16):
        h, mask = lists([5] * count, 7)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t):
            confusion_loss(h.requires_grad_(), mask)
        sizes.append(sum(saved))
    assert all(b <= 2 * a for a, b in pairwise(sizes))
