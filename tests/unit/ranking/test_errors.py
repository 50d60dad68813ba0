"""Errors cross from one process to another as they are."""

import copy
import pickle
from pathlib import Path

import pytest

from listwright.ranking import errors
from listwright.ranking.errors import BundleError, DataError, ListwrightError, RoutingError, SchemaMismatchError

ONES = [
    BundleError(Path("shop/1/qilcm.onnx"), "altered"),
    DataError("rows.csv", "found inf", line=3, column="price"),
    RoutingError("hook_raised", "it raised"),
    SchemaMismatchError("other names", expected=("price",), sent=("prise",), path=("features", 0)),
    errors.CandidateError("too large", ("candidates", 3)),
]


def kinds(kind=ListwrightError):
    return {kind}.union(*(kinds(lower) for lower in kind.__subclasses__()))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("error", [*ONES, errors.ScoringError("x")], ids=lambda e: type(e).__name__)
def test_an_error_stays_what_it_is(error, copied):
    again = copied(error)
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_every_error_can_be_pickled():
    """Also those that will be written: what a class takes does not matter."""
    for kind in kinds():
        error = kind.__new__(kind, "said")
        error.place = "here"
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.place) == (kind, "said", "here")


def test_notes_go_along():
    error = DataError("rows.csv", "found inf")
    error.add_note("of fold 3")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["of fold 3"]
