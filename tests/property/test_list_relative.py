"""True of every list: what its list-relative columns keep, and that compiled and NumPy give the same bits."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from listwright.ranking import relative
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.relative import (
    CATEGORY_KINDS,
    NUMBER_KINDS,
    SOURCE,
    WITHIN_KINDS,
    RelativeColumn,
    RelativeColumns,
    relative_columns,
)

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TIED = st.integers(-3, 3).map(float)
VALUES = st.one_of(FINITE, TIED, st.just(float("nan")), st.just(-0.0))
SCHEMA = FeatureSchema(features=(Feature(name="a"), Feature(name="b", missing_in_training=True)))
COLUMNS = RelativeColumns([RelativeColumn(feature=f, kind=k) for f in ("a", "b") for k in NUMBER_KINDS], SCHEMA)
WIDTH = len(SCHEMA)


@st.composite
def lists(draw, values=VALUES, most=80):
    """``(L, 2)`` float32, often with ties and holes."""
    length = draw(st.integers(1, most))
    return draw(hnp.arrays(np.float32, (length, WIDTH), elements=values, fill=st.nothing()))


def of(features, columns=COLUMNS):
    return columns.widened(features)[:, WIDTH:]


def one_by_one(values):
    """z and rank of one feature by plain loops, in Python's own arithmetic."""
    present = [float(v) for v in values if not np.isnan(v)]
    count = len(present)
    mean = sum(sorted(present)) / count if count else 0.0
    spread = (sum((v - mean) ** 2 for v in present) / count) ** 0.5 if count else 0.0
    for value in values:
        if np.isnan(value):
            yield np.nan, np.nan
            continue
        below, equal = (sum(test(v) for v in present) for test in (value.__gt__, value.__eq__))
        z = 0.0 if min(present) == max(present) else (float(value) - mean) / spread
        yield z, 0.5 if count == 1 else (below + (equal - 1) / 2) / (count - 1)


@given(lists(values=st.one_of(TIED, st.floats(-1e6, 1e6, width=32), st.just(float("nan")))))
def test_they_are_as_defined(features):
    expected = np.column_stack([np.array(list(one_by_one(features[:, d])), dtype=np.float64) for d in range(WIDTH)])
    np.testing.assert_allclose(of(features), expected, rtol=1e-5, atol=1e-6)


@given(lists(), st.randoms(use_true_random=False))
def test_they_follow_a_permutation_to_the_bit(features, random):
    order = list(range(len(features)))
    random.shuffle(order)
    np.testing.assert_array_equal(of(features[order]), of(features)[order])


@given(lists())
def test_equal_values_get_equal_columns_and_missing_ones_stay_missing(features):
    found = of(features)
    for d in range(WIDTH):
        own = found[:, 2 * d : 2 * d + 2]
        assert (np.isnan(own) == np.isnan(features[:, d])[:, None]).all()
        for value in np.unique(features[~np.isnan(features[:, d]), d]):
            assert len(np.unique(own[features[:, d] == value], axis=0)) == 1


@given(lists())
def test_ranks_are_fractions_whose_mean_is_a_half(features):
    ranks = of(features)[:, 1::2]
    present = ~np.isnan(ranks)
    assert ((ranks[present] >= 0) & (ranks[present] <= 1)).all()
    for d in np.flatnonzero(present.any(axis=0)):
        assert np.nanmean(ranks[:, d].astype(np.float64)) == pytest.approx(0.5, abs=1e-6)


@given(lists(values=st.integers(-1000, 1000).map(float)), st.integers(-6, 6), st.integers(-1000, 1000))
def test_a_positive_affine_map_changes_nothing(features, power, shift):
    """Powers of two and whole numbers keep the values exact."""
    mapped = (features * np.float32(2.0**power) + np.float32(shift)).astype(np.float32)
    np.testing.assert_array_equal(of(mapped)[:, 1::2], of(features)[:, 1::2])
    np.testing.assert_allclose(of(mapped)[:, ::2], of(features)[:, ::2], rtol=1e-5, atol=1e-5)


GROUPED = FeatureSchema(
    features=(
        Feature(name="a"),
        Feature(name="c", kind="categorical", categories=tuple("uvwxyz"), missing_in_training=True),
    )
)
OF_GROUPS = RelativeColumns(
    [
        *(RelativeColumn(feature="c", kind=kind) for kind in CATEGORY_KINDS),
        *(RelativeColumn(feature="a", kind=kind, within="c") for kind in WITHIN_KINDS),
    ],
    GROUPED,
)


@st.composite
def grouped(draw, most=80):
    """``(L, 2)``: a number, often tied or missing, and the code of a category, 0 and -0.0 for none."""
    features = draw(lists(most=most))
    codes = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 6.0])
    features[:, 1] = draw(hnp.arrays(np.float32, len(features), elements=codes))
    return features


@given(grouped())
def test_columns_of_categories_are_those_of_each_group_alone(features):
    found, codes = of(features, OF_GROUPS), features[:, 1]
    known = np.unique(codes[codes > 0])
    assert (found[:, 2] == len(known)).all()
    alone, without = found[codes == 0], np.isnan(features[codes == 0, 0])
    assert (alone[:, 0] == 1).all()
    assert (alone[:, 1] == np.float32(1 / len(codes))).all()
    np.testing.assert_array_equal(alone[:, 3], np.where(without, np.nan, 0.5))
    np.testing.assert_array_equal(alone[:, 4], np.where(without, np.nan, 0.0))
    for code in known:
        rows = codes == code
        assert (found[rows, 0] == rows.sum()).all()
        assert (found[rows, 1] == np.float32(rows.sum() / len(rows))).all()
        alone = RelativeColumns([RelativeColumn(feature="a", kind="rank")], GROUPED).widened(features[rows])
        np.testing.assert_array_equal(found[rows, 3], alone[:, 2])
        values = features[rows, 0].astype(np.float64)
        if not np.isnan(values).all():
            highest = float(np.finfo(np.float32).max)
            expected = np.minimum(values - np.nanmin(values), highest).astype(np.float32)
            np.testing.assert_array_equal(found[rows, 4], expected)


@given(grouped(), st.randoms(use_true_random=False))
def test_columns_of_categories_follow_a_permutation_to_the_bit(features, random):
    order = list(range(len(features)))
    random.shuffle(order)
    np.testing.assert_array_equal(of(features[order], OF_GROUPS), of(features, OF_GROUPS)[order])


@given(grouped(), st.permutations(range(1, 7)))
def test_the_names_of_categories_do_not_matter(features, codes):
    """Another order of the categories in the schema, and the columns stay."""
    renamed = features.copy()
    renamed[:, 1] = np.array([0, *codes], dtype=np.float32)[features[:, 1].astype(int)]
    np.testing.assert_array_equal(of(renamed, OF_GROUPS), of(features, OF_GROUPS))


#                  feature within z rank count share distinct above floor
SOURCES = np.array(
    [
        (0, -1, 0, 1, -1, -1, -1, -1, 0.0),
        (0, 1, -1, 2, -1, -1, -1, 3, 0.0),
        (0, -1, 4, -1, -1, -1, -1, -1, 1e-4),
        (1, -1, -1, -1, 5, 6, 7, -1, 0.0),
        (1, -1, -1, -1, -1, -1, 8, -1, 0.0),
    ],
    dtype=SOURCE,
)


@given(grouped(most=400))
@example(np.array([[1.0, -0.0], [2.0, 1.0], [3.0, 2.0]], dtype=np.float32))
@pytest.mark.skipif(relative_columns is None, reason="no C compiler built ranking.compiled.relative_columns")
def test_compiled_and_numpy_give_the_same_bits(features):
    one, other = (np.zeros((len(features), 9), dtype=np.float32) for _ in range(2))
    relative_columns.write(features, SOURCES, one)
    relative.write(features, SOURCES, other)
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
