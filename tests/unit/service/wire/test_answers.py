import numpy as np

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import RoutingError
from listwright.ranking.manifest import Manifest
from listwright.ranking.stages import LightGbmStage, NetworkStage
from listwright.service.wire.json_codec import RankingRequest, facts, to_answer
from listwright.service.wire.schemas import RerankRequest, RerankResponse
from support.service.bundles import schema
from support.stand_ins import standing_in

NAN = float("nan")
MANIFEST = Manifest(
    name="shop",
    version="7",
    created_at="2026-01-01T00:00:00Z",
    recipe={},
    data="",
    feature_schema=schema(),
    fingerprint=schema().fingerprint,
    first_stage=LightGbmStage(),
    second_stages=(NetworkStage(cutoff=2, first_stage_score=True),),
)
MILLISECONDS = {"parse": 0.12345, "queue": 0.5, "first_stage": 1.0, "total": 2.0}


def ranking(**changes):
    values = {
        "order": np.array([2, 0, 1]),
        "scores": np.array([1.0, NAN, 3.0]),
        "relevance": np.array([0.25, NAN, 0.75]),
        "first_stage_scores": np.array([0.25, -1.0, 0.5]),
        "stage_reached": "second_stage",
        "route": Route("qilcm", "bundle"),
    }
    return Ranking(**(values | changes))


def answer(ranked, ids=("a", "b", "c"), **request):
    options = RerankRequest.model_validate({"features": [[0.0]], **request})
    candidates = CandidateList(np.zeros((3, len(schema())), dtype=np.float32), ids)
    asked = RankingRequest(candidates, options, standing_in(Bundle, manifest=MANIFEST), id=options.id)
    found = to_answer(asked, ranked, MILLISECONDS)
    RerankResponse.model_validate(found, strict=True)
    return found


def test_results_stand_in_ranked_order_and_arrays_in_input_order():
    found = answer(ranking())
    keys = ("index", "id", "rank", "relevance_score", "stage", "first_stage_score", "first_stage_rank")
    assert [tuple(result[key] for key in keys) for result in found["results"]] == [
        (2, "c", 1, 0.75, "second", 0.5, 1),
        (0, "a", 2, 0.25, "second", 0.25, 2),
        (1, "b", 3, -1.0, "first", -1.0, 3),
    ]
    assert found["scores"] == [0.25, -1.0, 0.75]
    assert found["ranks"] == [2, 3, 1]


def test_raw_scores_top_n_and_id():
    found = answer(ranking(), ids=None, raw_scores=True, top_n=1, id="q")
    assert [result["relevance_score"] for result in found["results"]] == [3.0]
    assert found["results"][0]["id"] is None
    assert found["scores"] == [1.0, -1.0, 3.0]
    assert found["id"] == "q"


def test_scores_that_are_not_finite_for_all_are_null():
    found = answer(ranking(), finite_scores=False)
    assert found["scores"] == [0.25, None, 0.75]
    assert [(result["relevance_score"], result["stage"]) for result in found["results"]][2] == (None, "first")


def test_input_order_has_places_for_scores():
    nothing = np.full(3, NAN)
    ranked = ranking(
        order=np.arange(3),
        scores=nothing,
        relevance=nothing,
        first_stage_scores=nothing,
        stage_reached="input_order",
        reason="the first stage gave nan for candidate 1",
    )
    found = answer(ranked)
    assert {result["stage"] for result in found["results"]} == {"input"}
    assert found["scores"] == [-1.0, -2.0, -3.0]
    for key in ("first_stage_score", "first_stage_rank"):
        assert [result[key] for result in found["results"]] == [None] * 3
    assert found["ranks"] == [1, 2, 3]
    assert found["meta"]["status"] == "degraded"
    assert found["meta"]["reason"] == "the first stage gave nan for candidate 1"
    assert found["meta"]["timings_ms"] == {
        "parse": 0.123,
        "queue": 0.5,
        "first_stage": 1.0,
        "routing": None,
        "second_stage": None,
        "total": 2.0,
    }


def test_the_route_is_told_to_the_caller_and_to_the_log():
    faults = (RoutingError("hook_timeout", "too slow"), RoutingError("hook_passed", "no opinion"))
    routed = ranking(route=Route("srm", "router", 2, 0.81249, faults))
    told = {"strategy": "srm", "specialist": 2, "confidence": 0.81249, "decided_by": "router"}
    assert answer(routed)["route"] == told
    logged = facts(routed, MANIFEST, MILLISECONDS)
    assert {key: logged[key] for key in told} == {**told, "confidence": 0.812}
    assert logged["routing_faults"] == ["hook_timeout"], "having no opinion is none"


def test_the_log_line_holds_no_values_of_the_request():
    assert facts(ranking(), MANIFEST, MILLISECONDS) == {
        "version": "shop/7",
        "strategy": "qilcm",
        "specialist": None,
        "confidence": None,
        "decided_by": "bundle",
        "routing_faults": [],
        "stage_reached": "second_stage",
        "reason": None,
        "candidates": 3,
        "timings_ms": {"parse": 0.123, "queue": 0.5, "first_stage": 1.0, "total": 2.0},
    }
