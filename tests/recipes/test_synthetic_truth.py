"""What the generator plants is there to be found: utilities, domains, groups, categories."""

import numpy as np
import pytest

from listwright.ranking.metrics import ndcg
from listwright.training.data.synthetic.planted import generate
from listwright.training.recipe.data import SyntheticData

BASE = {
    "queries": 400,
    "min_length": 20,
    "max_length": 40,
    "numeric": 6,
    "categorical": 0,
    "missing": 0.0,
    "noise": 0.3,
}


def made(**changes):
    return generate(SyntheticData(**{**BASE, **changes}), np.random.default_rng(5))


def mean_ndcg(data, scores):
    """Mean NDCG@5 of the second half of the queries."""
    half = range(len(data) // 2, len(data))
    return np.mean([ndcg(scores[data.slice(n)].astype(np.float32), data.labels[data.slice(n)], cutoff=5) for n in half])


def least_squares(data, inputs, queries=None):
    """Scores of the linear model of the labels that the first half of the queries gives."""
    fitted = np.arange(len(data) // 2) if queries is None else queries
    rows = data.rows_of(fitted[fitted < len(data) // 2])
    inputs = np.column_stack([inputs, np.ones(data.rows)])
    return inputs @ np.linalg.lstsq(inputs[rows], data.labels[rows], rcond=None)[0]


def normalised(data):
    """Every feature standardised within its list: what query normalisation sees."""
    x = data.features.astype(np.float64)
    for n in range(len(data)):
        rows = data.slice(n)
        x[rows] = (x[rows] - x[rows].mean(axis=0)) / x[rows].std(axis=0)
    return x


def test_the_planted_utility_ranks_far_better_than_chance():
    data, truth = made()
    chance = mean_ndcg(data, np.random.default_rng(0).normal(size=data.rows))
    assert chance < 0.45
    assert mean_ndcg(data, truth.utilities) > 0.9


def test_a_shift_hides_it_across_lists_and_leaves_it_within_them():
    """One linear model over all lists: as good as any without a shift, lost with it, back after normalisation."""
    found = {}
    for s in (0.0, 1.5):
        data, _ = made(shift=s)
        found[s] = (
            mean_ndcg(data, least_squares(data, data.features)),
            mean_ndcg(data, least_squares(data, normalised(data))),
        )
    assert found[0.0][0] == pytest.approx(found[0.0][1], abs=0.02)
    assert found[1.5][0] < found[0.0][0] - 0.1
    assert found[1.5][1] == pytest.approx(found[0.0][1], abs=0.03)


def test_the_variance_between_queries_is_the_shift():
    """Means of lists scatter by 1 / sqrt(L) alone without a shift, and by 2 s with it."""

    def between(s):
        data, _ = made(shift=s, anomalous=0.0)
        return np.std([features.mean(axis=0) for features, _ in data.lists()])

    assert between(0.0) < 0.25
    assert between(1.5) == pytest.approx(3.0, rel=0.1)


def test_groups_rank_by_their_own_weights():
    """A model of each planted group finds its weights' direction; one model of all queries cannot serve them."""
    data, truth = made(groups=3, shift=0.0, queries=900)
    pooled = least_squares(data, data.features)
    own = np.empty(data.rows)
    for k in range(3):
        queries = np.flatnonzero(truth.groups == k)
        scores = least_squares(data, data.features, queries)
        rows = data.rows_of(queries)
        own[rows] = scores[rows]
        planted = data.features[rows] @ truth.weights[k]
        assert np.corrcoef(scores[rows], planted)[0, 1] > 0.98
    assert mean_ndcg(data, own) > mean_ndcg(data, pooled) + 0.2


def test_categories_carry_part_of_the_utility():
    data, truth = made(categorical=2, shift=0.0)
    numbers = data.features[:, :6]
    codes = data.features[:, 6:].astype(int) - 1
    effects = truth.category_effects[[0, 1], codes]
    without = mean_ndcg(data, least_squares(data, numbers))
    with_them = mean_ndcg(data, least_squares(data, np.column_stack([numbers, effects])))
    assert with_them > without + 0.05
