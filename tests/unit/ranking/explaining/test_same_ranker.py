"""Changed lists are ranked by what ranked the answer: degraded ones, late ones, and those that a hook decided."""

from itertools import cycle

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import CandidateError, RoutingError, ScoringError
from listwright.ranking.explaining import explain as kernel
from listwright.ranking.explaining.explain import _find_moves, explain
from listwright.ranking.explaining.explanation import RouterReasons
from listwright.ranking.router import Choice
from support.explained import with_quantiles
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import FOUR, Column, reranker
from support.service.routing import NOT_WORTH_IT, WORTH_IT

LISTED = CandidateList(rows(np.random.default_rng(3), 8))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = make_bundle(tmp_path_factory.mktemp("explained") / "some" / "1", specialists=3, margin=0.1)
    return with_quantiles(bundle.load(path).reranker, rows(np.random.default_rng(0), 300))


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """Its network gives NaN for a list in which a price is above 1000."""
    path = make_bundle(tmp_path_factory.mktemp("explained") / "some" / "1", graph="nan")
    return with_quantiles(bundle.load(path).reranker, rows(np.random.default_rng(0), 300))


def degraded(place):
    """The candidate that the network cannot score is number ``place`` of the list as it is sent."""
    features = LISTED.features.copy()
    features[place, 0] = 2000.0
    return CandidateList(features)


def changed(listed, candidate, changes, schema):
    features = listed.features.copy()
    for change in changes:
        d = schema.index[change.feature]
        to = change.value_to
        features[candidate, d] = schema.features[d].code(to) if d in schema.categorical else to
    return CandidateList(features)


@pytest.mark.parametrize("strange", range(8))
def test_a_degraded_answer_is_explained_by_the_first_stage_alone(failing, strange):
    """Without the strange price the network would rank, in another order than the first stage's."""
    listed = degraded(strange)
    answer = failing.rerank(listed)
    assert (answer.stage_reached, answer.degraded) == ("first_stage", True)
    without = CandidateList(np.delete(listed.features, strange, axis=0))
    orders = [failing.rerank(without, strategy=strategy).order.tolist() for strategy in ("auto", "first_stage")]
    assert orders[0] != orders[1]
    found = explain(failing, listed, strange)
    assert found.moves == (), "the first stage looks at each candidate alone"
    assert (found.incomplete, dict(found.faults)) == ((), {})
    tried = 0
    for changes in () if found.passing is None else filter(None, (found.passing.one, found.passing.two)):
        again = changed(listed, strange, changes, failing.schema)
        ranks = failing.rerank(again, strategy="first_stage").ranks
        assert ranks[strange] < ranks[found.passing.above.index]
        tried += 1
    assert tried > 0 or answer.ranks[strange] == 1 or found.passing.one is None


class LateOnce(Column):
    """Fails the first time, as a stage that was not started for lack of time would."""

    def __init__(self, column):
        super().__init__(column)
        self.calls = 0

    def score(self, features):
        self.calls += 1
        if self.calls == 1:
            raise ScoringError("no oil")
        return super().score(features)


def test_a_stage_that_failed_once_is_not_asked_again():
    stage = LateOnce(1)
    found = explain(reranker(Column(0), stage), FOUR, 1)
    assert found.ranking.degraded
    assert found.moves == ()
    assert stage.calls == 1


def test_nobody_moves_by_another_stage():
    """However it comes about that another stage ranks the list without the candidate."""
    by_stars, by_price = reranker(Column(0), Column(1)), reranker(Column(0), Column(1))
    answer = by_stars.rerank(FOUR)
    degrading = reranker(Column(0), LateOnce(1))
    with pytest.raises(ScoringError, match="without the candidate, no oil"):
        _find_moves(degrading.rerank, FOUR, 0, answer)
    assert _find_moves(by_price.rerank, FOUR, 0, answer) == ()


def test_where_there_was_no_time_to_ask_for_a_route_nobody_is_asked_later(served, monkeypatch):
    asked = []

    def hook(query):
        asked.append(query)
        return Choice(1)

    fits = served.pace.fits
    monkeypatch.setattr(
        served.pace,
        "fits",
        lambda deadline, length, *stages: "routing" not in stages and fits(deadline, length, *stages),
    )
    third, told = int(served.rerank(WORTH_IT, routing=False).order[2]), {"budget": 50, "seed": 0}
    found = explain(served, WORTH_IT, third, hook=hook, **told)
    assert [fault.kind for fault in found.ranking.route.faults] == ["routing_late"]
    assert asked == []
    unasked = explain(served, WORTH_IT, third, routing=False, **told)
    assert (found.passing, found.moves) == (unasked.passing, unasked.moves)
    monkeypatch.undo()
    routed = explain(served, WORTH_IT, third, ranking=found.ranking, **told)
    assert routed.passing == unasked.passing, "the ranking says by itself that nobody was asked"
    assert served.rerank(WORTH_IT).order.tolist() != unasked.ranking.order.tolist(), "the router would have chosen"


@pytest.mark.parametrize("says", [Choice(2, 0.5), Choice(None), RoutingError("hook_raised", "no oil")])
def test_a_hook_is_asked_once(served, says):
    asked = []

    def hook(query):
        asked.append(query)
        if isinstance(says, RoutingError):
            raise says
        return says

    ranking = served.rerank(LISTED, hook=hook)
    asked.clear()
    found = served.explain(LISTED, int(ranking.order[3]), hook=hook)
    assert len(asked) == 1
    assert found.ranking.route == ranking.route
    assert found.passing.tried > 3


def test_a_ranking_that_is_there_is_explained_and_nothing_is_ranked_anew(served, monkeypatch):
    choices = cycle([Choice(0), Choice(2)])
    asked = []

    def alternating(query):
        asked.append(query)
        return next(choices)

    ranking = served.rerank(LISTED, hook=alternating)
    whole = [explain(served, LISTED, one, hook=alternating, ranking=ranking) for one in ranking.order[:3].tolist()]
    assert len(asked) == 1
    assert {found.ranking.route.specialist for found in whole} == {0}
    assert {found.second_stage.ranker for found in whole} == {"srm 0"}
    assert all(found.ranking is ranking and "ranking" not in found.seconds for found in whole)
    own = explain(served, LISTED, int(ranking.order[2]), specialist=0)
    assert whole[2].second_stage == own.second_stage
    assert (whole[2].passing, whole[2].moves) == (own.passing, own.moves)


def test_a_ranking_of_another_list_is_refused(served):
    with pytest.raises(CandidateError, match="the ranking is one of 8 candidates, the list has 4"):
        explain(served, CandidateList(LISTED.features[:4]), 0, ranking=served.rerank(LISTED))


@pytest.mark.parametrize("listed", [WORTH_IT, NOT_WORTH_IT])
def test_what_the_router_made_of_the_list(listed, tmp_path):
    router = bundle.load(make_bundle(tmp_path / "some" / "1", specialists=3, margin=0.2)).reranker
    route = router.rerank(listed).route
    found = explain(router, listed, 0).router
    assert found == RouterReasons(tuple(route.probabilities.tolist()), tuple(route.gains.tolist()), 0.2)
    best = int(np.argmax(found.probabilities))
    assert (found.gains[best] > found.margin) == (route.specialist is not None)


def test_a_router_that_was_not_asked_made_nothing_of_it(served):
    assert explain(served, LISTED, 0, routing=False).router is None
    assert explain(reranker(Column(0), Column(1)), FOUR, 0).router is None


def test_only_who_waits_is_taken_from_the_deadline(served):
    """Single runs are short: a deadline that has come lets the one that is under way end."""
    deadline = Deadline(at=0.0, abandoned=lambda: False)
    ranking = served.rerank(LISTED)
    again = kernel.bind_rerank(served, ranking, deadline, strategy="auto", specialist=None, routing=True)
    assert again(LISTED).order.tolist() == ranking.order.tolist()
