"""Explanations of an order by several goals: sums, the label's own explanation, changes and moves by the same weights."""

import dataclasses
import json

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import UnknownGoalError
from listwright.ranking.explaining.explanation import to_json
from listwright.ranking.goals import Goals
from listwright.ranking.order import relevance
from support.explained import contribution_values, total, with_quantiles
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import Broken

LISTED = CandidateList(rows(np.random.default_rng(3), 8))
WEIGHTS = {"booked": 1.0, "margin": 0.5, "eco": 0.0}


@pytest.fixture(
    scope="module", params=[{"relative": True, "cutoff": 5}, {"kind": None}, {"first_stage": "onnx"}], ids=str
)
def pair(request, tmp_path_factory):
    """The same ranker without and with further goals."""
    models = tmp_path_factory.mktemp("models")
    folders = (
        make_bundle(models / "plain" / "1", **request.param),
        make_bundle(models / "goals" / "1", goals={"margin": 0.5, "eco": 0.0}, **request.param),
    )
    return tuple(with_quantiles(bundle.load(one).reranker, rows(np.random.default_rng(0), 300)) for one in folders)


@pytest.mark.parametrize("weights", [None, {"eco": 0.7}, {"booked": 0.0}])
def test_goals_and_features_each_sum_to_the_difference_of_the_shares(pair, weights):
    several = pair[1]
    ranking = several.rerank(LISTED, weights=weights)
    for candidate in range(len(LISTED)):
        found = several.explain(LISTED, candidate, weights=weights)
        goals = found.goals
        assert goals.score == ranking.relevance[candidate]
        assert {one.goal: one.weight for one in goals.goals} == ranking.weights
        difference = goals.score - goals.reference_score
        assert total(goals) == pytest.approx(difference, abs=1e-9)
        assert sum(one.contribution for one in goals.goals) == pytest.approx(difference, abs=1e-12)
        assert 0.0 < goals.reference_score < 1.0
        assert found.candidate.rank == ranking.ranks[candidate]


def test_a_goals_part_is_what_the_share_by_it_is_above_that_under_the_mean_score(pair):
    several, weights = pair[1], {"booked": 1.0, "margin": 2.0, "eco": 1.0}
    scores = several.goals.models[0].score(LISTED.features)
    for candidate in range(len(LISTED)):
        replaced = np.where(np.arange(len(LISTED)) == candidate, scores.mean(), scores)
        share, reference = (relevance(some, 0.5)[candidate] for some in (scores, replaced))
        part = several.explain(LISTED, candidate, weights=weights).goals.goals[1]
        assert part.contribution == pytest.approx(0.5 * (share - reference), abs=1e-9)


def test_one_candidate_has_the_whole_list_whatever_it_is(pair):
    goals = pair[1].explain(CandidateList(LISTED.features[:1]), 0).goals
    assert (goals.score, goals.reference_score) == (1.0, 1.0)


def test_the_stages_are_explained_as_without_other_goals(pair):
    for candidate in range(len(LISTED)):
        here, there = (one.explain(LISTED, candidate) for one in pair)
        assert there.first_stage == here.first_stage
        assert there.second_stage == here.second_stage


def test_without_the_weights_of_others_it_is_the_bundle_without_goals_to_the_byte(pair):
    plain, several = pair
    here = plain.explain(LISTED, 2, against=1)
    there = several.explain(LISTED, 2, against=1, weights={"margin": 0.0})
    assert to_json([there]) == to_json([here])
    (words,) = json.loads(to_json([here]))
    assert "goals" not in words
    assert "goals" not in words["against"]


def test_a_goal_that_likes_the_price_is_explained_by_the_price(pair):
    several = pair[1]
    dearest = int(np.argmax(LISTED.features[:, 0]))
    goals = several.explain(LISTED, dearest, weights={"booked": 0.0}).goals
    assert goals.contributions[0].feature == "price"
    assert goals.contributions[0].contribution > 0.0
    assert [one.contribution == 0.0 for one in goals.goals] == [True, False, True]
    assert goals.exact


def test_changes_and_moves_are_ranked_by_the_same_weights(pair):
    several, weights, passed = pair[1], {"booked": 0.1, "margin": 2.0}, 0
    ranking = several.rerank(LISTED, weights=weights)
    for candidate in range(len(LISTED)):
        found = several.explain(LISTED, candidate, weights=weights)
        for change in found.passing.one or () if found.passing else ():
            features = LISTED.features.copy()
            feature = several.schema.features[several.schema.index[change.feature]]
            value = change.value_to if feature.kind == "numeric" else feature.code(change.value_to)
            features[candidate, several.schema.index[change.feature]] = value
            again = several.rerank(CandidateList(features), weights=weights)
            assert again.ranks[candidate] < again.ranks[found.passing.above.index]
            passed += 1
        others = np.delete(np.arange(len(LISTED)), candidate)
        reduced = several.rerank(CandidateList(LISTED.features[others]), weights=weights)
        moved = {
            int(other): int(rank)
            for other, rank in zip(others, reduced.ranks, strict=True)
            if rank != ranking.ranks[other] - (ranking.ranks[other] > ranking.ranks[candidate])
        }
        assert {one.index: one.rank_without for one in found.moves} == moved
    assert passed > 0


def test_differences_to_another_candidate(pair):
    several = pair[1]
    found, other = several.explain(LISTED, 0, against=1), several.explain(LISTED, 1)
    if found.against.goals:
        mine, its = contribution_values(found.goals), contribution_values(other.goals)
        differences = {one.feature: one.contribution for one in found.against.goals}
        assert differences.keys() == mine.keys()
        if found.goals.exact:
            assert differences == pytest.approx({name: mine[name] - its[name] for name in mine})
    else:
        assert (found.second_stage is None) != (other.second_stage is None)


def test_where_a_goal_failed_the_answer_is_explained_by_the_label_alone(pair):
    plain, several = pair
    failing = with_quantiles(several, rows(np.random.default_rng(0), 300))
    goals, failing.goals = failing.goals, Goals(failing.goals.stage, [Broken(), Broken()])
    try:
        found, expected = failing.explain(LISTED, 2), plain.explain(LISTED, 2)
    finally:
        failing.goals = goals
    assert found.ranking.degraded
    assert (found.goals, found.moves, found.passing) == (None, expected.moves, expected.passing)
    assert found.second_stage == expected.second_stage
    assert found.incomplete == ()


def test_a_goal_whose_model_is_gone_leaves_the_rest(pair, monkeypatch):
    several = pair[1]
    answer = several.rerank(LISTED)
    monkeypatch.setattr(several, "goals", Goals(several.goals.stage, [Broken(), Broken()]))
    found = several.explain(LISTED, 2, ranking=answer)
    assert found.goals is None
    assert found.faults["goals"] == "no oil"
    assert "goals" in found.incomplete
    assert found.first_stage is not None


def test_unknown_goals_are_refused(pair):
    with pytest.raises(UnknownGoalError):
        pair[1].explain(LISTED, 0, weights={"profit": 1.0})


def test_words_of_goals(pair):
    (words,) = json.loads(to_json([pair[1].explain(LISTED, 0)]))
    assert [one["goal"] for one in words["goals"]["goals"]] == list(WEIGHTS)
    assert words["goals"]["ranker"] == "goals"
    assert words["goals"].keys() == {*words["first_stage"], "goals"}
    assert dataclasses.asdict(pair[1].explain(LISTED, 0).goals)["goals"][0]["weight"] == 1.0
