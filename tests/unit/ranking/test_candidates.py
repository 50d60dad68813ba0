"""What a candidate list takes and refuses, and what a ranking tells."""

import dataclasses

import numpy as np
import pytest

from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import CandidateError, EmptyListError

TWO = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)


def test_features_become_contiguous_float32():
    columns_first = np.asfortranarray(np.array([[1, 2], [3, 4]], dtype=np.int64))
    features = CandidateList(columns_first).features
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert features.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_nan_means_missing_and_is_kept():
    features = CandidateList(np.array([[1.0, np.nan]])).features
    assert np.isnan(features).tolist() == [[False, True]]


def test_length_is_the_number_of_candidates():
    assert len(CandidateList(np.zeros((3, 7)))) == 3


def test_a_list_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CandidateList(TWO).features = TWO


@pytest.mark.parametrize("shape", [(3,), (1, 2, 2), ()])
def test_features_that_are_no_matrix_are_refused(shape):
    with pytest.raises(CandidateError, match=r"\(L, D\) array"):
        CandidateList(np.zeros(shape))


def test_an_empty_list_has_no_order():
    with pytest.raises(EmptyListError, match="at least one") as caught:
        CandidateList(np.zeros((0, 2)))
    assert caught.value.path == ("candidates",)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, -1e39])  # 1e39 is a finite float64 above float32's range
def test_infinite_values_are_refused_with_their_place(value):
    features = np.array([[1.0, 2.0], [3.0, value]])
    with pytest.raises(CandidateError, match=r"infinite as float32.*null for missing") as caught:
        CandidateList(features)
    assert str(features[1, 1]) in str(caught.value)
    assert caught.value.path == ("features", 1, 1)


def test_ids_are_kept():
    assert CandidateList(TWO, ids=("a", "b")).ids == ("a", "b")


@pytest.mark.parametrize("ids", [(), ("a",), ("a", "b", "c")])
def test_a_wrong_number_of_ids_is_refused(ids):
    with pytest.raises(CandidateError, match=f"{len(ids)} ids for 2 candidates") as caught:
        CandidateList(TWO, ids=ids)
    assert caught.value.path == ("ids",)


def test_a_repeated_id_is_refused_with_both_places():
    with pytest.raises(CandidateError, match=r"'b' was used at 1 already") as caught:
        CandidateList(np.zeros((4, 1)), ids=("a", "b", "c", "b"))
    assert caught.value.path == ("ids", 3)
