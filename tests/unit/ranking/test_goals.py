"""Several goals: weights and their defaults, shares by hand, and what stays as it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import BundleError, UnknownGoalError
from listwright.ranking.goals import Goals, combine
from listwright.ranking.order import finite_scores, rank_by_score
from listwright.ranking.rules.apply import RuleSet, apply_rules
from listwright.ranking.rules.schema import BoostRule
from listwright.ranking.stages import GoalsStage, GoalStage
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import Broken, Column

OTHERS = (
    GoalStage(name="margin", file="goal_0.txt", spread=2.0, weight=0.5),
    GoalStage(name="eco", file="goal_1.txt", spread=0.5, weight=0.0),
)
STAGE = GoalsStage(label="booked", spreads={"qilcm": 4.0, "first_stage": 1.0}, others=OTHERS)
LISTED = CandidateList(rows(np.random.default_rng(5), 9))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    options = {"cutoff": 5, "specialists": 2, "graph": "nan", "relative": True, "probability": "choice"}
    return (
        make_bundle(models / "plain" / "1", **options),
        make_bundle(models / "goals" / "1", goals={"margin": 0.5, "eco": 0.25}, **options),
    )


@pytest.fixture
def pair(folders):
    """The same ranker without and with further goals."""
    return tuple(bundle.load(folder).reranker for folder in folders)


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum()


def test_what_a_request_leaves_out_has_the_default_weight():
    goals = Goals(STAGE, [Column(0), Column(1)])
    assert goals.weights(None) == {"booked": 1.0, "margin": 0.5, "eco": 0.0}
    assert goals.weights({"eco": 2.0}) == {"booked": 1.0, "margin": 0.5, "eco": 2.0}
    assert list(goals.weights({"eco": 2.0, "booked": 0.0})) == ["booked", "margin", "eco"]


@pytest.mark.parametrize("requested", [{"profit": 1.0}, {"booked": 0.0, "margin": 0.0}])
def test_unknown_goals_and_no_goal_at_all_are_refused(requested):
    with pytest.raises(UnknownGoalError):
        Goals(STAGE, [Column(0), Column(1)]).weights(requested)


def test_shares_are_of_the_scores_over_their_spread_and_add_up_by_weight():
    goals = Goals(STAGE, [Column(0), Column(1)])
    features, scores = np.array([[1.0, 8.0], [3.0, 9.0], [2.0, 7.0]]), np.array([5.0, 4.0, 9.0])
    weights = {"booked": 1.0, "margin": 3.0, "eco": 4.0}
    others = 3.0 * softmax(features[:, 0] / 2.0) + 4.0 * softmax(features[:, 1] / 0.5)
    odds = goals.log_odds(features, scores, scores, "qilcm", weights)
    assert np.exp(combine(odds, weights)) == pytest.approx((softmax(scores / 4.0) + others) / 8.0)
    weights |= {"booked": 0.0}
    odds = goals.log_odds(features, scores, scores, "qilcm", weights)
    assert np.exp(combine(odds, weights)) == pytest.approx(others / 7.0)


def test_a_model_of_weight_0_is_not_run():
    goals = Goals(STAGE, [Column(0), Broken()])
    odds = goals.log_odds(np.ones((2, 2)), np.zeros(2), np.zeros(2), "qilcm", goals.weights(None))
    assert odds.keys() == {"booked", "margin"}


@pytest.mark.parametrize("weight", [1e-320, 1e-300, 1e6])
def test_a_single_goal_of_any_weight_has_its_own_order(weight):
    goals, column = Goals(STAGE, [Column(0), Column(1)]), np.random.default_rng(0).normal(size=(50, 1))
    weights = {"booked": 0.0, "margin": weight, "eco": 0.0}
    keys = combine(goals.log_odds(column, np.zeros(50), np.zeros(50), "qilcm", weights), weights)
    assert np.array_equal(rank_by_score(keys), rank_by_score(column[:, 0]))


@pytest.mark.parametrize("strategy", ["auto", "srm", "first_stage"])
def test_without_the_weights_of_others_it_is_the_bundle_without_goals_to_the_bit(pair, strategy):
    plain, several = (
        reranker.rerank(LISTED, strategy=strategy, probability=True, **more)
        for reranker, more in zip(pair, ({}, {"weights": {"margin": 0.0, "eco": 0.0}}), strict=True)
    )
    for name in ("order", "scores", "relevance", "probability", "first_stage_scores"):
        assert np.array_equal(getattr(plain, name), getattr(several, name), equal_nan=True), name
    assert plain.weights is None
    assert several.weights == {"booked": 1.0, "margin": 0.0, "eco": 0.0}


@pytest.mark.parametrize("strategy", ["auto", "srm", "first_stage"])
def test_every_candidate_has_a_combined_score_and_probabilities_stay_the_labels(pair, strategy):
    plain, several = (reranker.rerank(LISTED, strategy=strategy, probability=True) for reranker in pair)
    assert several.weights == {"booked": 1.0, "margin": 0.5, "eco": 0.25}
    assert np.isfinite(several.scores).all()
    assert np.array_equal(several.order, rank_by_score(several.scores))
    assert finite_scores(several.scores, several.order) is several.scores
    assert several.relevance == pytest.approx(np.exp(several.scores))
    assert several.relevance.sum() == pytest.approx(1.0)
    assert np.array_equal(rank_by_score(several.sort_keys), several.order)
    assert np.array_equal(several.probability, plain.probability)
    assert (several.stage_reached, several.degraded) == (plain.stage_reached, False)
    assert not np.array_equal(several.order, plain.order)


@pytest.fixture(scope="module")
def several(folders):
    return bundle.load(folders[1]).reranker


@given(st.permutations(range(9)), st.floats(0, 10), st.floats(0.01, 10))
def test_the_order_of_the_candidates_changes_nothing(several, order, booked, margin):
    weights = {"booked": booked, "margin": margin}
    here = several.rerank(LISTED, weights=weights)
    there = several.rerank(CandidateList(LISTED.features[order]), weights=weights)
    assert there.scores == pytest.approx(here.scores[order], abs=1e-6)


def test_scores_of_the_first_stage_that_the_caller_has_give_the_same(pair):
    plain = CandidateList(LISTED.features)
    first = pair[1].rerank(plain).first_stage_scores
    again = pair[1].rerank(plain, first_stage_scores=first)
    assert np.array_equal(again.scores, pair[1].rerank(plain).scores)


def test_a_goal_that_fails_leaves_the_order_to_the_label(pair):
    plain, several = pair
    several.goals = Goals(several.goals.stage, [Broken(), Broken()])
    ranking = several.rerank(LISTED)
    assert (ranking.weights, ranking.reason, ranking.late) == (None, "no oil", False)
    assert np.array_equal(ranking.order, plain.rerank(LISTED).order)


def test_a_goal_that_would_be_late_is_not_scored(pair):
    plain, several = pair
    for _ in range(9):
        several.pace.note("goals", 9, 1e12)
    ranking = several.rerank(LISTED, deadline=Deadline(1e9))
    assert (ranking.weights, ranking.late, ranking.stage_reached) == (None, True, "second_stage")
    assert "further goals" in ranking.reason
    assert np.array_equal(ranking.order, plain.rerank(LISTED).order)


def test_goals_which_the_order_needs_come_before_probabilities_which_it_does_not(pair):
    assert list(pair[1].rerank(LISTED, probability=True).timings_ms)[-2:] == ["goals", "probability"]


def test_a_late_goal_does_not_hide_that_a_stage_failed_before(pair):
    several = pair[1]
    features = LISTED.features.copy()
    features[:, 0] = 2000.0  # of which the second stage gives NaN
    failed = several.rerank(CandidateList(features))
    assert (failed.stage_reached, failed.degraded, failed.late) == ("first_stage", True, False)
    assert failed.weights == {"booked": 1.0, "margin": 0.5, "eco": 0.25}
    for _ in range(9):
        several.pace.note("goals", 9, 1e12)
    both = several.rerank(CandidateList(features), deadline=Deadline(1e9))
    assert (both.reason, both.late, both.weights) == (failed.reason, False, None)


def test_a_boost_multiplies_odds_of_the_combined_shares(pair):
    several = pair[1]
    ranking = several.rerank(LISTED)
    first, second = ranking.order[:2]
    ratio = float(ranking.relevance[first] / ranking.relevance[second])
    ids = tuple(f"c{n}" for n in range(len(LISTED)))
    candidates = CandidateList(LISTED.features, ids)
    for factor, winner in ((ratio * 1.01, second), (ratio * 0.99, first)):
        rule = BoostRule(action="boost", ids=[ids[second]], factor=factor)
        sets = [RuleSet((rule,), several.schema, of_request=True)]
        assert apply_rules(ranking, candidates, several.manifest, sets).order[0] == winner


def test_a_bundle_of_one_goal_refuses_weights(pair):
    with pytest.raises(UnknownGoalError, match="one goal"):
        pair[0].rerank(LISTED, weights={"margin": 1.0})


@pytest.mark.parametrize(
    "changes",
    [
        {"others": (OTHERS[0], OTHERS[0])},
        {"others": (OTHERS[0].model_copy(update={"name": "booked"}),)},
        {"others": ()},
        {"weight": 0.0, "others": (OTHERS[1],)},
    ],
)
def test_goals_have_one_name_each_and_a_weight(changes):
    with pytest.raises(ValidationError):
        GoalsStage(**(dict(STAGE) | changes))


@pytest.mark.parametrize("absent", ["goal_0.txt", "goal_1.txt"])
def test_a_model_that_is_not_there_is_named(tmp_path, absent):
    folder = make_bundle(tmp_path / "shop" / "1", kind=None, goals={"margin": 0.5, "eco": 0.25})
    (folder / absent).unlink()
    with pytest.raises(BundleError, match=absent):
        bundle.load(folder)


def test_spreads_are_of_the_bundles_strategies(folders):
    manifest = bundle.load(folders[1]).manifest
    for spreads in ({"first_stage": 1.0}, dict.fromkeys((*manifest.strategies, "dlcm"), 1.0)):
        goals = manifest.goals.model_copy(update={"spreads": spreads})
        with pytest.raises(ValidationError, match="spread"):
            type(manifest).model_validate(dict(manifest) | {"goals": goals})
