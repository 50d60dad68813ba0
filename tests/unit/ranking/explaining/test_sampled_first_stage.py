"""A first stage that is sampled shares the time: with the other candidate, and with what comes after it."""

from time import perf_counter

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import ExplanationError
from listwright.ranking.explaining import contributions
from listwright.ranking.explaining.explain import explain
from support.explained import ends_after, with_quantiles
from support.service.bundles import make_bundle, rows

LISTED = CandidateList(rows(np.random.default_rng(3), 8))


class Slow:
    """Takes a second for each list, on the clock of explanations; and may end the time as it scores the list number n."""

    def __init__(self, stage):
        self.stage, self.engine = stage, stage.engine
        self.now = self.began = perf_counter()
        self.runs, self.ends_at_run = 0, None

    def score(self, features):
        self.now += 1.0
        self.runs += 1
        if self.runs == self.ends_at_run:
            self.now += 1e6
        return self.stage.score(features)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A given ONNX first stage, without a second one; coalitions of three features and more are sampled."""
    monkeypatch.setattr(contributions, "EXHAUSTIVE", 4)
    monkeypatch.setattr(contributions, "TOLERANCE", -1.0)
    served = bundle.load(make_bundle(tmp_path / "some" / "1", first_stage="onnx", kind=None)).reranker
    with_quantiles(served, rows(np.random.default_rng(0), 300))
    served.first_stage = Slow(served.first_stage)
    monkeypatch.setattr(contributions, "perf_counter", lambda: served.first_stage.now)
    return served


SAMPLED = 4
"""A candidate that differs from the list's references in all features."""


def until(served, seconds):
    return Deadline(at=served.first_stage.began + seconds)


def test_it_takes_its_share_and_the_rest_is_left_for_what_comes_after(slow):
    found = explain(slow, LISTED, SAMPLED, deadline=until(slow, 1000.0), budget=10**6)
    assert found.first_stage.budget_spent
    assert found.first_stage.evaluations == pytest.approx(1000.0 * contributions.SAMPLING_SHARE, abs=10)
    assert found.incomplete == ("first_stage",)
    assert found.passing is not None


def test_both_candidates_have_their_part(slow):
    found = explain(slow, LISTED, SAMPLED, against=SAMPLED + 1, deadline=until(slow, 1000.0), budget=10**6)
    half = 1000.0 * contributions.SAMPLING_SHARE / 2
    assert found.first_stage.evaluations == pytest.approx(half, abs=10)
    assert all(one.standard_error is not None for one in found.against.first_stage)
    assert found.incomplete == ("first_stage",)


def test_a_budget_that_is_spent_is_no_lack_of_time(slow):
    found = explain(slow, LISTED, SAMPLED, against=SAMPLED + 1, deadline=until(slow, 1000.0), budget=40)
    assert found.first_stage.budget_spent
    assert found.incomplete == ()


def test_without_time_for_the_other_candidate_only_the_comparison_is_missing(slow):
    whole = explain(slow, LISTED, SAMPLED, budget=40)
    slow.first_stage.runs = 0
    slow.first_stage.ends_at_run = 1 + whole.first_stage.evaluations + 1  # the ranking, the candidate, the other one
    found = explain(slow, LISTED, SAMPLED, against=SAMPLED + 1, deadline=until(slow, 10_000.0), budget=40)
    assert found.first_stage == whole.first_stage
    assert (found.against.index, found.against.first_stage) == (SAMPLED + 1, ())
    assert found.incomplete[0] == "first_stage"


def test_without_time_for_the_candidate_itself_there_is_no_explanation(slow):
    slow.first_stage.ends_at_run = 2
    with pytest.raises(ExplanationError, match="before the first stage was explained"):
        explain(slow, LISTED, SAMPLED, deadline=until(slow, 10_000.0))


def test_trees_are_not_sampled_and_have_all_the_time(tmp_path):
    served = bundle.load(make_bundle(tmp_path / "some" / "1", kind=None)).reranker
    words = {"reranker": served, "candidates": LISTED, "ranking": served.rerank(LISTED), "budget": 9, "seed": 0}
    enough, short = (
        contributions.ListExplainer(**words, explained=[0, 1], clock=ends_after(looks)).explain_first_stage()
        for looks in (1, 0)
    )
    assert enough.cut_short is False
    assert short == ([None, None], True)
