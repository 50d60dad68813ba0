"""Which of two media types a caller prefers, and which announce JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.service.wire import negotiation
from listwright.service.wire.negotiation import prefers

NPY, JSON = "application/x-npy", "application/json"


@pytest.mark.parametrize(
    ("accept", "npy"),
    [
        ([], False),
        ([""], False),
        (["*/*"], False),
        (["application/*"], False),
        (["text/html"], False),
        ([NPY], True),
        ([NPY.upper()], True),
        (["*/*, " + NPY], True),
        ([JSON + "," + NPY], True),
        ([JSON, NPY], True),
        ([NPY + ";q=0"], False),
        ([NPY + "; Q=0.0, */*"], False),
        ([NPY + ";q=0.5, " + JSON], False),
        ([NPY + ";q=0.5, */*"], False),
        ([NPY + ";q=0.5, */*;q=0.4"], True),
        ([NPY + ";q=0.5, " + JSON + ";q=0.2"], True),
        ([JSON + ";q=0, */*"], True),
        ([JSON + ";q=0.9, application/*"], True),
        ([NPY + ";q=0.001"], True),
        ([NPY + ";version=1;q=0.3"], True),
        ([NPY + ";q=much"], False),
        ([NPY + ";q=2"], False),
        ([NPY + ";q=0.0001, " + JSON], False),
        (["x-npy"], False),
    ],
)
def test_the_more_wanted_wins_and_the_named_of_equals(accept, npy):
    assert prefers(accept, NPY, JSON) is npy


@given(st.lists(st.text('aplicton/x-ny*;q=0.15, "\\\t')))
def test_whatever_is_sent_is_an_answer(accept):
    assert prefers(accept, NPY, JSON) in (True, False)


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        (JSON, True),
        (" Application/JSON ; charset=utf-8", True),
        ("application/vnd.shop+json", True),
        ("application/json-seq", False),
        ("application/a/b+json", False),
        ("text/plain; application/json", False),
        ("text/json", False),
        (NPY, False),
        ("", False),
    ],
)
def test_json_is_announced_by_its_type_and_its_suffix(content_type, is_json):
    assert bool(negotiation.JSON.fullmatch(content_type)) is is_json
