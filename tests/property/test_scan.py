"""True of every body: what the scanner accepts, the general way accepts as the same candidates."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from support.service.scanning import DEFAULTS, MODES, MOST, SCHEMA, agree, scan

NUMBERS = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20),
    st.floats(-3.4e38, 3.4e38, allow_nan=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(-1, 1),
)
CATEGORIES = st.one_of(
    st.none(), st.sampled_from(("A5", "Ü", "B2", "", " A5 ", "Ü\N{NO-BREAK SPACE}", "True", "NA")), st.text(max_size=5)
)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, CATEGORIES), min_size=1, max_size=5)


PARTS = st.one_of(st.permutations(range(3)), st.lists(st.integers(0, 2), min_size=1, unique=True))
UNKNOWN = st.one_of(
    st.just({}),
    st.dictionaries(
        st.sampled_from(("new", "ü", "colour", "")),
        st.one_of(NUMBERS, CATEGORIES, st.booleans(), st.just([1])),
        max_size=3,
    ),
)


@st.composite
def bodies(draw):
    """Requests of every form, spaced in every way."""
    rows = draw(ROWS)
    form = draw(st.sampled_from(("names", "positions", "matrix")))
    more = draw(st.dictionaries(st.sampled_from(("id", "model")), st.text(max_size=5), max_size=2))
    if form == "matrix":
        body = {"features": rows} | more
        named = draw(st.sampled_from(("no", "as they are", "in another order")))
        if named == "as they are":
            body["feature_names"] = SCHEMA.names
        if named == "in another order":
            order = draw(PARTS)
            unknown = draw(UNKNOWN)
            names = [*(SCHEMA.names[d] for d in order), *unknown]
            matrix = [[*(row[d] for d in order), *unknown.values()] for row in rows]
            body = (
                {"feature_names": names, "features": matrix}
                if draw(st.booleans())
                else {"features": matrix, "feature_names": names}
            )
    else:
        unknown = draw(UNKNOWN)
        features = [
            dict(draw(st.permutations([*((SCHEMA.names[d], row[d]) for d in draw(PARTS)), *unknown.items()])))
            if form == "names"
            else list(row)
            for row in rows
        ]
        with_ids = draw(st.booleans())
        body = {
            "candidates": [
                {"id": f"sku-{n}", "features": f} if with_ids else {"features": f} for n, f in enumerate(features)
            ]
        } | more
    separators = draw(st.sampled_from(((",", ":"), (", ", ": "), (" ,\n", "\t:\r "))))
    return json.dumps(body, separators=separators, ensure_ascii=draw(st.booleans())).encode()


@given(bodies())
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("columns", [SCHEMA, DEFAULTS], ids=["plain", "defaults"])
def test_what_is_accepted_means_the_same(columns, ignores, body):
    agree(body, columns, ignores=ignores)


@given(
    bodies(),
    st.integers(0, 10_000),
    st.integers(0, 4),
    st.sampled_from(
        [
            b'"',
            b",",
            b"}",
            b"]",
            b"{",
            b"[",
            b"0",
            b"-",
            b".",
            b"e",
            b"null",
            b"\\",
            b"\0",
            b"\xff",
            b" ",
            b":",
            b'"features":[[1,2,"A5"]],',
            b'"price":1,',
            b'"id":"x",',
            b"1e999",
            b"00",
            b"1.",
            b"true",
        ]
    ),
)
@example(b'{"features":[[1,2,"A5"]],"features":[[3,4,"A5"]]}', 0, 0, b" ")
@pytest.mark.parametrize(("columns", "ignores"), [(SCHEMA, False), (DEFAULTS, True)], ids=["plain", "all"])
def test_damaged_bodies_are_accepted_by_both_or_by_the_general_way_alone(columns, ignores, body, place, removed, put):
    at = place % (len(body) + 1)
    damaged = body[:at] + put + body[at + removed :]
    try:
        from_json(damaged, allow_inf_nan=False)
    except ValueError:
        try:
            rest, *_ = scan.scan(damaged, MODES[columns, ignores], MOST)
        except scan.GivenUp:
            return
        with pytest.raises(ValueError, match="column"):  # what is not the scanner's own is decoded next
            from_json(rest, allow_inf_nan=False)
        return
    agree(damaged, columns, ignores=ignores)


ORDINARY = [
    b'{"candidates":[{"id":"a","features":{"price":1.5,"gr\xc3\xb6\xc3\x9fe":-2e-3,"carrier":"A5"}},'
    b'{"features":{"carrier":null,"price":7,"gr\xc3\xb6\xc3\x9fe":null},"id":"b"}],"top_n":1}',
    b'{"features":[[1.5,2,"A5"],[0.1234567890123456789,1e-40,"never seen"]],"ids":["a","b"]}',
]


@pytest.mark.parametrize("body", ORDINARY)
def test_ordinary_bodies_are_accepted(body):
    assert agree(body)


WHILE_BUNDLES_CHANGE = [
    b'{"candidates":[{"features":{"price":1.5,"new":[],"carrier":"A5"}}]}'.replace(b"[]", spelled)
    for spelled in (b"7", b"null", b"true", b"false", b'"x"')
] + [
    b'{"candidates":[{"features":{"price":1}},{"features":{"new":1,"price":2,"carrier":null}}]}',
    b'{"feature_names":["new","carrier","price"],"features":[[1,"A5",2],[true,null,3]]}',
]


@pytest.mark.parametrize("body", WHILE_BUNDLES_CHANGE)
def test_bodies_for_the_bundle_before_or_after_are_accepted(body):
    """Rolling out a feature must not make each request take the slow way."""
    assert agree(body, DEFAULTS, ignores=True)
    assert not agree(body, DEFAULTS), "a name that no bundle here had"
    assert agree(body, ignores=True), "a name that is left out is a missing value"


LEFT_ALONE = {
    "a name twice": b'{"candidates":[{"features":{"price":1,"price":1,"carrier":"A5"}}]}',
    "a name that is none": b'{"candidates":[{"features":{"price":1,"size":1,"carrier":"A5"}}]}',
    "a feature left out": b'{"candidates":[{"features":{"carrier":"A5"}}]}',
    "too short a row": b'{"features":[[1,2]]}',
    "too long a row": b'{"features":[[1,2,"A5",4]]}',
    "too many rows": b'{"features":[' + b",".join([b'[1,2,"A5"]'] * 51) + b"]}",
    "no rows": b'{"features":[]}',
    "no candidates": b'{"candidates":[]}',
    "neither": b'{"top_n":3}',
    "an id twice": b'{"candidates":[{"id":"a","features":[1,2,"A5"]},{"id":"a","features":[1,2,"A5"]}]}',
    "some without id": b'{"candidates":[{"id":"a","features":[1,2,"A5"]},{"features":[1,2,"A5"]}]}',
    "too large for float32": b'{"features":[[1e39,2,"A5"]]}',
    "infinite": b'{"features":[[1e999,2,"A5"]]}',
    "a number for a category": b'{"features":[[1,2,3]]}',
    "a string for a number": b'{"features":[["1",2,"A5"]]}',
    "other names": b'{"feature_names":["price","size"],"features":[[1,"A5"]]}',
    "names behind their rows": b'{"features":[["A5",1,2]],"feature_names":["carrier","price","gr\xc3\xb6\xc3\x9fe"]}',
    "a column named twice": b'{"feature_names":["price","price"],"features":[[1,"A5"]]}',
    "no columns": b'{"feature_names":[],"features":[[]]}',
    "an escape": b'{"features":[[1,2,"\\u0041"]]}',
    "bad UTF-8": b'{"features":[[1,2,"\xff"]]}',
    "something behind it": b'{"features":[[1,2,"A5"]]}x',
    "cut": b'{"features":[[1,2,"A5"]]',
    "leading zero": b'{"features":[[01,2,"A5"]]}',
    "nothing after the point": b'{"features":[[1.,2,"A5"]]}',
    "a very long number": b'{"features":[[' + b"1" * 5000 + b',2,"A5"]]}',
    "both forms": b'{"candidates":[{"features":[1,2,"A5"]}],"features":[[1,2,"A5"]]}',
    "empty": b"",
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_anything_else_is_left_to_the_general_way(what):
    assert not agree(LEFT_ALONE[what])


UNKNOWN_LEFT_ALONE = {
    "an array": b'{"candidates":[{"features":{"price":1,"new":[1]}}]}',
    "an object": b'{"candidates":[{"features":{"price":1,"new":{}}}]}',
    "no JSON": b'{"candidates":[{"features":{"price":1,"new":nothing}}]}',
    "a word cut short": b'{"candidates":[{"features":{"price":1,"new":tru}}]}',
    "bad UTF-8": b'{"candidates":[{"features":{"price":1,"new":"\xff"}}]}',
    "bad UTF-8 in a name": b'{"candidates":[{"features":{"price":1,"\xff":1}}]}',
    "a name twice": b'{"candidates":[{"features":{"new":1,"price":1,"new":2}}]}',
    "a column named twice": b'{"feature_names":["new","price","new"],"features":[[1,2,3]]}',
    "too many": b'{"candidates":[{"features":{"price":1,%s}}]}' % b",".join(b'"n%d":1' % n for n in range(40)),
}


@pytest.mark.parametrize("what", UNKNOWN_LEFT_ALONE)
def test_so_are_odd_values_of_unknown_features(what):
    assert not agree(UNKNOWN_LEFT_ALONE[what], DEFAULTS, ignores=True)
