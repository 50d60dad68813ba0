"""A bundle whose second stage is not what ``auto`` means: who answers, and that all of it is still checked at load."""

import shutil

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.commands import verify
from listwright.ranking.errors import BundleError
from listwright.ranking.router import Choice
from support.service.bundles import make_bundle, rows
from support.service.routing import NOT_WORTH_IT, WORTH_IT, decided
from support.service.spoiling import rehash


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", harmful=True)


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", specialists=3, margin=0.25, harmful=True)


def test_auto_is_the_first_stage_and_the_second_answers_by_name(alone):
    loaded = bundle.load(alone)
    reranker, candidates = loaded.reranker, CandidateList(rows(np.random.default_rng(1), 12))
    ranking, named = reranker.rerank(candidates), reranker.rerank(candidates, strategy="qilcm")
    assert decided(ranking) == ("first_stage", "bundle", None)
    assert (ranking.stage_reached, ranking.degraded) == ("first_stage", False)
    assert ranking.order.tolist() == reranker.rerank(candidates, strategy="first_stage").order.tolist()
    assert (decided(named), named.stage_reached) == (("qilcm", "caller", None), "second_stage")
    assert named.order.tolist() != ranking.order.tolist()
    assert loaded.manifest.strategies == ("qilcm", "first_stage")


def test_a_router_abstains_to_the_first_stage(routed):
    reranker = bundle.load(routed).reranker
    assert decided(reranker.rerank(WORTH_IT)) == ("srm", "router", 2)
    abstained = reranker.rerank(NOT_WORTH_IT)
    assert decided(abstained) == ("first_stage", "abstained", None)
    assert abstained.scores.tolist() == reranker.rerank(NOT_WORTH_IT, strategy="first_stage").scores.tolist()
    assert decided(reranker.rerank(NOT_WORTH_IT, strategy="qilcm")) == ("qilcm", "caller", None)
    assert decided(reranker.rerank(NOT_WORTH_IT, strategy="srm")) == ("srm", "abstained", None)


def test_a_hook_that_abstains_leaves_it_to_the_first_stage(routed):
    reranker = bundle.load(routed).reranker
    assert decided(reranker.rerank(WORTH_IT, hook=lambda _: Choice(None))) == ("first_stage", "hook", None)
    assert decided(reranker.rerank(NOT_WORTH_IT, hook=lambda _: Choice(1))) == ("srm", "hook", 1)


@pytest.mark.parametrize("kept", ["alone", "routed"])
def test_a_second_stage_that_computes_something_else_is_noticed_at_load(kept, request, tmp_path):
    """Though ``auto`` asks it for no golden list."""
    spoiled = shutil.copytree(request.getfixturevalue(kept), tmp_path / "shop" / "1")
    other = make_bundle(tmp_path / "other" / "1", seed=8)
    shutil.copy(other / "qilcm.onnx", spoiled / "qilcm.onnx")
    rehash(spoiled, "qilcm.onnx")
    with pytest.raises(BundleError, match=r"golden\.jsonl: line \d+: scores are"):
        bundle.load(spoiled)


def test_the_check_says_what_was_taken_away(alone, tmp_path, capsys):
    assert verify.main([str(alone)]) == 0
    assert "strategy first_stage" in (said := capsys.readouterr().out)
    assert "default: qilcm is worse than the first stage" in said
    assert verify.main([str(make_bundle(tmp_path / "shop" / "1"))]) == 0
    assert "default:" not in capsys.readouterr().out
