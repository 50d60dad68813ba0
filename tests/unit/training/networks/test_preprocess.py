"""The scaling can be redone by hand, and no column however odd makes anything but finite numbers."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.networks.ranker import Preprocess, embedding_width, symmetric_log1p

NAN = float("nan")


def schema(*features):
    return FeatureSchema(features=tuple(Feature(name=f"f{d}", **options) for d, options in enumerate(features)))


def one(column, **options):
    """Preprocessing of a single numeric column that is fitted on itself."""
    rows = np.array(column, dtype=np.float32)[:, None]
    return Preprocess(schema(options), rows)


def apply(module, rows):
    with torch.no_grad():
        return module(torch.tensor(rows, dtype=torch.float32)).numpy()


def by_hand(x):
    return np.sign(x) * np.log1p(np.abs(np.asarray(x, dtype=np.float64)))


def test_scaling_is_log_clip_min_max():
    rng = np.random.default_rng(0)
    column = (rng.normal(size=5000) * 100).astype(np.float32)
    low, high = np.quantile(by_hand(column), [0.001, 0.999])
    expected = (np.clip(by_hand(column), low, high) - low) / (high - low)
    found = apply(one(column), column[:, None])[:, 0]
    assert found == pytest.approx(expected, abs=1e-6)
    assert found.min() == 0.0
    assert found.max() == 1.0


def test_missing_value_is_the_median_and_says_so_where_training_had_missing_ones():
    column = [1.0, 2.0, 4.0, 8.0, NAN]
    found = apply(one(column, missing_in_training=True), [[NAN], [4.0]])
    low, high = np.quantile(by_hand(column[:4]), [0.001, 0.999])
    median = (np.log(3.0) + np.log(5.0)) / 2  # of log(1 + x)
    assert found[0] == pytest.approx([(median - low) / (high - low), 1.0], abs=1e-6)
    assert found[1] == pytest.approx([(np.log(5.0) - low) / (high - low), 0.0], abs=1e-6)


def test_missing_value_counts_as_zero_where_training_had_none():
    module = one([-1.0, 0.5, 2.0, 3.0])
    assert module.width == 1
    assert apply(module, [[NAN]]) == apply(module, [[0.0]])
    assert 0.0 < apply(module, [[0.0]])[0, 0] < 1.0


@pytest.mark.parametrize(
    "column",
    [[5.0, 5.0, 5.0], [0.0, 0.0, 0.0], [1e6, 1e6 + 0.0625, 1e6 + 0.125], [7.0]],
    ids=["constant", "zero", "spread below float32", "one row"],
)
def test_column_without_spread_becomes_zero(column):
    assert not apply(one(column), [*([x] for x in column), [1e30], [-1e30], [NAN]]).any()


def test_column_without_any_value_says_nothing_whatever_is_sent():
    module = one([NAN, NAN], missing_in_training=True)
    assert apply(module, [[NAN], [3.0]]).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1.0, 1e30, 3e38])
def test_every_magnitude_is_finite_and_spans_the_unit_interval(scale):
    column = np.linspace(-scale, scale, 101).astype(np.float32)
    found = apply(one(column), np.concatenate([column, [3.4e38, -3.4e38, 0.0]])[:, None])[:, 0]
    assert found[0] == 0.0
    assert found[100] == 1.0
    assert found[-3:-1].tolist() == [1.0, 0.0]
    middle = pytest.approx(0.5, abs=1e-3 if scale < 1e-38 else 1e-6)  # subnormal numbers have few digits
    assert found[50] == middle
    assert found[-1] == middle


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_is_accurate_near_zero_too(dtype):
    x = torch.tensor([0.0, 1e-30, 1e-9, 3e-8, 1e-4, 0.5, 1.0, 1e6, 1e30], dtype=dtype)
    x = torch.cat([x, -x])
    assert symmetric_log1p(x).numpy() == pytest.approx(by_hand(x.numpy()), rel=4 * torch.finfo(dtype).eps, abs=0.0)


def test_statistics_are_taken_in_double_precision():
    rows = np.random.default_rng(0).lognormal(sigma=5.0, size=(1000, 40)).astype(np.float32)
    module = Preprocess(schema(*[{}] * 40), rows)
    lows, highs = np.quantile(by_hand(rows), [0.001, 0.999], axis=0).astype(np.float32)
    assert module.lows.tolist() == lows.tolist()
    assert module.ranges.tolist() == (highs - lows).tolist()


def test_categories_are_embedded_and_unknown_ones_share_a_row():
    fitted = schema({}, {"kind": "categorical", "categories": ("a", "b", "c")})
    rows = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], dtype=np.float32)
    module = Preprocess(fitted, rows)
    assert module.width == 1 + 3
    table = module.embeddings[0].weight.detach().numpy()
    found = apply(module, [[0.0, code] for code in (1, 2, 3, 0, 4, -1, 1e30, -1e30, NAN, float("inf"))])[:, 1:]
    assert found[:3].tolist() == table[1:].tolist()
    assert found[3:].tolist() == [table[0].tolist()] * 7
    assert not table[0].any()


@pytest.mark.parametrize(("categories", "width"), [(0, 1), (1, 2), (2, 2), (5, 4), (29, 16), (1000, 16)])
def test_embedding_width(categories, width):
    assert embedding_width(categories) == width


def test_categorical_columns_alone():
    module = Preprocess(schema({"kind": "categorical", "categories": ("a",)}), np.ones((2, 1), dtype=np.float32))
    assert apply(module, [[1.0], [0.0]]).shape == (2, 2)


def test_first_stage_score_is_one_more_number():
    fitted = schema({}, {"kind": "categorical", "categories": ("a",)})
    module = Preprocess(fitted, np.array([[0.0, 1.0, -3.0], [1.0, 1.0, 5.0]], dtype=np.float32))
    assert module.width == 2 + 2
    assert apply(module, [[0.0, 1.0, -3.0]])[0, :2].tolist() == [0.0, 0.0]
    assert apply(module, [[1.0, 1.0, 5.0]])[0, :2].tolist() == [1.0, 1.0]
