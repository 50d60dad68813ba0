"""Whatever bytes arrive at ``POST /rerank``, the answer is one of the documented ones; equal lists get equal answers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.service.problems import DOCUMENTED
from support.service.asgi import serving
from support.service.bundles import CATEGORY, NUMERIC, make_bundle
from support.strategies import scale_examples

NAMES = (*NUMERIC, CATEGORY.name)
STATUSES = {200, *DOCUMENTED} - {503}
HEADERS = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = make_bundle(
        tmp_path_factory.mktemp("models") / "shop" / "7",
        cutoff=5,
        graph="nan",
        specialists=3,
        margin=0.25,
        probability="relevance",
        goals={"profit": 0.0},
    )
    with serving(folder, max_candidates=20) as client:
        yield client


def check(response):
    assert response.status_code in STATUSES, response.text
    answer = response.json()
    if response.status_code == 200:
        ranks = [rank for rank in answer["ranks"] if rank is not None]
        assert sorted(ranks) == list(range(1, len(ranks) + 1))
        assert all(0 <= value <= 1 for value in answer.get("probabilities", ()) if value is not None)
    else:
        assert response.headers["content-type"] == "application/problem+json"
        assert answer["status"] == response.status_code
        assert answer["request_id"] == response.headers["x-request-id"]
        assert answer["detail"]
    return answer


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
EXTREMES = st.sampled_from([10**400, -(10**400), 2**63, 1e39, -1e308, 5e-324, "", "\u0000", "A5", [], {}, [[]], "NaN"])
JSON = st.recursive(
    SCALARS | EXTREMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)

# bodies that are nearly right get furthest
NUMBERS = st.none() | st.floats(-1e6, 1e6) | st.integers(-1000, 1000)
CATEGORIES = st.none() | st.sampled_from(["A5", "B2", "C7", "new"])
ROWS = st.tuples(NUMBERS, NUMBERS, NUMBERS, CATEGORIES).map(list)
VALUES = st.one_of(NUMBERS, CATEGORIES, SCALARS, EXTREMES)
ODD_ROWS = st.one_of(
    ROWS,
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES, max_size=5),
    st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)),
    JSON,
)
IDS = st.none() | st.text(max_size=3) | JSON
CANDIDATES = st.fixed_dictionaries({}, optional={"id": IDS, "features": ODD_ROWS, "x": JSON})
WEIGHTS = st.dictionaries(st.sampled_from(["booked", "profit", "other"]), st.floats(0, 1e6) | SCALARS, max_size=3)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "id": IDS,
        "model": st.just("shop") | IDS,
        "version": st.just("7") | IDS,
        "candidates": st.lists(CANDIDATES | JSON, max_size=22) | JSON,
        "feature_names": st.lists(st.sampled_from(NAMES), max_size=5) | JSON,
        "features": st.lists(ODD_ROWS, max_size=22) | JSON,
        "columns": st.dictionaries(st.sampled_from([*NAMES, "other"]), st.lists(VALUES, max_size=22) | JSON) | JSON,
        "ids": st.lists(IDS, max_size=5) | JSON,
        "top_n": st.integers(-1, 5) | JSON,
        "strategy": st.sampled_from(["auto", "qilcm", "first_stage", "srm"]) | JSON,
        "specialist": st.integers(-1, 3) | JSON,
        "context": st.dictionaries(st.sampled_from([*NAMES, "other"]) | st.text(max_size=3), VALUES, max_size=4) | JSON,
        "raw_scores": st.booleans() | JSON,
        "probabilities": st.booleans() | JSON,
        "min_probability": st.floats(-0.1, 1.1) | JSON,
        "weights": WEIGHTS | JSON,
        "expect_candidates": st.integers(-1, 22) | JSON,
        "x": JSON,
    },
)


@settings(max_examples=scale_examples(300))
@given(body=BODIES | JSON)
def test_any_json_gets_a_documented_answer(client, body):
    check(client.post("/rerank", content=json.dumps(body).encode(), headers=HEADERS))


@settings(max_examples=scale_examples(150))
@given(
    rows=st.lists(ODD_ROWS.filter(lambda row: isinstance(row, list | dict)), min_size=1, max_size=4),
    more=st.fixed_dictionaries(
        {},
        optional={
            "top_n": st.integers(1, 9),
            "raw_scores": st.booleans(),
            "specialist": st.integers(0, 3),
            "probabilities": st.booleans(),
            "min_probability": st.floats(0, 1),
            "weights": WEIGHTS,
            "context": st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES, max_size=4),
        },
    ),
)
def test_any_values_in_a_sound_envelope_get_a_documented_answer(client, rows, more):
    body = {"candidates": [{"features": row} for row in rows], **more}
    check(client.post("/rerank", content=json.dumps(body).encode(), headers=HEADERS))


@settings(max_examples=scale_examples(150))
@given(body=BODIES.map(json.dumps), data=st.data())
def test_any_bytes_get_a_documented_answer(client, body, data):
    """Truncated, spliced and garbled bodies."""
    content = body.encode()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    check(
        client.post(
            "/rerank", content=content[:start] + data.draw(st.binary(max_size=4)) + content[end:], headers=HEADERS
        )
    )


TOKENS = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)


@given(
    content_type=st.sampled_from(["application/json", "application/x+json", "text/json", "application/json;;"])
    | TOKENS,
    encoding=st.sampled_from(["identity", "gzip", ""]) | TOKENS,
    request_id=TOKENS,
    announced=st.sampled_from(["2", "-1", "²", "9" * 30, "9" * 5000, "0" * 5000 + "2"]) | TOKENS,
)
def test_any_headers_get_a_documented_answer(client, content_type, encoding, request_id, announced):
    headers = {
        "Content-Type": content_type.encode("latin-1"),
        "Content-Encoding": encoding.encode("latin-1"),
        "X-Request-ID": request_id.encode("latin-1"),
        "Content-Length": announced.encode("latin-1"),
    }
    check(client.post("/rerank", content=b"{}", headers=headers))


def answer_of(client, body):
    answer = check(client.post("/rerank", json=body))
    assert "results" in answer, answer
    del answer["meta"]["timings_ms"]
    return answer


@given(rows=st.lists(ROWS, min_size=1, max_size=12), data=st.data())
def test_every_form_of_a_list_gets_the_same_answer(client, rows, data):
    ids = [f"sku-{n}" for n in range(len(rows))]
    by_position = {"candidates": [{"id": i, "features": row} for i, row in zip(ids, rows, strict=True)]}
    expected = answer_of(client, by_position)
    named = [dict(zip(NAMES, row, strict=True)) for row in rows]
    shuffled = [{name: row[name] for name in data.draw(st.permutations(NAMES))} for row in named]
    by_name = {"candidates": [{"id": i, "features": row} for i, row in zip(ids, shuffled, strict=True)]}
    names = data.draw(st.permutations(NAMES))
    matrix = {"feature_names": names, "features": [[row[name] for name in names] for row in named], "ids": ids}
    columns = {"columns": {name: [row[name] for row in named] for name in names}, "ids": ids}
    assert answer_of(client, by_name) == expected
    assert answer_of(client, matrix) == expected
    assert answer_of(client, columns) == expected


@settings(max_examples=scale_examples(150))
@given(
    columns=st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=len(NAMES), max_size=len(NAMES)),
    more=st.fixed_dictionaries({}, optional={"ids": st.lists(IDS, max_size=3), "context": st.just({"carrier": "A5"})}),
)
def test_any_values_in_sound_columns_are_what_they_are_in_rows(client, columns, more):
    by_column = {"columns": dict(zip(NAMES, columns, strict=True))}
    matrix = {"feature_names": NAMES, "features": list(zip(*columns, strict=True))}
    found, expected = (check(client.post("/rerank", json={**form, **more})) for form in (by_column, matrix))
    if "errors" in expected:  # they name another place
        assert found["status"] == expected["status"]
        assert [e["message"] for e in found["errors"]] == [e["message"] for e in expected["errors"]]
    else:
        assert (found["scores"], found["results"]) == (expected["scores"], expected["results"])


@given(
    rows=st.lists(ROWS, min_size=1, max_size=12),
    lowest=st.floats(0, 1),
    weights=st.fixed_dictionaries({}, optional={"profit": st.floats(0, 1e6), "booked": st.floats(1e-6, 1e6)}),
    strategy=st.sampled_from(["auto", "qilcm", "srm", "first_stage"]),
)
def test_a_cutoff_leaves_out_what_is_below_it_and_nothing_else(client, rows, lowest, weights, strategy):
    body = {"features": rows, "strategy": strategy, "weights": weights, "probabilities": True}
    whole, cut = answer_of(client, body), answer_of(client, {**body, "min_probability": lowest})
    assert cut["probabilities"] == whole["probabilities"]
    kept = [result["index"] for result in whole["results"] if result["probability"] >= lowest]
    assert [result["index"] for result in cut["results"]] == kept
    assert len(kept) == len(rows) - sum(rule["candidates"] for rule in cut["meta"].get("rules", ()))


@given(rows=st.lists(ROWS, min_size=2, max_size=12), top_n=st.integers(1, 15), data=st.data())
def test_answer_hangs_together(client, rows, top_n, data):
    strategy = data.draw(st.sampled_from(["auto", "qilcm", "srm", "first_stage"]))
    whole = answer_of(client, {"features": rows, "strategy": strategy})
    results = whole["results"]
    assert [result["rank"] for result in results] == list(range(1, len(rows) + 1))
    assert [whole["ranks"][result["index"]] for result in results] == list(range(1, len(rows) + 1))
    assert [whole["scores"][result["index"]] for result in results] == [result["relevance_score"] for result in results]
    scored = [score for score in whole["scores"] if score >= 0]
    assert sorted(range(len(rows)), key=lambda n: -whole["scores"][n]) == [result["index"] for result in results]
    assert sum(scored) == pytest.approx(1.0)
    by_qilcm = whole["meta"]["stage_reached"] == "second_stage" and whole["route"]["strategy"] == "qilcm"
    assert len(scored) == (min(5, len(rows)) if by_qilcm else len(rows))
    trimmed = answer_of(client, {"features": rows, "strategy": strategy, "top_n": top_n})
    assert trimmed == {**whole, "results": results[:top_n]}


@given(
    rows=st.lists(ROWS, min_size=1, max_size=6),
    shared=st.fixed_dictionaries(dict.fromkeys(NAMES[:3], NUMBERS)),
    data=st.data(),
)
def test_a_value_in_the_context_is_a_value_of_every_candidate(client, rows, shared, data):
    """Whichever names stand in the context, in any form that names them."""
    lifted = data.draw(st.sets(st.sampled_from(NAMES[:3])))
    kept = [name for name in NAMES if name not in lifted]
    context = {name: shared[name] for name in lifted}
    own = [dict(zip(NAMES, row, strict=True)) for row in rows]
    expected = answer_of(client, {"candidates": [{"features": row | context} for row in own]})
    by_name = {"candidates": [{"features": {name: row[name] for name in kept}} for row in own], "context": context}
    matrix = {"feature_names": kept, "features": [[row[name] for name in kept] for row in own], "context": context}
    columns = {"columns": {name: [row[name] for row in own] for name in kept}, "context": context}
    assert answer_of(client, columns) == expected
    assert answer_of(client, by_name) == expected
    assert answer_of(client, matrix) == expected
