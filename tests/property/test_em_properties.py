"""True of every data set: EM climbs, its responsibilities are probabilities, and the order of candidates is no matter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.training.specialists.em import Mixture
from listwright.training.specialists.lists import PaddedLists
from listwright.training.specialists.rankers import LinearRanker
from support.strategies import scale_examples

WIDTH = 2
NUMBERS = st.integers(-8, 8).map(lambda quarter: quarter / 4)
CANDIDATES = st.tuples(st.tuples(*[NUMBERS] * WIDTH), st.integers(0, 3))
LISTS = st.lists(st.lists(CANDIDATES, min_size=1, max_size=6), min_size=1, max_size=6)
ALPHAS = st.sampled_from([1.0, 1.01, 1.5, 4.0])
SIGMAS = st.sampled_from([0.1, 0.5, 2.0, 10.0])
SEEDS = st.integers(0, 1000)
FEW = settings(max_examples=scale_examples(12))


def padded(lists):
    x = torch.tensor([features for one in lists for features, _ in one], dtype=torch.float64)
    labels = torch.tensor([label for one in lists for _, label in one], dtype=torch.float64)
    return PaddedLists.of(x, labels, torch.tensor([len(one) for one in lists]))


def begun(lists, count, alpha, sigma, seed):
    """A mixture with random weights and random responsibilities."""
    rng = np.random.default_rng(seed)
    rankers = [LinearRanker(WIDTH, sigma) for _ in range(count)]
    for ranker in rankers:
        ranker.forget(rng)
    shares = torch.as_tensor(rng.dirichlet(np.ones(count), len(lists)))
    return Mixture(padded(lists), rankers, shares, alpha=alpha, seed=(seed,))


@pytest.mark.nightly
@FEW
@given(LISTS, st.integers(1, 4), ALPHAS, SIGMAS, SEEDS)
def test_the_penalised_likelihood_never_falls(lists, count, alpha, sigma, seed):
    """Ties, lists of one candidate and lists of one label are among them; nothing checks but this test."""
    em = begun(lists, count, alpha, sigma, seed)
    em._check = lambda _step: None
    list(em.iterate(5))
    for before, after in zip(em.steps, em.steps[1:], strict=False):
        if not after.reseeded:
            assert after.objective >= before.objective - 5e-7 * len(lists)


@FEW
@given(LISTS, st.integers(1, 4), ALPHAS, SIGMAS, SEEDS)
def test_responsibilities_and_weights_are_probabilities(lists, count, alpha, sigma, seed):
    em = begun(lists, count, alpha, sigma, seed)
    list(em.iterate(2))
    assert (em.shares >= 0).all()
    assert em.shares.sum(dim=1).tolist() == pytest.approx([1.0] * len(lists))
    assert sum(em.steps[-1].weights) == pytest.approx(1.0)
    assert 0.0 <= em.steps[-1].entropy <= np.log(count) + 1e-12


@FEW
@given(LISTS, st.integers(1, 3), SIGMAS, SEEDS, st.randoms(use_true_random=False))
def test_neither_order_nor_what_a_list_shares_matters(lists, count, sigma, seed, random):
    """Candidates in another order, and features that are higher by the same for all candidates of a list."""
    changed = []
    for one in lists:
        shift = [random.randint(-4, 4) for _ in range(WIDTH)]
        moved = [(tuple(f + s for f, s in zip(x, shift, strict=True)), label) for x, label in one]
        changed.append(random.sample(moved, len(moved)))
    em, other = begun(lists, count, 1.5, sigma, seed), begun(changed, count, 1.5, sigma, seed)
    list(em.iterate(2))
    list(other.iterate(2))
    assert other.objective == pytest.approx(em.objective, abs=1e-4)
    assert other.shares.numpy() == pytest.approx(em.shares.numpy(), abs=1e-3)
    for one, same in zip(em.rankers, other.rankers, strict=True):
        assert same.w.tolist() == pytest.approx(one.w.tolist(), abs=1e-3 * max(1.0, sigma))


@FEW
@given(LISTS, st.integers(1, 3), SEEDS)
def test_lists_of_one_label_move_no_specialist(lists, count, seed):
    data = padded(lists)
    rankers = begun(lists, count, 1.5, 1.0, seed).rankers
    for ranker in rankers:
        found = data.likelihood(ranker.scores(data.x))
        for n, one in enumerate(lists):
            if len({label for _, label in one}) == 1:
                assert found.value[n] == 0.0
                assert not found.gradient[n].any()
            else:
                assert found.value[n] < 0.0
