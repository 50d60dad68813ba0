"""The cheap route equals the definition, in value and gradient."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from listwright.training.losses import confusion
from listwright.training.losses.confusion import confusion_loss, normalised_weight
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.recipe.model import QilcmSpec


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


@pytest.mark.parametrize("lengths", [[7, 4, 1, 3], [1, 1], [5, 5, 5], [2, 9], [3, 1, 2, 3, 3, 1, 2, 3, 2, 3]])
@pytest.mark.parametrize("cells", [1, 200, 500, 10**6])  # one list at a time, two, and all
def test_equals_the_definition(lengths, cells, monkeypatch):
    monkeypatch.setattr(confusion, "CELLS", cells)
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


class Order(np.random.Generator):
    """Stands for a generator whose order of the lists the test makes."""

    def __init__(self, order):
        super().__init__(np.random.PCG64(0))
        self.order = order

    def permutation(self, count):
        assert sorted(self.order) == list(range(count))
        return np.array(self.order)


@pytest.mark.parametrize(("lengths", "pairs"), [([3, 1, 4, 2], 1), ([3, 1, 4, 2], 5), ([3, 1, 2, 4, 2], 7)])
def test_sampled_pairs_are_unbiased(lengths, pairs):
    h, mask = lists(lengths, 5)
    expected, expected_gradient = value_and_gradient(confusion_loss, h, mask)
    found = [
        value_and_gradient(lambda h, m, o=order: confusion_loss(h, m, pairs=pairs, rng=Order(o)), h, mask)
        for order in permutations(range(len(lengths)))
    ]
    assert np.mean([value for value, _ in found]) == pytest.approx(expected)
    assert np.ptp([value for value, _ in found]) > 0.05 * expected
    torch.testing.assert_close(torch.stack([g for _, g in found]).mean(dim=0), expected_gradient)


@pytest.mark.parametrize(
    ("pairs", "chosen"),
    [
        (1, [(3, 1)]),  # the ring is 3, 1, 0, 4, 2
        (5, [(3, 1), (1, 0), (0, 4), (4, 2), (2, 3)]),
        (7, [(3, 1), (1, 0), (0, 4), (4, 2), (2, 3), (3, 0), (1, 4)]),
        (9, [(3, 1), (1, 0), (0, 4), (4, 2), (2, 3), (3, 0), (1, 4), (0, 2), (4, 3)]),
    ],
)
@pytest.mark.parametrize("cells", [1, 32, 10**6])
def test_a_sample_is_its_pairs_by_their_formula(pairs, chosen, cells, monkeypatch):
    """Neighbours in the ring first, then those two apart; every pair once."""
    monkeypatch.setattr(confusion, "CELLS", cells)
    h, mask = lists([3, 1, 4, 2, 3], 5)
    both = sum(naive(h[[a, b]], mask[[a, b]]).item() * 4 / 2 for a, b in chosen)  # d_CH of these
    found = confusion_loss(h, mask, pairs=pairs, rng=Order([3, 1, 0, 4, 2])).item()
    assert found == pytest.approx(2 * both * (10 / pairs) / 5**2)


@pytest.mark.parametrize("pairs", [None, 4])
def test_gain_finds_the_same_neighbours(pairs, monkeypatch):
    """In single precision too, and where a gain is 0 or huge."""
    monkeypatch.setattr(confusion, "CELLS", 1)  # long lists: one at a time
    u, mask = lists([7, 4, 1, 6, 3], 6, dtype=torch.float32)
    gain = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))
    gain[0, 0], gain[1, 1] = 0.0, 30.0
    h = torch.cat([gain[:, None] * u, u], dim=-1)

    def both(gain):
        rng = None if pairs is None else np.random.default_rng(5)
        return value_and_gradient(lambda h, m: confusion_loss(h, m, gain=gain, pairs=pairs, rng=rng), h, mask)

    value, gradient = both(gain)
    expected, expected_gradient = both(None)
    assert value == expected
    assert torch.equal(gradient, expected_gradient)
    wrong, _ = both(gain.abs())
    assert wrong > value, "the search must have used it"


@pytest.mark.parametrize("form", ["stable", "paper"])
@pytest.mark.parametrize("variant", ["full", "V1"])
def test_the_representation_of_qilcm_has_the_gain_that_it_says(form, variant):
    torch.manual_seed(0)
    network = QilcmNetwork(5, QilcmSpec(encoder_width=7, hidden=(4,), query_norm=form, variant=variant))
    x = torch.rand(3, 6, 5)
    x[..., 2] = 0.5  # constant over every list
    found = network(x, torch.ones(3, 6, dtype=torch.bool), None)
    normalised, gain = found.representation, found.gain
    product, alone = normalised.chunk(2, dim=-1)
    torch.testing.assert_close(gain[:, None] * alone, product, rtol=1e-4, atol=1e-4)


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
