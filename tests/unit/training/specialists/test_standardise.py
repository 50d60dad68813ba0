"""Z-scores can be redone by hand, and no column however odd makes anything but finite numbers."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.specialists.rankers import FIRST_STAGE_SCORE, Standardise

NAN = float("nan")
CATEGORICAL = {"kind": "categorical", "categories": ("a", "b", "c")}


def schema(*features):
    return FeatureSchema(features=tuple(Feature(name=f"f{d}", **options) for d, options in enumerate(features)))


def one(column, transform="none", **options):
    """Standardisation of a single numeric column that is fitted on itself."""
    rows = np.array(column, dtype=np.float32)[:, None]
    return Standardise(schema(options), rows, transform)


def apply(module, rows):
    with torch.no_grad():
        return module(torch.tensor(rows, dtype=torch.float32)).numpy()


def by_hand(column, transform):
    """Transform, clip at the 0.1 % and 99.9 % quantiles, subtract the mean, divide by the standard deviation."""
    x = np.asarray(column, dtype=np.float64)
    if transform == "log":
        x = np.sign(x) * np.log1p(np.abs(x))
    clipped = np.clip(x, *np.quantile(x, [0.001, 0.999]))
    return (clipped - clipped.mean()) / clipped.std()


@pytest.mark.parametrize("transform", ["none", "log"])
def test_z_scores_are_those_of_the_clipped_column(transform):
    column = np.random.default_rng(0).lognormal(sigma=2.0, size=5000).astype(np.float32) - 1.0
    found = apply(one(column, transform), column[:, None])[:, 0]
    assert found == pytest.approx(by_hand(column, transform), abs=2e-6)
    assert found.mean() == pytest.approx(0.0, abs=1e-6)
    assert found.std() == pytest.approx(1.0, abs=1e-6)


def test_values_beyond_training_count_as_its_ends():
    column = np.linspace(-1.0, 1.0, 1001)
    far, ends = apply(one(column), [[-1e30], [1e30]])[:, 0], np.array([-0.998, 0.998])
    spread = np.clip(column, *ends).std()
    assert far == pytest.approx(ends / spread, rel=1e-6)


def test_missing_value_is_the_mean_and_says_so_where_training_had_missing_ones():
    module = one([1.0, 2.0, 6.0, NAN], missing_in_training=True)
    low, high = np.quantile([1.0, 2.0, 6.0], [0.001, 0.999])
    clipped = np.array([low, 2.0, high])
    found = apply(module, [[NAN], [2.0]])
    assert found[0].tolist() == [0.0, 1.0]
    assert found[1] == pytest.approx([(2.0 - clipped.mean()) / clipped.std(), 0.0], abs=1e-6)


@pytest.mark.parametrize("transform", ["none", "log"])
def test_missing_value_counts_as_zero_where_training_had_none(transform):
    module = one([-1.0, 0.5, 2.0, 3.0], transform)
    assert module.width == 1
    assert apply(module, [[NAN]]) == apply(module, [[0.0]])
    assert apply(module, [[NAN]])[0, 0] < -0.1


@pytest.mark.parametrize("transform", ["none", "log"])
@pytest.mark.parametrize(
    "column",
    [
        [5.0, 5.0, 5.0],
        [0.0, 0.0],
        [7.0],
        [NAN, NAN],
        [0.1] * 7,
        [3e38] * 3,
    ],
    ids=["constant", "zero", "one row", "no value", "a mean that rounds", "huge"],
)
def test_column_without_spread_becomes_zero(column, transform):
    module = one(column, transform)
    assert not apply(module, [*([x] for x in column), [1e30], [-1e30], [NAN]]).any()


@pytest.mark.parametrize("transform", ["none", "log"])
@pytest.mark.parametrize(
    "column",
    [[0.0, 1e-40], [1e-45, 0.0, 0.0], [3e38, -3e38, -3e38, -3e38], [1e30, 1.0], [1e-30, 2e-30]],
    ids=["subnormal", "smallest", "span above float32", "large", "small"],
)
def test_every_magnitude_is_finite(column, transform):
    assert np.isfinite(apply(one(column, transform), [*([x] for x in column), [3.4e38], [-3.4e38], [0.0], [NAN]])).all()


def test_column_without_any_value_says_nothing():
    module = one([NAN, NAN], missing_in_training=True)
    assert apply(module, [[NAN], [3.0]]).tolist() == [[0.0], [0.0]]


def test_categories_are_one_column_each_and_unknown_ones_are_none():
    rows = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], dtype=np.float32)
    module = Standardise(schema({}, CATEGORICAL), rows, "none")
    known = apply(module, [[0.0, code] for code in (1, 2, 3)])[:, 1:]
    assert known.tolist() == np.eye(3).tolist()
    assert not apply(module, [[0.0, code] for code in (0, 4, -1, 1.5, 1e30, -1e30, NAN)])[:, 1:].any()


def test_categories_are_not_transformed():
    module = Standardise(schema(CATEGORICAL), np.array([[1.0], [3.0]], dtype=np.float32), "log")
    assert apply(module, [[1.0], [3.0], [0.0]]).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_columns_are_numbers_then_indicators_then_categories_and_have_names():
    fitted = schema({}, CATEGORICAL, {"missing_in_training": True}, {"kind": "categorical", "categories": ("x",)})
    rows = np.array([[0.0, 1.0, NAN, 1.0, -3.0], [2.0, 2.0, 4.0, 0.0, 5.0], [4.0, 3.0, 8.0, 1.0, 5.0]], np.float32)
    module = Standardise(fitted, rows, "none")
    assert module.names == (
        "f0",
        "f2",
        FIRST_STAGE_SCORE,
        "f2 missing",
        "f1 = a",
        "f1 = b",
        "f1 = c",
        "f3 = x",
    )
    assert module.width == 8
    found = apply(module, [[2.0, 3.0, NAN, 1.0, 5.0]])[0]
    assert found == pytest.approx([0.0, 0.0, 0.5**0.5, 1.0, 0.0, 0.0, 1.0, 1.0], abs=1e-2)


def test_statistics_are_taken_in_double_precision():
    """The mean of a million values around 1e6, where float32 sums lose every digit of the spread."""
    column = (1e6 + np.random.default_rng(0).integers(-8, 9, 100_000) / 16).astype(np.float32)
    found = apply(one(column), column[:, None])[:, 0]
    assert found == pytest.approx(by_hand(column, "none"), abs=0.1)  # the mean itself is kept in float32
    assert np.ptp(found) == pytest.approx(1.0 / column.astype(np.float64).std(), rel=1e-3)


def test_leading_axes_are_kept():
    assert one([0.0, 1.0, 2.0])(torch.zeros(4, 3, 1)).shape == (4, 3, 1)


def test_raw_numbers_stay_as_they_are():
    module = one([1e-3, 5.0, 2e6, NAN], "raw", missing_in_training=True)
    assert apply(module, [[1e-3], [2e6], [-3e9], [NAN]]).tolist() == [
        [pytest.approx(1e-3), 0.0],
        [2e6, 0.0],
        [-3e9, 0.0],
        [0.0, 1.0],
    ]
