"""``POST /rerank`` against a live process on a real port."""

import math

import numpy as np
import pytest

from listwright.ranking.candidates import CandidateList
from listwright_client import Route
from support.http.rerank_requests import CODES, NAMES, ROWS, by_column, by_name, by_position, matrix, without_timings


def ask(live, body, **headers):
    response = live.post("/rerank", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_answer_is_what_the_kernel_computes(live, reranker):
    features = [
        [math.nan if row[k] is None else row[k] for k in NAMES[:3]] + [CODES.get(row["carrier"], 0)] for row in ROWS
    ]
    expected = reranker.rerank(CandidateList(np.array(features, dtype=np.float32)))
    answer = ask(live, by_name(id="req-7"))
    assert answer["id"] == "req-7"
    assert (answer["model"], answer["version"]) == ("shop", "7")
    assert [result["index"] for result in answer["results"]] == expected.order.tolist()
    assert answer["ranks"] == expected.ranks.tolist()
    assert [s for s in answer["scores"] if s >= 0] == pytest.approx(
        [s for s in expected.relevance if not math.isnan(s)]
    )
    assert [r["first_stage_score"] for r in answer["results"]] == pytest.approx(
        expected.first_stage_scores[expected.order].tolist()
    )
    assert answer["route"] == {"strategy": "qilcm", "specialist": None, "confidence": None, "decided_by": "bundle"}
    assert answer["meta"]["status"] == "ok"
    assert answer["meta"]["stage_reached"] == "second_stage"


def test_candidates_below_the_cutoff_stand_last_with_a_number_for_their_place(live):
    results = ask(live, by_name())["results"]
    assert [result["stage"] for result in results] == ["second"] * 5 + ["first"] * 2
    assert [result["relevance_score"] for result in results[5:]] == [-1, -2]
    assert [result["first_stage_rank"] for result in results[5:]] == [6, 7]
    assert sum(result["relevance_score"] for result in results[:5]) == pytest.approx(1.0)


def test_raw_scores_below_the_cutoff_are_below_the_others_and_below_0(live):
    scores = [result["relevance_score"] for result in ask(live, by_name(raw_scores=True))["results"]]
    lowest = min(0, *scores[:5])
    assert scores[5:] == [lowest - 1, lowest - 2]


def test_a_caller_may_have_no_score_below_the_cutoff(live):
    finite, asked = ask(live, by_name()), ask(live, by_name(finite_scores=False))
    assert asked["scores"] == [None if score < 0 else score for score in finite["scores"]]
    assert [result["relevance_score"] for result in asked["results"][5:]] == [None, None]
    assert [result["stage"] for result in asked["results"]] == ["second"] * 5 + ["first"] * 2


def test_all_forms_of_a_request_are_one(live):
    expected = without_timings(ask(live, by_name()))
    reordered = [{k: row[k] for k in reversed(row)} for row in ROWS]
    without_optional = [{k: v for k, v in row.items() if v is not None} for row in ROWS]
    bodies = [
        by_position(),
        matrix(),
        matrix(reversed(NAMES)),
        by_column(),
        by_column(NAMES[::-1]),
        by_name(reordered),
        by_name(without_optional),
    ]
    for body in bodies:
        assert without_timings(ask(live, body)) == expected
    partial = matrix(NAMES[:2])
    everything_missing = [dict(row, bm25=None, carrier=None) for row in ROWS]
    assert without_timings(ask(live, partial)) == without_timings(ask(live, by_name(everything_missing)))
    for path in ("/v1/rerank", "/v2/rerank"):
        assert without_timings(live.post(path, json=by_name()).json()) == expected


def test_raw_scores_are_the_logits(client):
    exponentials = np.exp(client.rerank(ROWS, raw_scores=True, finite_scores=False).scores)
    np.testing.assert_allclose(
        client.rerank(ROWS, finite_scores=False).scores, exponentials / np.nansum(exponentials), rtol=1e-6
    )


def test_first_stage_strategy(client):
    ranking = client.rerank(ROWS, strategy="first_stage")
    assert ranking.route == Route("first_stage", specialist=None, confidence=None, decided_by="caller")
    assert [result.first_stage_rank for result in ranking.results] == list(range(1, len(ROWS) + 1))
    assert {result.stage for result in ranking.results} == {"first"}
    assert not ranking.degraded


def test_degraded_answer_says_so(client, live):
    ranking = client.rerank([dict(ROWS[0], price=5000.0), *ROWS[1:5]])
    assert ranking.degraded
    assert ranking.meta.stage_reached == "first_stage"
    assert "second stage gave nan" in ranking.meta.reason
    assert [result.first_stage_rank for result in ranking.results] == [1, 2, 3, 4, 5]
    assert {result.stage for result in ranking.results} == {"first"}
    assert 'listwright_degraded_total{cause="failure",stage_reached="first_stage"}' in live.get("/metrics").text


def test_one_candidate(client):
    ranking = client.rerank(ROWS[:1])
    assert (ranking.scores.tolist(), ranking.ranks.tolist()) == ([1.0], [1])


def test_headers(live):
    response = live.post("/rerank", json=by_name(), headers={"X-Request-ID": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    assert "second_stage;dur=" in response.headers["server-timing"]
    for bad in ("with blank", "x" * 129):
        made = live.post("/rerank", json=by_name(), headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert made != bad
        assert len(made) == 32


def test_timings_add_up(live):
    timings = ask(live, by_name())["meta"]["timings_ms"]
    parts = timings["parse"] + timings["first_stage"] + timings["second_stage"]
    assert 0 < parts <= timings["total"] + 0.01


def test_info(live):
    info = live.get("/info").json()
    assert (info["model"], info["version"]) == ("shop", "7")
    assert [feature["name"] for feature in info["features"]] == NAMES
    assert [feature["required"] for feature in info["features"]] == [True, True, False, False]
    assert info["limits"] == {"max_candidates": 50, "max_payload_bytes": 200_000, "timeout_ms": 10_000}
    assert info["strategies"] == ["auto", "qilcm", "srm", "first_stage"]
    assert info["supports_chunking"] is False
    assert info["engine"] == "compiled"
    assert info["fingerprint"].startswith("sha256:")


def test_health_and_metrics(live):
    assert live.get("/livez").json() == {"status": "ok"}
    assert live.get("/readyz").json() == {"status": "ok"}
    ask(live, by_name())
    text = live.get("/metrics").text
    assert 'listwright_requests_total{path="/rerank",status="200"}' in text
    labels = 'le="0.0001",model="shop",outcome="ok",stage="first_stage",version="7"'
    assert f"listwright_stage_seconds_bucket{{{labels}}}" in text
    assert 'listwright_bundle_info{engine="compiled",model="shop",version="7"} 1.0' in text


def test_many_at_once(live):
    from concurrent.futures import ThreadPoolExecutor

    expected = without_timings(ask(live, by_name()))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: without_timings(ask(live, by_name())), range(200)))
    assert all(answer == expected for answer in answers)
