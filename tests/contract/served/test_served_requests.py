"""What stands in the served log of real requests, in every format; no answer is another one for it."""

import json

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.served_log import files
from listwright.ranking.served_log.record import hashed
from support.http import binary_requests
from support.http.rerank_requests import ROWS, by_name, matrix, without_timings
from support.service.asgi import serving
from support.service.bundles import make_bundle

NPY = {"content-type": "application/x-npy"}
SALT = "a salt that is long enough"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A bundle with every stage: specialists and a router, too."""
    return make_bundle(
        tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5, graph="nan", specialists=3, margin=0.0
    )


@pytest.fixture
def logged(shop, tmp_path):
    """Asks a service with a log; gives the answers and, once it has ended, the records."""

    def ask(*requests, **settings):
        with serving(shop, served_log=tmp_path, **settings) as client:
            answers = [client.post(path, **request) for path, request in requests]
        return answers, list(files.records(files.log_files(tmp_path, unfinished=False)))

    return ask


def json_request(**body):
    return "/rerank", {"json": body}


def test_the_three_names_of_a_query(logged):
    body = by_name()
    answers, records = logged(
        json_request(**body, id="own", query_id="asked", unit="me"),
        json_request(**body, id="own"),
        ("/rerank", {"json": body, "headers": {"X-Request-ID": "of-the-request"}}),
        json_request(**body),
    )
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [record.query_id for record in records] == [
        "asked",
        "own",
        "of-the-request",
        answers[3].headers["x-request-id"],
    ]
    assert [record.request_id for record in records] == [answer.headers["x-request-id"] for answer in answers]
    assert [record.unit for record in records] == ["me", None, None, None]
    assert answers[0].json()["id"] == "own"


@pytest.mark.parametrize("form", [by_name, matrix], ids=["rows", "matrix"])
def test_a_json_list_is_logged_as_it_was_answered(logged, shop, form):
    (answer,), (record,) = logged(json_request(**form(), top_n=3, raw_scores=True, finite_scores=False))
    told = answer.json()
    assert record.candidate_ids == tuple(f"sku-{number}" for number in range(len(ROWS)))
    assert [record.candidate_ids[index] for index in record.order] == [result["id"] for result in told["results"]]
    assert (len(record.order), record.top_n) == (3, 3)
    assert [None if np.isnan(score) else score for score in record.scores] == told["scores"]
    assert (record.bundle, record.strategy, record.degraded) == ("shop/7", told["route"]["strategy"], None)
    assert record.fingerprint == bundle.load(shop).manifest.fingerprint
    assert record.feature_names == ("price", "stars", "bm25", "carrier")
    assert record.categories == {"carrier": ("A5", "B2", "C7")}
    assert record.features[0].tolist() == [1.0, 0.5, 3.0, 1.0]
    assert np.isnan(record.features[1, 2])
    assert set(record.timings_ms) >= {"parse", "queue", "first_stage", "total"}


def test_a_matrix_and_tensors_are_logged_too(logged):
    array = binary_requests.MATRIX
    tensors = binary_requests.body(
        [binary_requests.features(array)], array.tobytes(), parameters={"unit": "me"}, id="of-tensors"
    )
    answers, records = logged(
        ("/rerank?query_id=of-npy&unit=me", {"content": binary_requests.saved(array), "headers": NPY}),
        ("/rerank?id=header", {"content": binary_requests.saved(array), "headers": {**NPY, "Listwright-Unit": "you"}}),
        ("/v2/models/shop/infer", tensors),
    )
    assert [answer.status_code for answer in answers] == [200] * 3
    assert [(record.query_id, record.unit) for record in records] == [
        ("of-npy", "me"),
        ("header", "you"),
        ("of-tensors", "me"),
    ]
    for record in records:
        np.testing.assert_array_equal(record.features, array.astype(np.float32))
        assert record.candidate_ids == tuple(str(number) for number in range(len(array)))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"unit": ""}, "$.unit"),
        ({"unit": "x" * 201}, "$.unit"),
        ({"unit": 7}, "$.unit"),
        ({"query_id": []}, "$.query_id"),
    ],
)
def test_what_is_no_unit_or_id_is_refused_with_its_path(logged, body, path):
    (answer,), records = logged(json_request(**by_name(), **body))
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]
    assert records == []


def test_a_header_that_is_no_unit_is_refused(logged):
    content = binary_requests.saved(binary_requests.MATRIX)
    (answer,), _ = logged(("/rerank", {"content": content, "headers": {**NPY, "Listwright-Unit": "x" * 201}}))
    assert answer.status_code == 422


def test_units_are_hashed_where_there_is_a_salt(logged, tmp_path):
    _, (record,) = logged(json_request(**by_name(), unit="me"), unit_salt=SALT)
    assert record.unit == hashed("me", SALT.encode())
    assert not any(b"me\0" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_logged_list_ranked_again_gives_the_logged_scores_to_the_bit(logged, shop):
    rng = np.random.default_rng(3)
    requests = [
        json_request(
            feature_names=["price", "stars", "bm25"],
            features=rng.normal(size=(int(rng.integers(1, 40)), 3)).tolist(),
            strategy=strategy,
        )
        for strategy in ("auto", "qilcm", "first_stage", "srm") * 5
    ]
    answers, records = logged(*requests)
    assert [answer.status_code for answer in answers] == [200] * 20
    assert len(records) == 20
    assert {record.strategy for record in records} >= {"qilcm", "first_stage", "srm"}
    reranker = bundle.load(shop).reranker
    for record, (_, request) in zip(records, requests, strict=True):
        again = reranker.rerank(CandidateList(record.features), strategy=request["json"]["strategy"])
        assert again.scores.astype(np.float64).tobytes() == record.scores.tobytes()
        assert again.first_stage_scores.astype(np.float64).tobytes() == record.first_stage_scores.tobytes()
        assert again.order.tolist() == record.order.tolist()


def test_a_degraded_answer_says_why_and_one_that_was_refused_is_not_logged(logged, tmp_path):
    body = by_name([{**row, "price": 2000.0} for row in ROWS], strategy="qilcm")
    (answer,), (record,) = logged(json_request(**body))
    assert answer.json()["meta"]["reason"] == record.degraded
    assert record.degraded
    (answer,), records = logged(json_request(**body), on_failure="error")
    assert answer.status_code == 504
    assert len(records) == 1, "the one of before"


def test_the_route_tells_who_chose(logged):
    _, (named, routed) = logged(json_request(**by_name(), specialist=1), json_request(**by_name()))
    assert json.loads(named.route) == {"decided_by": "caller", "specialist": 1}
    told = json.loads(routed.route)
    assert told["decided_by"] in ("router", "abstained")
    assert len(told["probabilities"]) == len(told["gains"]) == 3


def test_answers_are_the_same_with_and_without_a_log(logged, shop):
    requests = [json_request(**by_name(), unit="me", query_id="q"), json_request(**matrix(), top_n=2)]
    with_log, records = logged(*requests, served_share=1.0)
    assert len(records) == 2
    with serving(shop) as client:
        without = [client.post(path, **request) for path, request in requests]
        assert client.app.service.served_log is None
    assert [without_timings(answer.json()) for answer in with_log] == [
        without_timings(answer.json()) for answer in without
    ]


def test_probabilities_and_weights_where_there_are_any(shop, logged, tmp_path):
    _, (record,) = logged(json_request(**by_name()))
    assert (record.probabilities, record.weights) == (None, None)
    folder = make_bundle(tmp_path / "shop" / "8", cutoff=5, probability="relevance", goals={"margin": 0.3})
    bodies = (by_name(), by_name(probabilities=True), by_name(min_probability=0.5, weights={"margin": 2}, top_n=2))
    (tmp_path / "log").mkdir()
    with serving(folder, served_log=tmp_path / "log") as client:
        answers = [client.post("/rerank", json=body).json() for body in bodies]
    plain, asked, cut = files.records(files.log_files(tmp_path / "log", unfinished=False))
    assert plain.probabilities is None
    assert plain.weights == asked.weights == {"booked": 1.0, "margin": 0.3}
    assert asked.probabilities.tolist() == cut.probabilities.tolist() == answers[1]["probabilities"]
    assert cut.weights == {"booked": 1.0, "margin": 2.0}
    assert cut.order.tolist() == [result["index"] for result in answers[2]["results"]]
    assert [(rule.name, rule.action) for rule in cut.rules] == [("min_probability", "cutoff")]
