"""What the process makes of a task, in this one: every fault becomes an answer, and bundles stay loaded."""

import json
import math
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking.deadline import NO_DEADLINE
from listwright.ranking.errors import AbandonedError, UnknownStrategyError
from listwright.ranking.explaining import explain as kernel
from listwright.ranking.reranker import Reranker
from listwright.ranking.router import Choice
from listwright.service.errors import ExplanationFailedError, UnexplainedError
from listwright.service.explaining import explain_process
from listwright.service.explaining.explain_process import Crashed, ExplainedList, ExplainTask, TaskExplainer
from support.service.bundles import make_bundle, rows

CREATED = "2026-01-01T00:00:00+00:00"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("explained") / "shop" / "1", specialists=2, also="dlcm")


@pytest.fixture
def explainer():
    return TaskExplainer(None, lambda: False)


@pytest.fixture
def task(folder):
    def make(**changes):
        asked = ExplainTask(
            path=str(folder),
            created_at=CREATED,
            default_strategy="qilcm",
            features=rows(np.random.default_rng(1), 6),
            ids=None,
            context={},
            strategy="auto",
            specialist=None,
            routing=True,
            candidates=(2,),
            top_n=0,
            against=None,
            budget=None,
            most_budget=10**6,
            by=time.monotonic() + 600,
        )
        return asked._replace(**changes)

    return make


def test_a_task_is_explained(explainer, task):
    found = explainer.answer(task())
    assert isinstance(found, ExplainedList), found
    assert found.ranking.route.strategy == "qilcm"
    assert found.incomplete == ()
    assert found.seconds.keys() >= {"ranking", "first_stage", "second_stage"}
    assert explainer.answer(task(default_strategy="dlcm")).ranking.route.strategy == "dlcm"
    assert explainer.answer(task()).ranking.route.strategy == "qilcm", "of the same bundle, which stays loaded"


def test_the_budget_is_the_tasks_and_bounded(explainer, task, monkeypatch):
    budgets = []
    explain = kernel.explain

    def noting(*values, budget, **words):
        budgets.append(budget)
        return explain(*values, budget=budget, **words)

    monkeypatch.setattr(kernel, "explain", noting)
    for words in ({}, {"budget": 100}, {"budget": 100, "most_budget": 50}, {"most_budget": 10}):
        explainer.answer(task(**words))
    assert budgets == [kernel.DEFAULT_BUDGET, 100, 50, 10]


def test_each_of_several_has_its_share_of_the_time(explainer, task, monkeypatch):
    left = []
    explain = kernel.explain

    def noting(*values, deadline, **words):
        left.append(deadline.left_s)
        return explain(*values, deadline=deadline, **words)

    monkeypatch.setattr(kernel, "explain", noting)
    assert isinstance(explainer.answer(task(candidates=(), top_n=3)), ExplainedList)
    assert left[0] == pytest.approx(200, abs=30)
    assert left[1] == pytest.approx(300, abs=30)
    assert left[2] == pytest.approx(600, abs=60)


def test_candidates_that_there_was_no_time_for_are_named(explainer, task, monkeypatch):
    explain, explained = kernel.explain, []

    def running_out(*values, **words):
        if explained:
            raise kernel.ExplanationError("the deadline had passed")
        explained.append(1)
        return replace(explain(*values, **words), incomplete=("passing",))

    monkeypatch.setattr(kernel, "explain", running_out)
    found = explainer.answer(task(candidates=(), top_n=3))
    assert found.incomplete == ("passing", "explanations")


def test_no_time_at_all_is_no_explanation(explainer, task):
    explainer.answer(task())
    found = explainer.answer(task(by=time.monotonic() - 1))
    assert isinstance(found, UnexplainedError), found


def test_who_has_gone_is_not_worked_for(task):
    found = TaskExplainer(None, lambda: True).answer(task(candidates=(), top_n=2))
    assert isinstance(found, AbandonedError)


def test_faults_of_the_request_are_those_of_the_kernel(explainer, task):
    assert isinstance(explainer.answer(task(strategy="mlp")), UnknownStrategyError)


@pytest.mark.parametrize("changes", [{"created_at": "2025-01-01T00:00:00+00:00"}, {"path": "/nowhere/shop/1"}])
def test_a_bundle_that_is_not_the_served_one_explains_nothing(explainer, task, changes):
    found = explainer.answer(task(**changes))
    assert isinstance(found, ExplanationFailedError)
    assert "/nowhere" not in str(found)


def test_a_hook_is_asked_and_one_that_cannot_be_loaded_is_said(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "routing_of_this_test", HookModule)
    found = TaskExplainer("routing_of_this_test:choose", lambda: False).answer(task())
    assert (found.ranking.route.strategy, found.ranking.route.specialist) == ("srm", 1)
    assert found.ranking.route.decided_by == "hook"
    failed = TaskExplainer("no_such_module:choose", lambda: False).answer(task())
    assert isinstance(failed, ExplanationFailedError)
    unasked = TaskExplainer("routing_of_this_test:choose", lambda: False).answer(task(routing=False))
    assert unasked.ranking.route.decided_by == "bundle"


class HookModule:
    @staticmethod
    def choose(query):
        return Choice(1, 0.75)


class Alternating:
    """Chooses another specialist each time that it is asked."""

    def __init__(self):
        self.asked = 0

    def choose(self, query):
        self.asked += 1
        return Choice(self.asked % 2)


def test_all_explanations_are_of_one_ranking_and_the_hook_is_asked_once(task, monkeypatch):
    hook = Alternating()
    monkeypatch.setitem(sys.modules, "routing_of_this_test", hook)
    found = TaskExplainer("routing_of_this_test:choose", lambda: False).answer(task(candidates=(), top_n=3))
    assert hook.asked == 1
    assert found.ranking.route.specialist == 1
    explanations = json.loads(found.content)
    assert [one["candidate"]["index"] for one in explanations] == found.ranking.order[:3].tolist()
    assert [one["candidate"]["rank"] for one in explanations] == [1, 2, 3]
    assert [one["second_stage"]["ranker"] for one in explanations] == ["srm 1"] * 3
    assert [one["second_stage"]["score"] for one in explanations] == pytest.approx(
        found.ranking.scores[found.ranking.order[:3]].tolist(), abs=1e-5
    )


def test_the_list_is_ranked_once_under_the_deadline(explainer, task, monkeypatch):
    """What ranks the list for real has a deadline; what ranks changed lists has none."""
    deadlines = []
    rerank = Reranker.rerank

    def noting(self, candidates, *, deadline=NO_DEADLINE, **words):
        if deadline.at < math.inf:
            deadlines.append(deadline.left_s)
        return rerank(self, candidates, deadline=deadline, **words)

    monkeypatch.setattr(Reranker, "rerank", noting)
    found = explainer.answer(task(candidates=(), top_n=3))
    assert deadlines == [pytest.approx(600, abs=30)]
    assert found.seconds["ranking"] > 0.0


def test_a_bug_is_told_as_its_traceback(explainer, task):
    found = explainer.answer(task(features="no matrix"))
    assert isinstance(found, Crashed)
    assert "Traceback" in found.trace


def test_only_the_last_bundles_stay(explainer, task, tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    for version in range(explain_process.MOST_BUNDLES + 1):
        explainer.answer(task(path=str(make_bundle(root / "shop" / str(version)))))
    assert len(explainer._bundles) == explain_process.MOST_BUNDLES
