"""SRM finds planted groups of queries and their weights, and gains nothing where there are none."""

import functools
import itertools

import numpy as np
import pytest
import torch

from listwright.training.data.synthetic.planted import generate
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.recipe.data import SyntheticData
from listwright.training.specialists.em import log_likelihoods
from listwright.training.specialists.lists import PaddedLists
from listwright.training.specialists.srm import fit_srm

NOISE = 0.5
QUERIES = 250
"""Training queries; as many more are held out."""

SEEDS = [0, 1]

pytestmark = pytest.mark.nightly


@functools.cache
def planted(groups, seed):
    lengths = {"min_length": 10, "max_length": 15}
    clean = {"categorical": 0, "shift": 0.0, "missing": 0.0, "noise": NOISE}
    spec = SyntheticData(queries=2 * QUERIES, groups=groups, numeric=5, **lengths, **clean)
    return generate(spec, np.random.default_rng(seed))


@functools.cache
def fitted(specialists, groups, seed):
    data, _ = planted(groups, seed)
    spec = SrmSpec(specialists=specialists, sigma=1.0, restarts=2, short_run=5, max_iterations=8)
    return fit_srm(spec, data.select(range(QUERIES)), seed=seed)


def held_out(found, data):
    """Mean log-likelihood of the held-out queries under the mixture."""
    test = data.select(range(QUERIES, len(data)))
    x = found.module.standardise(torch.from_numpy(test.features)).double()
    labels, lengths = torch.from_numpy(test.labels.astype(np.float64)), torch.from_numpy(test.lengths)
    log_p = log_likelihoods(PaddedLists.of(x, labels, lengths), found.rankers)
    return torch.logsumexp(log_p + torch.from_numpy(found.weights).log(), dim=1).mean().item()


@pytest.mark.parametrize("seed", SEEDS)
def test_three_planted_groups_are_found(seed):
    """Assignments, directions, lengths (a planted weight over the noise's scale) and mixture weights."""
    _, truth = planted(3, seed)
    found = fitted(3, 3, seed)
    groups = truth.groups[found.informative]
    assigned = found.shares.argmax(axis=1)
    accuracy, order = max(
        ((np.array(order)[assigned] == groups).mean(), order) for order in itertools.permutations(range(3))
    )
    assert accuracy >= 0.95
    deviations = found.module.standardise.scales.numpy()
    for ranker, weight, group in zip(found.rankers, found.weights, order, strict=True):
        w, expected = ranker.w.numpy() * deviations, truth.weights[group] / NOISE
        cosine = w @ expected / np.linalg.norm(w) / np.linalg.norm(expected)
        assert cosine >= 0.99
        assert np.linalg.norm(w) == pytest.approx(np.linalg.norm(expected), rel=0.2)
        assert weight == pytest.approx((groups == group).mean(), abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_specialists_gain_on_unseen_queries_where_there_are_three_groups(seed):
    data, _ = planted(3, seed)
    assert held_out(fitted(3, 3, seed), data) > held_out(fitted(1, 3, seed), data) + 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_three_specialists_gain_nothing_where_there_is_one_group(seed):
    """A likelihood in training that is a little higher is bought with one that is no higher on unseen queries."""
    data, _ = planted(1, seed)
    one, three = fitted(1, 1, seed), fitted(3, 1, seed)
    assert held_out(three, data) < held_out(one, data) + 0.01
    assert held_out(three, data) > held_out(one, data) - 0.1
