import numpy as np
import pytest

from listwright.ranking.errors import CandidateError
from listwright.ranking.features import MISSING_CODE, UNKNOWN_CODE
from listwright.service.wire.raw_matrix import to_candidates
from support.service.bundles import CATEGORY, schema

NUMERIC, MIXED = schema(categorical=False), schema()
ROWS = np.array([[1.0, 2.0, np.nan, 0.0], [3.0, 4.0, 5.0, 3.0]], dtype=np.float32)


def test_float32_is_not_copied():
    for matrix, columns in ((ROWS, MIXED), (np.ones((2, 3), dtype=np.float32), NUMERIC)):
        assert np.shares_memory(to_candidates(matrix, columns).features, matrix)


@pytest.mark.parametrize("off", [1, 2, 3])
def test_what_is_not_aligned_is_copied(off):
    """Compiled code may not read a float32 at an odd address."""
    matrix = np.frombuffer(b"x" * off + ROWS.tobytes(), "<f4", offset=off).reshape(ROWS.shape)
    assert not matrix.flags.aligned
    found = to_candidates(matrix, MIXED).features
    assert found.flags.aligned
    assert np.array_equal(found, ROWS, equal_nan=True)


def test_a_missing_category_has_its_code_in_a_copy():
    matrix = ROWS.copy()
    matrix[1, 3] = np.nan
    codes = to_candidates(matrix, MIXED).features[:, 3]
    assert codes.tolist() == [UNKNOWN_CODE, MISSING_CODE] == [0.0, 0.0], "to all models they are one"
    assert np.signbit(codes).tolist() == [False, True]
    assert np.isnan(matrix[1, 3])


@pytest.mark.parametrize("code", [-1.0, 0.5, len(CATEGORY.categories) + 1.0, np.inf, -np.inf])
def test_what_is_no_code(code):
    matrix = ROWS.copy()
    matrix[1, 3] = code
    with pytest.raises(CandidateError, match=rf"'carrier' is a category: .* from 0 to 3, found {code:g}") as raised:
        to_candidates(matrix, MIXED)
    assert raised.value.path == ("features", 1, 3)


def test_context_is_checked_as_in_json():
    assert to_candidates(ROWS, MIXED, context={"device": "phone"}).context == {"device": "phone"}
    with pytest.raises(CandidateError, match="'price' is numeric"):
        to_candidates(ROWS, MIXED, context={"price": "low"})
