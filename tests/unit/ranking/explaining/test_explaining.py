"""A whole explanation: its parts, deadlines, hooks, and what it leaves as it was."""

import dataclasses
from itertools import count
from time import perf_counter

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import NO_DEADLINE, Deadline
from listwright.ranking.errors import (
    AbandonedError,
    CandidateError,
    ExplanationError,
    SchemaMismatchError,
    ScoringError,
    UnknownStrategyError,
)
from listwright.ranking.explaining import contributions
from listwright.ranking.explaining.explain import explain
from support.explained import contribution_values, with_quantiles
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import FOUR, Broken, Column, candidates, reranker

LISTED = CandidateList(rows(np.random.default_rng(3), 8))
EXPLAINED = 0


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = make_bundle(tmp_path_factory.mktemp("explained") / "some" / "1", specialists=3, margin=0.1)
    return with_quantiles(bundle.load(path).reranker, rows(np.random.default_rng(0), 300))


def plain(explanation):
    """Everything but times."""
    found = dataclasses.asdict(explanation)
    del found["seconds"], found["ranking"]
    return found


def test_the_answer_is_that_of_rerank(served):
    found = served.explain(LISTED, EXPLAINED)
    assert found.ranking.order.tolist() == served.rerank(LISTED).order.tolist()
    assert (found.candidate.index, found.incomplete, found.against) == (EXPLAINED, (), None)
    assert found.seconds.keys() == {"ranking", "first_stage", "moves", "anomaly", "second_stage", "passing"}


def test_the_same_call_gives_the_same_explanation(served):
    one, again = (plain(explain(served, LISTED, EXPLAINED, against=1)) for _ in range(2))
    assert one == again


def test_contributions_are_the_largest_first(served):
    for stage in (explain(served, LISTED, EXPLAINED).first_stage, explain(served, LISTED, EXPLAINED).second_stage):
        sizes = [abs(one.contribution) for one in stage.contributions]
        assert sizes == sorted(sizes, reverse=True)


def test_against_is_the_difference_of_both(served):
    found = explain(served, LISTED, EXPLAINED, against=1)
    other = explain(served, LISTED, 1)
    for stage in ("first_stage", "second_stage"):
        mine, its = contribution_values(getattr(found, stage)), contribution_values(getattr(other, stage))
        beside = getattr(found.against, stage)
        assert {one.feature: one.contribution for one in beside} == pytest.approx(
            {name: mine[name] - its[name] for name in mine}, abs=1e-6
        )
    values = {one.feature: (one.value, one.reference) for one in found.against.first_stage}
    assert values["price"] == (pytest.approx(LISTED.features[EXPLAINED, 0]), pytest.approx(LISTED.features[1, 0]))
    assert found.against.index == 1


@pytest.mark.parametrize(("candidate", "against"), [(8, None), (-1, None), (0, 8), (0, 0)])
def test_who_is_not_in_the_list(served, candidate, against):
    with pytest.raises(CandidateError, match=r"use 0 to 7|name another"):
        served.explain(LISTED, candidate, against=against)


def test_errors_are_those_of_rerank(served):
    with pytest.raises(UnknownStrategyError):
        served.explain(LISTED, 0, strategy="dlcm")
    with pytest.raises(SchemaMismatchError):
        served.explain(candidates([1.0, 2.0]), 0)


def test_where_no_stage_ranked_there_is_nothing_to_explain():
    with pytest.raises(ExplanationError, match="no oil"):
        explain(reranker(Broken(), Column(1)), FOUR, 0)


def test_where_the_second_stage_failed_the_first_is_explained():
    found = explain(reranker(Column(0), Broken()), FOUR, 0)
    assert found.second_stage is None
    assert contribution_values(found.first_stage)["price"] == pytest.approx(1 - 2), "the lower median of 1, 2, 3, 4"


class FailsWhereShort(Column):
    def score(self, features):
        if len(features) < 4:
            raise ScoringError("no oil")
        return super().score(features)


class FailsWhereLow(Column):
    """Where nobody has 40 stars."""

    def score(self, features):
        if len(features) == 4 and features[:, 1].max() < 40:
            raise ScoringError("no oil")
        return super().score(features)


def test_a_part_that_fails_is_named_and_the_others_stand():
    alone = explain(reranker(Column(0), FailsWhereShort(1)), FOUR, 2)
    assert (alone.incomplete, alone.faults) == (("moves",), {"moves": "without the candidate, no oil"})
    assert alone.second_stage is not None
    low = explain(reranker(Column(0), FailsWhereLow(1)), FOUR, 2)
    assert (low.incomplete, low.faults) == (("second_stage",), {"second_stage": "no oil"})
    assert low.second_stage is None
    assert low.first_stage is not None


class Drifting(Column):
    """Another score at every call."""

    def score(self, features):
        self.column += 1
        return features[:, 1] + float(self.column)


def test_a_score_that_cannot_be_computed_again_is_not_explained():
    found = explain(reranker(Column(0), Drifting(0)), FOUR, 2)
    assert "when it was explained" in found.faults["second_stage"]


def test_before_anything_is_ranked_a_deadline_is_an_error(served):
    with pytest.raises(ExplanationError, match="would have missed the deadline"):
        served.explain(LISTED, 0, deadline=Deadline(at=perf_counter() - 1.0))


def test_before_the_first_stage_is_explained_a_deadline_is_an_error(served, monkeypatch):
    monkeypatch.setattr(contributions, "perf_counter", lambda: 1e12)
    with pytest.raises(ExplanationError, match="before the first stage was explained"):
        served.explain(LISTED, 0, deadline=Deadline(at=1e11))


def test_nobody_waits(served):
    asked = count()
    with pytest.raises(AbandonedError):
        served.explain(LISTED, 0, deadline=Deadline(abandoned=lambda: next(asked) > 9))


def test_what_a_deadline_leaves_out_is_named(served, monkeypatch):
    """The clock stands still for the first looks, then it is over."""
    whole = served.explain(LISTED, EXPLAINED)
    seen = []
    for looks in range(1, 13):
        ticks = count()
        monkeypatch.setattr(
            contributions, "perf_counter", lambda ticks=ticks, looks=looks: 1e12 * (next(ticks) >= looks)
        )
        found = served.explain(LISTED, EXPLAINED, deadline=Deadline(at=1e11))
        seen.append(found.incomplete)
        for part in ("moves", "anomaly", "second_stage", "passing"):
            assert (part in found.incomplete) or getattr(found, part) == getattr(whole, part)
        assert found.first_stage == whole.first_stage
    assert seen[0] == ("moves", "anomaly", "second_stage", "passing")
    assert ("second_stage", "passing") in seen
    assert ("passing",) in seen


def test_other_requests_pace_is_left_alone(served, monkeypatch):
    noted = []
    monkeypatch.setattr(served.pace, "note", lambda stage, length, seconds: noted.append(stage))
    served.explain(LISTED, EXPLAINED)
    assert 1 < len(noted) == len(set(noted)), "the answer's own times, and no others"


def test_the_list_is_left_as_it_was(served):
    before = LISTED.features.copy()
    served.explain(LISTED, EXPLAINED, against=1)
    assert np.array_equal(LISTED.features, before, equal_nan=True)


def test_without_deadline_the_clock_never_ends():
    assert not contributions.Clock.until(NO_DEADLINE).over()
    assert not contributions.Clock.until(NO_DEADLINE).share(0.5).over()
