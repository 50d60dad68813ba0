"""An answered request as a record."""

import json

import numpy as np
import pytest

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import RoutingError
from listwright.ranking.served_log.record import hashed
from listwright.service.served_log.entry import to_record
from support.served import NOON, log_entry


def test_it_holds_what_was_answered():
    sent = log_entry(5, top_n=2)
    record = to_record(sent, None)
    assert (record.query_id, record.request_id, record.unit, record.bundle) == (
        "query-5",
        "request-5",
        "unit-2",
        "shop/7",
    )
    assert record.fingerprint == sent.manifest.fingerprint
    assert record.served_at.timestamp() == NOON.timestamp() + 5
    assert record.features is sent.candidates.features
    assert record.order.tolist() == sent.ranking.order[:2].tolist()
    assert record.candidate_ids == ("0", "1", "2", "3")
    assert record.feature_names == ("price", "stars", "bm25", "carrier")
    assert record.categories == {"carrier": ("A5", "B2", "C7")}
    assert (record.route, record.degraded, record.timings_ms) == (None, None, {"total": 2.0})


def test_more_places_than_an_int_holds_are_as_many_as_it_holds():
    record = to_record(log_entry(top_n=2**53 - 1), None)
    assert (record.top_n, len(record.order)) == (2**31 - 1, 4)


def test_ids_of_the_caller_stay():
    candidates = CandidateList(np.zeros((4, 4), np.float32), ("a", "b", "c", "d"))
    assert to_record(log_entry(candidates=candidates), None).candidate_ids == ("a", "b", "c", "d")


def test_a_unit_is_hashed_with_the_salt():
    """HMAC-SHA256, as ``printf unit-0 | openssl dgst -sha256 -hmac 0123456789abcdef`` gives it."""
    salt = b"0123456789abcdef"
    record = to_record(log_entry(0), salt)
    assert record.unit == hashed("unit-0", salt)
    assert record.unit == "51162ff8b8cb3cf7d24fcee48512207b"
    assert to_record(log_entry(0), b"another-salt-of-16").unit != record.unit
    assert to_record(log_entry(0, unit=None), salt).unit is None


@pytest.mark.parametrize("decided_by", ["caller", "hook", "router", "abstained"])
def test_the_route_is_told_where_somebody_was_asked(decided_by):
    route = Route("srm", decided_by, 1, 0.5, (), np.array([0.25, 0.75]), np.array([0.0, 0.5]))
    ranking = log_entry().ranking
    sent = Ranking(ranking.order, ranking.scores, ranking.relevance, ranking.scores, "second_stage", route, "too late")
    record = to_record(log_entry(ranking=sent), None)
    told = {"decided_by": decided_by, "specialist": 1, "confidence": 0.5}
    assert json.loads(record.route) == {**told, "probabilities": [0.25, 0.75], "gains": [0.0, 0.5]}
    assert (record.strategy, record.degraded) == ("srm", "too late")


def test_faults_of_routing_are_told():
    route = Route("first_stage", "bundle", faults=(RoutingError("hook_raised", "no"),))
    ranking = log_entry().ranking
    sent = Ranking(ranking.order, ranking.scores, ranking.relevance, ranking.scores, "first_stage", route)
    assert json.loads(to_record(log_entry(ranking=sent), None).route)["faults"] == ["hook_raised"]
