"""The full event's log-likelihood is concave in the scores, the top-m event's is not."""

import pytest
import torch

from listwright.training.losses.exact_plackett_luce import log_likelihood, log_likelihood_of_top

QUADRATURE = 1e-9
"""What 64 nodes may be wrong by."""


def below_the_chord(value, first, second):
    """How far the value at the midpoint lies below the chord, pair by pair."""
    return (value(first) + value(second)) / 2 - value((first + second) / 2)


@pytest.fixture(scope="module")
def pairs():
    generator = torch.Generator().manual_seed(0)
    first, second = (3 * torch.randn(150, 8, dtype=torch.float64, generator=generator) for _ in range(2))
    return first, second, torch.randint(0, 3, first.shape, generator=generator)


def test_the_full_event_is_concave(pairs):
    first, second, labels = pairs
    gap = below_the_chord(lambda scores: log_likelihood(scores, labels, nodes=64), first, second)
    assert gap.max() < QUADRATURE
    assert gap.min() < -1.0  # the pairs are far enough apart to tell


def test_the_top_m_event_is_not(pairs):
    first, second, labels = pairs
    gap = below_the_chord(lambda scores: log_likelihood_of_top(scores, labels, top=3, nodes=64), first, second)
    assert (gap > 0.01).sum() > 5


def test_the_counterexample_of_the_page():
    """``docs/exact-plackett-luce.md``: one of two tied candidates before a strong third."""
    first, labels = torch.tensor([[5.0, -5.0, 20.0]], dtype=torch.float64), torch.tensor([[1, 1, 0]])
    second = first[:, [1, 0, 2]]

    def by_formula(scores):
        return scores[:, :2].logsumexp(1) - scores.logsumexp(1)

    def by_integral(scores):
        return log_likelihood_of_top(scores, labels, top=1, nodes=64)

    expected = below_the_chord(by_formula, first, second).item()
    assert expected > 4.0
    assert below_the_chord(by_integral, first, second).item() == pytest.approx(expected, abs=QUADRATURE)
