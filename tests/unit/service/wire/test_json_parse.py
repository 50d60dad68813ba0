"""What a body may hold, and how what it may not is told. Sizes are those at which a missing bound would be felt."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listwright.ranking.rules.schema import MOST_RULES
from listwright.service.errors import RepeatedNameError, TooLargeError, UndecodableBodyError
from listwright.service.events import lines_of
from listwright.service.wire import json_codec
from listwright.service.wire.json_codec import ENVELOPE_BYTES, LEAST_VALUES, SEARCHED, Bounds, bounds_of, decode
from support.service.bundles import schema

BOUNDS = Bounds(candidates=1000, features=136, spelling=16)
MEGABYTES = 8 * 10**6


@pytest.fixture(autouse=True, params=["compiled", "not compiled"])
def counting(request, monkeypatch):
    """What stands outside of strings is counted by either way."""
    if request.param == "not compiled":
        monkeypatch.setattr(json_codec, "json_fast", None)
    elif json_codec.json_fast is None:
        pytest.skip("there was no C compiler")


@pytest.fixture
def no_parsing(monkeypatch):
    """The parsers must not be reached."""
    for name in ("pydantic_core", "json"):
        monkeypatch.setattr(json_codec, name, None)


def filled(unit):
    """``[unit,unit,...]``, of many megabytes."""
    return b"[" + b",".join([unit] * (MEGABYTES // (len(unit) + 1))) + b"]"


@pytest.mark.nightly
@pytest.mark.parametrize("unit", [b"[]", b"{}", b'{"a":1}', b"[[[[1]]]]"])
def test_masses_of_brackets_are_counted_and_not_parsed(no_parsing, unit):
    with pytest.raises(TooLargeError, match=r"\d+ arrays and objects, the limit is 4364 for lists of 1000"):
        decode(filled(unit), BOUNDS)


def test_an_endless_nesting_is_counted_and_not_parsed(no_parsing):
    with pytest.raises(TooLargeError, match="8000000 arrays and objects"):
        decode(b"[" * MEGABYTES, BOUNDS)


@pytest.mark.parametrize("unit", [b"1", b'""', b"1e1", b"null", b'"a[{,"'])
def test_masses_of_values_are_counted_and_not_parsed(no_parsing, unit):
    with pytest.raises(
        TooLargeError,
        match=f"values, the limit is {1001 * 138 + 132} for lists of 1000 candidates .* with 136 features",
    ):
        decode(filled(unit), BOUNDS)


def test_masses_of_names_are_counted_and_not_parsed(no_parsing):
    body = ("{" + ",".join(f'"{n}":1' for n in range(5 * 10**5)) + "}").encode()
    with pytest.raises(TooLargeError, match="499999 values"):
        decode(body, BOUNDS)


@pytest.mark.parametrize(
    "text", ["[{," * 9000, '"' * 9000, "\\" * 9000, '\\"[' * 5000, '\\\\",' * 3000, ":" * 30000, '":' * 9000]
)
def test_a_string_may_hold_what_it_likes(text):
    assert decode(json.dumps({"id": text, "ids": [text]}).encode(), BOUNDS) == {"id": text, "ids": [text]}


@pytest.mark.parametrize("text", ["a" * 70_000, "[{," * 25_000, '"' * 35_000, "\\" * 35_000, "é" * 12_000])
def test_but_not_more_than_its_values_need(no_parsing, text):
    """A body of few values has few bytes: strings that nobody sends would be read for nothing."""
    with pytest.raises(TooLargeError, match=r"bytes for 1 values, the limit is 65848 "):
        decode(json.dumps({"id": text, "a": 1}).encode(), BOUNDS)


_strings = st.text('\\"[]{},:é a') | st.text()
_values = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_strings, inner, max_size=4),
    max_leaves=12,
)


def structure(value):
    """Commas, arrays and objects, and names of a value."""
    if not isinstance(value, list | dict):
        return np.zeros(3, dtype=int)
    inner = value.values() if isinstance(value, dict) else value
    own = [max(0, len(value) - 1), 1, len(value) if isinstance(value, dict) else 0]
    return sum(map(structure, inner), np.array(own))


@pytest.mark.parametrize("ascii_only", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=_values)
def test_what_is_counted_is_the_structure(value, ascii_only):
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json_codec._count(body) == tuple(structure(value))


@pytest.mark.parametrize("body", [b"", b'"', b'"\\', b'\\"', b'"\\\\"', b'["a', b"]:,{"])
def test_what_is_no_json_is_counted_somehow(body):
    assert all(0 <= count <= len(body) for count in json_codec._count(body))


def test_a_backslash_at_a_strings_end_is_no_quotes():
    value = {"id": "\\", "ids": ["[{," * 10**4, '\\"']}
    assert decode(json.dumps(value).encode(), BOUNDS) == value


def test_strings_may_lie_across_blocks(monkeypatch):
    monkeypatch.setattr(json_codec, "BLOCK", 3)
    value = {"ids": [":,[" * n + '"' for n in range(20)], "a b": {" :": '":'}}
    assert decode(json.dumps(value).encode(), Bounds(candidates=1, features=1, spelling=1)) == value


def test_the_longest_list_fits_in_every_form():
    bounds = Bounds(candidates=50, features=6000, spelling=8)
    names = [f"f{n}" for n in range(6000)]
    rows = [{"id": str(n), "features": dict.fromkeys(names, 1.5)} for n in range(50)]
    assert LEAST_VALUES < 50 * 6000
    bodies = [
        {"candidates": rows, "context": {str(n): n for n in range(100)}, **{str(n): n for n in range(30)}},
        {"feature_names": names, "features": [[1.5] * 6000] * 50, "ids": [str(n) for n in range(50)]},
        {"columns": {name: [1.5] * 50 for name in names}, "ids": [str(n) for n in range(50)]},
    ]
    for body in bodies:
        assert decode(json.dumps(body).encode(), bounds) == body


def test_a_list_for_a_wider_bundle_is_no_matter_of_size():
    """It gets to hear which names differ, unless it is very long."""
    body = {"features": [[1.5] * 136] * 60}
    assert decode(json.dumps(body).encode(), Bounds(candidates=1000, features=4, spelling=10)) == body


def test_more_bytes_than_any_list_has_are_not_looked_at(no_parsing, monkeypatch):
    monkeypatch.setattr(json_codec, "np", None)
    bounds = bounds_of(50, [schema(), schema(categorical=False)])
    assert bounds == Bounds(candidates=50, features=4, spelling=len("carrier") + len("A5"))
    assert bounds.size == ENVELOPE_BYTES + LEAST_VALUES * (9 + 40) + (4 * 50 + 64 + 3 * MOST_RULES) * 256
    body = b'{"id":"' + b"a" * bounds.size
    with pytest.raises(TooLargeError, match=rf"{len(body)} bytes, the limit is {bounds.size} for lists of 50"):
        decode(body, bounds)


def test_a_list_that_is_too_long_is_named():
    with pytest.raises(TooLargeError, match="1001 candidates, the limit is 1000") as refused:
        decode(json.dumps({"features": [[1.5]] * 1001}).encode(), BOUNDS)
    assert refused.value.path == ("features",)
    with pytest.raises(TooLargeError, match="1001 candidates, the limit is 1000") as refused:
        decode(json.dumps({"columns": {"a": [1.5], "b": [1.5] * 1001, "c": 1}}).encode(), BOUNDS)
    assert refused.value.path == ("columns", "b")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": 1, "a": 2}', ("a",)),
        (b'{"a" :1,"b":2,"a"\n:1}', ("a",)),
        (b'{"a" :1,"a":2}', ("a",)),
        (b'{"a"\t:1,"a":2}', ("a",)),
        (b'{"a": 1, "\\u0061": 1}', ("a",)),
        (
            b'{"candidates": [{"features": {}}, {"features": {"x": 1, "y": 2, "x": 1}}]}',
            ("candidates", 1, "features", "x"),
        ),
        (b'{"candidates": [{"id": "a", "features": [1], "id": "a"}]}', ("candidates", 0, "id")),
        (b'{"context": {"a": 1, "a": 1}}', ("context", "a")),
        (b'{"columns": {"a": [1], "a": [1]}}', ("columns", "a")),
        (b'{"x": [{"y": {"z": 1, "z": ":"}}]}', ("x", 0, "y", "z")),
    ],
)
def test_a_name_that_stands_twice_is_refused_with_its_path(body, path):
    with pytest.raises(RepeatedNameError) as refused:
        decode(body, BOUNDS)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "body",
    [
        {"ids": [":", '":', " :", "a:b"], "id": ':":"'},
        {"x": {"y": {"z": 1}}, "candidates": [{"features": {":": ":"}}, 3, {"features": None}]},
        {"candidates": {"a": 1}, "context": [{"a": 1}]},
        [{"a": 1}, {"a": 2}],
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,", " :")])
def test_colons_that_follow_no_name_are_no_repetition(body, separators):
    assert decode(json.dumps(body, separators=separators).encode(), BOUNDS) == body


def test_no_second_look_at_an_ordinary_list(monkeypatch):
    rng = np.random.default_rng(0)
    names = [f"feature_{n}" for n in range(20)]
    rows = [dict(zip(names, row, strict=True)) for row in rng.normal(size=(50, 20)).tolist()]
    by_name = {"id": "req:7", "candidates": [{"id": f"sku:{n}", "features": row} for n, row in enumerate(rows)]}
    columns = {"id": "req:7", "columns": {name: [row[name] for row in rows] for name in names}}
    texts = [json.dumps(body).encode() for body in (by_name, columns)]
    monkeypatch.setattr(json_codec, "json", None)
    assert [decode(text, BOUNDS) for text in texts] == [by_name, columns]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"features": [[1, 2], [3, NaN]]}', ("features", 1, 1)),
        (b'{"candidates": [{"features": {"price": Infinity}}]}', ("candidates", 0, "features", "price")),
        (b'{"a": -Infinity, "b": NaN}', ("a",)),
        (b'{"ids": ["a", "\\ud800"]}', ("ids", 1)),
        (b'{"ids": ["\\udc00\\ud800"]}', ("ids", 0)),
        (b'{"x": {"\\ud800": 1}}', ("x",)),
        (b'{"a": 1,}', ()),
        (b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", ()),
        (b"\xff", ()),
        (b'"\xed\xa0\x80"', ()),
        (b"", ()),
        (b"9" * 5000, ()),
        (b"\xef\xbb\xbf", ()),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", ()),
        (b"[" * 1500, ()),
    ],
)
def test_what_is_no_json_is_refused_with_its_path(body, path):
    with pytest.raises(UndecodableBodyError) as refused:
        decode(body, BOUNDS)
    assert refused.value.path == path


@pytest.mark.nightly
@pytest.mark.parametrize("unit", [b"[]", b'":,"', b"1", b'"\\"\\\\"'])
def test_the_memory_of_looking_is_bounded(unit):
    body = filled(unit)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            decode(body, BOUNDS)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        (b'{"features": [[1, NaN]]}', "send null"),
        (b'{"features": [[1, nan]]}', "send null"),
        (b'{"a": [1,\n 2],\n"b": -NaN}', "send null"),
        (b'{"features": [[' + b"1," * (SEARCHED + 1) + b"NaN]]}", "send null"),
        (b'{"top_n": Infinity}', "send a finite number"),
        (b'{"a": [-Infinity]}', "send a finite number"),
        (b'{"a": inf}', "send a finite number"),
        (b'{"a": None}', "send null"),
        (b'{"a": True}', "true"),
        ('{"a": 1}'.encode("utf-16"), "send UTF-8"),
        ('{"a": 1}'.encode("utf-16-le"), "send UTF-8"),
        ('{"a": 1}'.encode("utf-32"), "send UTF-8"),
    ],
)
def test_a_value_of_another_language_is_named_with_the_remedy(body, remedy):
    for read in (lambda: decode(body, BOUNDS), lambda: lines_of(body)):
        with pytest.raises(UndecodableBodyError, match=remedy):
            read()


@pytest.mark.parametrize(
    "body", [b'{"a": "NaN" 1}', b'{"nan": 1, }', b'{"a": 1 "true": 2}', b'{"a": NaNs}', b'{"a": }']
)
def test_a_fault_beside_such_a_word_is_not_blamed_on_it(body):
    with pytest.raises(UndecodableBodyError) as refused:
        decode(body, BOUNDS)
    assert "send" not in str(refused.value)


def test_a_byte_order_mark_of_utf_8_is_read_over():
    """RFC 8259, section 8.1: .NET and PowerShell write one."""
    assert decode(b"\xef\xbb\xbf" + b'{"a": 1}', BOUNDS) == {"a": 1}
    event = b'\xef\xbb\xbf{"action_name": "click", "timestamp": "2026-11-25T12:00:00Z"}'
    assert lines_of(event)[0].startswith(b'{"action_name"')


@pytest.mark.parametrize(("values", "place"), [(SEARCHED // 2, ("features", 0, SEARCHED // 2)), (SEARCHED + 1, ())])
def test_the_place_of_a_fault_is_told_of_bodies_that_can_be_searched(values, place):
    with pytest.raises(UndecodableBodyError) as refused:
        decode(b'{"features":[[' + b"1," * values + b"NaN]]}", BOUNDS)
    assert refused.value.path == place


@pytest.mark.parametrize("names", [100, SEARCHED + 1])
def test_a_name_that_stands_twice_is_refused_in_any_body(names):
    body = ", ".join(f'"f{n}": 1' for n in range(names))
    with pytest.raises(RepeatedNameError) as refused:
        decode(('{"candidates": [{"features": {' + body + ', "f7": 1}}]}').encode(), BOUNDS)
    assert refused.value.path == (("candidates", 0, "features", "f7") if names < SEARCHED else ())


def test_names_in_places_that_are_unknown_are_not_repeated_in_any_body():
    body = {"x": [{"y": {f"f{n}": 1 for n in range(SEARCHED + 1)}}]}
    assert decode(json.dumps(body).encode(), BOUNDS) == body
