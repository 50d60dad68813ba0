"""Who decides which specialist answers: caller, hook, router, in this order; and what happens when they cannot."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import RoutingError, UnknownSpecialistError, UnknownStrategyError
from listwright.ranking.order import mixture
from listwright.ranking.router import Choice, decide
from listwright.ranking.stages import RouterStage
from support.service.bundles import make_bundle
from support.service.routing import BREAKS_THE_ROUTER, NOT_WORTH_IT, WORTH_IT, a_list, decided

SPECIALISTS, MARGIN = 3, 0.25


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "shop" / "1"
    return bundle.load(make_bundle(out, specialists=SPECIALISTS, margin=MARGIN)).reranker


@pytest.fixture(scope="module")
def without_router(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "shop" / "1"
    return bundle.load(make_bundle(out, specialists=SPECIALISTS)).reranker


def test_router_takes_the_specialist_that_it_finds_best(reranker):
    assert decided(reranker.rerank(a_list(1.0, 1.0))) == ("srm", "router", SPECIALISTS - 1)
    assert decided(reranker.rerank(a_list(1.0, -1.0))) == ("srm", "router", 0)


def test_router_abstains_to_the_generalist(reranker):
    ranking = reranker.rerank(NOT_WORTH_IT)
    assert decided(ranking) == ("qilcm", "abstained", None)
    assert np.array_equal(ranking.scores, reranker.rerank(NOT_WORTH_IT, strategy="qilcm").scores)


def test_a_route_says_how_sure_it_is(reranker):
    route = reranker.rerank(WORTH_IT).route
    assert route.confidence == route.probabilities.max() == route.probabilities[route.specialist]
    assert route.probabilities.sum() == pytest.approx(1.0)


def test_routed_scores_are_the_specialists_own(reranker):
    routed, named = reranker.rerank(WORTH_IT), reranker.rerank(WORTH_IT, specialist=SPECIALISTS - 1)
    assert np.array_equal(routed.scores, named.scores)
    assert np.array_equal(routed.order, named.order)
    assert decided(named) == ("srm", "caller", SPECIALISTS - 1)


def test_strategy_srm_answers_the_mixture_where_the_router_abstains(reranker):
    ranking = reranker.rerank(NOT_WORTH_IT, strategy="srm")
    assert decided(ranking) == ("srm", "abstained", None)
    each = np.column_stack([reranker.rerank(NOT_WORTH_IT, specialist=k).scores for k in range(SPECIALISTS)])
    first = np.exp(each - each.max(axis=0))
    expected = (first / first.sum(axis=0)) @ ranking.route.probabilities
    assert ranking.relevance == pytest.approx(expected, abs=1e-6)


def test_without_a_router_the_mixture_has_its_own_weights(without_router):
    ranking = without_router.rerank(WORTH_IT, strategy="srm")
    assert decided(ranking) == ("srm", "caller", None)
    each = np.column_stack([without_router.rerank(WORTH_IT, specialist=k).scores for k in range(SPECIALISTS)])
    weights = np.array([s.weight for s in without_router.manifest.srm.specialists])
    assert ranking.scores == pytest.approx(mixture(each, weights))
    assert decided(without_router.rerank(WORTH_IT)) == ("qilcm", "bundle", None)


def test_a_hook_is_asked_before_the_router_and_sees_the_query(reranker):
    asked = []

    def hook(query):
        asked.append(query)
        return Choice(1, 0.75)

    candidates = CandidateList(WORTH_IT.features, context={"device": "phone"})
    ranking = reranker.rerank(candidates, hook=hook)
    assert decided(ranking) == ("srm", "hook", 1)
    assert ranking.route.confidence == 0.75
    assert asked[0].context == {"device": "phone"}
    assert np.array_equal(asked[0].features, WORTH_IT.features, equal_nan=True)
    assert np.array_equal(asked[0].first_stage_scores, ranking.first_stage_scores)


def test_a_hook_that_insists_changes_a_copy(reranker):
    def hook(query):
        for array in (query.features, query.first_stage_scores):
            array.setflags(write=True)
            array[:] = 0.0
        return Choice(1)

    expected = reranker.rerank(WORTH_IT, specialist=1)
    ranking = reranker.rerank(WORTH_IT, hook=hook)
    assert np.array_equal(ranking.scores, expected.scores)
    assert np.array_equal(ranking.first_stage_scores, expected.first_stage_scores)


def test_a_hook_cannot_change_what_it_sees(reranker):
    def hook(query):
        query.features[0, 0] = 1.0
        return Choice(0)

    with pytest.raises(ValueError, match="read-only"):
        reranker.rerank(WORTH_IT, hook=hook)


def test_a_hook_may_abstain(reranker):
    assert decided(reranker.rerank(WORTH_IT, hook=lambda query: Choice(None))) == ("qilcm", "hook", None)
    assert reranker.rerank(WORTH_IT, hook=lambda query: Choice(None, 0.3)).route.confidence is None
    mixed = reranker.rerank(WORTH_IT, strategy="srm", hook=lambda query: Choice(None))
    assert decided(mixed) == ("srm", "hook", None)


@pytest.mark.parametrize("number", [-1, SPECIALISTS])
def test_a_hook_that_names_an_unknown_specialist_leaves_it_to_the_router(reranker, number):
    ranking = reranker.rerank(WORTH_IT, hook=lambda query: Choice(number))
    assert decided(ranking) == ("srm", "router", SPECIALISTS - 1)
    assert [fault.kind for fault in ranking.route.faults] == ["unknown_specialist"]


def test_a_hook_that_cannot_decide_leaves_it_to_the_router(reranker):
    def hook(query):
        raise RoutingError("hook_timeout", "took too long")

    ranking = reranker.rerank(NOT_WORTH_IT, hook=hook)
    assert decided(ranking) == ("qilcm", "abstained", None)
    assert [fault.kind for fault in ranking.route.faults] == ["hook_timeout"]


def test_a_router_that_fails_leaves_the_generalist_and_says_so(reranker):
    ranking = reranker.rerank(BREAKS_THE_ROUTER)
    assert decided(ranking) == ("qilcm", "bundle", None)
    assert [fault.kind for fault in ranking.route.faults] == ["router_failed"]
    assert ranking.reason is None


def test_nobody_is_asked_when_routing_is_off(reranker):
    def hook(query):
        raise AssertionError("asked")

    ranking = reranker.rerank(WORTH_IT, hook=hook, routing=False)
    assert decided(ranking) == ("qilcm", "bundle", None)
    assert "routing" not in ranking.timings_ms
    assert decided(reranker.rerank(WORTH_IT, specialist=1, routing=False)) == ("srm", "caller", 1)


@pytest.mark.parametrize("strategy", ["qilcm", "first_stage"])
def test_nobody_is_asked_when_the_caller_names_a_strategy(reranker, strategy):
    assert decided(reranker.rerank(WORTH_IT, strategy=strategy)) == (strategy, "caller", None)


def test_specialists_that_are_not_there_are_refused(reranker, tmp_path):
    with pytest.raises(UnknownSpecialistError, match="no specialist 3: use 0 to 2"):
        reranker.rerank(WORTH_IT, specialist=3)
    with pytest.raises(UnknownSpecialistError, match="no specialist -1"):
        reranker.rerank(WORTH_IT, specialist=-1)
    with pytest.raises(UnknownSpecialistError, match="strategy 'qilcm' has no specialists"):
        reranker.rerank(WORTH_IT, strategy="qilcm", specialist=0)
    plain = bundle.load(make_bundle(tmp_path / "plain" / "1")).reranker
    with pytest.raises(UnknownSpecialistError, match="this bundle has no specialists"):
        plain.rerank(WORTH_IT, specialist=0)
    with pytest.raises(UnknownStrategyError, match="no strategy 'srm': use one of auto, qilcm, first_stage"):
        plain.rerank(WORTH_IT, strategy="srm")


def test_decision_needs_a_gain_above_the_margin():
    shares, gains = [0.2, 0.6, 0.2], np.array([0.9, 0.1, 0.9])
    for margin, expected in ((0.05, 1), (0.1, None), (None, None)):
        found = decide(shares, gains, RouterStage(temperature=1.0, margin=margin))
        assert found.choice.specialist == expected
        assert found.choice.confidence == pytest.approx(0.6)


def test_temperature_sharpens_and_nothing_is_impossible():
    shares = [0.0, 0.25, 0.75]
    found = decide(shares, np.zeros(3), RouterStage(temperature=0.5, margin=0.0)).probabilities
    raw = np.array([0.001, 0.25, 0.75]) ** 2
    assert found == pytest.approx(raw / raw.sum())


def test_a_specialist_that_dominates_everywhere_is_the_mixture():
    scores = np.array([[2.0, -1.0], [0.5, 3.0], [-1.0, 900.0]])
    assert np.exp(mixture(scores, np.array([1.0, 0.0]))) == pytest.approx(
        np.exp(scores[:, 0]) / np.exp(scores[:, 0]).sum()
    )
    assert np.isfinite(mixture(scores, np.array([0.0, 1.0]))).all()
