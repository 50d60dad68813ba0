"""Cutoffs by probability: who stays, what an answer says, and what other rules do beside them."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import CandidateError
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import rank_by_score, relevance
from listwright.ranking.rules.apply import RuleSet, apply_rules
from listwright.ranking.rules.schema import Rule
from support.service.bundles import schema
from support.stand_ins import standing_in

SCHEMA = schema()
MANIFEST = standing_in(Manifest, feature_schema=SCHEMA, temperatures={})
SCORES = np.array([1.0, 4.0, 3.0, 2.0])
PROBABILITY = np.array([0.1, 0.9, 0.5, 0.2])


def ruled(*rules, probability=PROBABILITY, order=None, file=()):
    order = rank_by_score(SCORES) if order is None else np.array(order)
    route = Route("first_stage", "bundle")
    ranking = Ranking(order, SCORES, relevance(SCORES), SCORES, "first_stage", route, probability=probability)
    candidates = CandidateList(np.zeros((4, 4)), tuple("abcd"))
    kind = TypeAdapter(list[Rule])
    sets = [
        RuleSet(kind.validate_python(list(some)), SCHEMA, of_request=of_request)
        for some, of_request in ((file, False), (rules, True))
        if some
    ]
    return apply_rules(ranking, candidates, MANIFEST, sets)


def cutoff(lowest, **more):
    return {"action": "cutoff", "min_probability": lowest, **more}


@pytest.mark.parametrize(
    ("lowest", "shown"), [(0, [1, 2, 3, 0]), (0.2, [1, 2, 3]), (0.21, [1, 2]), (0.9, [1]), (0.95, []), (1, [])]
)
def test_what_is_below_is_left_out_and_named(lowest, shown):
    after = ruled(cutoff(lowest))
    assert after.results.tolist() == shown
    assert sorted(after.order.tolist()) == [0, 1, 2, 3]
    assert [(one.name, one.action, one.reason) for one in after.rules] == (
        [] if lowest == 0 else [("rule 1", "cutoff", None)]
    )
    assert {n for one in after.rules for n in one.candidates} == {0, 1, 2, 3} - set(shown)


def test_a_probability_of_1_stays_at_1():
    assert ruled(cutoff(1), probability=np.array([0.0, 1.0, 1.0, 0.5])).results.tolist() == [1, 2]


def test_the_order_of_an_experiment_stays():
    assert ruled(cutoff(0.2), order=[3, 0, 2, 1]).results.tolist() == [3, 2, 1]


def test_without_probabilities_the_list_stays_whole_and_the_rule_says_why():
    after = ruled(cutoff(0.5, name="floor"), probability=None)
    assert after.results.tolist() == [1, 2, 3, 0]
    ((name, action, touched, reason),) = after.rules
    assert (name, action, touched) == ("floor", "cutoff", ())
    assert "no probabilities" in reason


def test_beside_exclusions_only_those_that_are_left_are_named():
    after = ruled({"action": "exclude", "ids": ["a", "c"]}, cutoff(0.5))
    assert after.results.tolist() == [1]
    assert [one.candidates for one in after.rules] == [(0, 2), (3,)]


def test_the_strictest_of_two_counts_and_each_names_its_own():
    after = ruled(cutoff(0.2), file=[cutoff(0.6)])
    assert after.results.tolist() == [1]
    assert [(one.name, one.candidates) for one in after.rules] == [("file rule 1", (0, 2, 3)), ("rule 1", (0,))]


@pytest.mark.parametrize(("place", "shown"), [(1, [0, 1, 2]), (2, [1, 0, 2]), (3, [1, 2, 0]), (4, [1, 2, 0])])
def test_what_is_pinned_stays_at_its_place_or_the_last_that_is_left(place, shown):
    assert ruled({"action": "pin", "id": "a", "place": place}, cutoff(0.5)).results.tolist() == shown


def test_several_pins_beyond_what_is_left_keep_their_order():
    pins = [{"action": "pin", "id": name, "place": place} for name, place in (("a", 4), ("d", 3))]
    assert ruled(*pins, cutoff(0.9)).results.tolist() == [1, 3, 0]
    assert ruled(*pins, cutoff(1)).results.tolist() == [3, 0]


def test_a_pin_beyond_the_whole_list_is_still_refused():
    with pytest.raises(CandidateError, match="pins place 5 of 4"):
        ruled({"action": "pin", "id": "a", "place": 5}, cutoff(0.5))


def test_boosts_and_caps_act_on_what_is_left():
    boost = {"action": "boost", "ids": ["c", "a"], "factor": 1000}
    after = ruled(boost, cutoff(0.5))
    assert after.results.tolist() == [2, 1]
    assert [(one.action, one.candidates) for one in after.rules] == [("cutoff", (0, 3)), ("boost", (2,))]
    assert ruled({"action": "cap", "by": "price", "most": 1, "first": 2}, cutoff(0.5)).results.tolist() == [1, 2]


@pytest.mark.parametrize("lowest", [-0.1, 1.1, float("nan"), "0.5", True])
def test_a_cutoff_is_a_number_from_0_to_1(lowest):
    with pytest.raises(ValidationError):
        TypeAdapter(Rule).validate_python(cutoff(lowest))


def test_a_set_says_whether_it_needs_probabilities():
    kind = TypeAdapter(list[Rule])
    for rules, needs in (([cutoff(0.5)], True), ([{"action": "exclude", "ids": ["a"]}], False), ([], False)):
        assert RuleSet(kind.validate_python(rules), SCHEMA).needs_probability is needs
