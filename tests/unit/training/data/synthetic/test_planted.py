"""The synthetic generator: every knob turns what it says."""

import numpy as np
import pytest

from listwright.training.data.synthetic.planted import generate
from listwright.training.recipe.data import SyntheticData


def made(seed=0, **changes):
    return generate(SyntheticData(**changes), np.random.default_rng(seed))


def test_shapes_names_and_types():
    data, truth = made(queries=30, numeric=4, categorical=3, categories=5, groups=2)
    assert data.features.shape == (data.rows, 7)
    assert (data.features.dtype, data.labels.dtype, data.offsets.dtype) == (np.float32, np.int32, np.int64)
    assert data.offsets[-1] == data.rows
    assert len(set(data.qids)) == len(data) == 30
    assert [f.kind for f in data.schema.features] == ["numeric"] * 4 + ["categorical"] * 3
    assert data.schema.features[-1].categories == ("v1", "v2", "v3", "v4", "v5")
    assert (truth.groups.shape, truth.anomalous.shape, truth.utilities.shape) == ((30,), (30,), (data.rows,))
    assert (truth.weights.shape, truth.mixture_weights.shape, truth.category_effects.shape) == ((2, 4), (2,), (3, 5))
    assert truth.mixture_weights.sum() == pytest.approx(1)


def test_the_generator_is_the_only_randomness():
    one, two, other = made(1), made(1), made(2)
    assert np.array_equal(one[0].features, two[0].features, equal_nan=True)
    assert one[0].labels.tolist() == two[0].labels.tolist()
    assert one[0].rows != other[0].rows


def test_lengths_are_log_uniform():
    """As many lists between 1 and 10 as between 10 and 100; both ends occur."""
    data, _ = made(queries=4000, min_length=1, max_length=100, numeric=1)
    assert (data.lengths.min(), data.lengths.max()) == (1, 100)
    share = np.mean(data.lengths < 10)
    assert share == pytest.approx(np.log(10) / np.log(101), abs=3 * np.sqrt(0.25 / 4000))
    assert set(made(queries=50, min_length=7, max_length=7)[0].lengths) == {7}


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_most_labels_are_zero_and_each_grade_is_rarer(levels):
    data, _ = made(queries=300, min_length=30, max_length=60, levels=levels)
    counts = np.bincount(data.labels, minlength=levels)
    assert len(counts) == levels
    assert counts[0] / data.rows == pytest.approx(0.6, abs=0.02)
    assert (np.diff(counts) < 0).all()


def test_without_noise_labels_follow_the_utility():
    data, truth = made(queries=200, noise=0.0)
    for n in range(len(data)):
        rows = data.slice(n)
        assert (np.diff(data.labels[rows][np.argsort(truth.utilities[rows])]) >= 0).all()


def test_noise_is_gumbel_so_that_the_ranking_is_plackett_luce():
    """P(first beats second) = sigmoid of the difference of the utilities over the noise's scale."""
    data, truth = made(queries=40_000, min_length=2, max_length=2, numeric=1, noise=2.0, levels=2)
    u = truth.utilities.reshape(-1, 2)
    first_wins = data.labels.reshape(-1, 2)[:, 0] == 1
    gap = u[:, 0] - u[:, 1]
    for low, high in ((-3, -1), (-0.5, 0.5), (1, 3)):
        at = (gap > low) & (gap < high)
        expected = np.mean(1 / (1 + np.exp(-gap[at] / 2.0)))
        assert np.mean(first_wins[at]) == pytest.approx(expected, abs=4 * np.sqrt(0.25 / at.sum()))


def test_utilities_are_those_of_the_planted_weights():
    """Without a shift the features are shown as they are."""
    data, truth = made(queries=100, shift=0.0, missing=0.0, groups=3, numeric=5, categorical=2)
    weights = truth.weights[np.repeat(truth.groups, data.lengths)]
    codes = data.features[:, 5:].astype(int)
    utilities = (data.features[:, :5] * weights).sum(axis=1)
    utilities += truth.category_effects[0][codes[:, 0] - 1] + truth.category_effects[1][codes[:, 1] - 1]
    assert np.allclose(utilities, truth.utilities, atol=1e-5)


def test_every_query_is_scaled_and_shifted():
    """Std of the log scale 0.4 s and of the shift 2 s; three times that for an anomalous query."""
    data, truth = made(queries=3000, min_length=50, max_length=50, numeric=3, shift=0.5, anomalous=0.5, missing=0.0)
    lists = data.features[:, :3].reshape(3000, 50, 3).astype(np.float64)
    log_scale, shift = np.log(lists.std(axis=1)), lists.mean(axis=1)
    sampling = 1 / np.sqrt(2 * 50)  # standard error of the log of a standard deviation of 50 values
    for anomalous, s in ((False, 0.5), (True, 1.5)):
        at = truth.anomalous == anomalous
        assert log_scale[at].std() == pytest.approx(np.hypot(0.4 * s, sampling), rel=0.06)
        assert shift[at].std() == pytest.approx(2 * s, rel=0.06)
    assert truth.anomalous.mean() == pytest.approx(0.5, abs=0.05)


def test_groups_are_drawn_by_their_weights():
    _, truth = made(queries=5000, max_length=1, groups=4, numeric=6)
    shares = np.bincount(truth.groups, minlength=4) / 5000
    assert np.allclose(shares, truth.mixture_weights, atol=4 * np.sqrt(0.25 / 5000))
    assert len({tuple(w) for w in truth.weights.tolist()}) == 4
    assert np.linalg.norm(truth.weights, axis=1) == pytest.approx(2.0)


def test_missing_values_stand_in_the_first_third():
    data, _ = made(queries=500, numeric=7, missing=0.2)
    share = np.isnan(data.features).mean(axis=0)
    assert share[:3] == pytest.approx(0.2, abs=0.03)
    assert (share[3:] == 0).all()
    assert not np.isnan(made(queries=50, missing=0.0)[0].features).any()


def test_no_categorical_features():
    data, truth = made(queries=20, categorical=0)
    assert data.schema.categorical == ()
    assert truth.category_effects.shape == (0, 8)
