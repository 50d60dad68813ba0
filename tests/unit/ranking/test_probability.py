"""Probabilities: what they add up to, what they keep of the scores, and where there are none."""

from types import MappingProxyType

import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList, lightgbm_input
from listwright.ranking.deadline import Deadline
from listwright.ranking.order import log_odds
from listwright.ranking.probability import Calibration, follow_scores, level_probabilities
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.stages import ProbabilityStage
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import Broken, Column

STAGE = ProbabilityStage(slope=2.0, intercept=-1.0, temperatures={"qilcm": 0.5, "first_stage": 3.0}, lists=10, mean=0.3)
ODDS = arrays.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 0) | st.floats(-1e300, 0))


@given(ODDS, st.floats(1e-9, 1 - 1e-9))
def test_probabilities_add_up_to_what_is_expected_and_fall_with_the_odds(odds, share):
    expected = share * len(odds)
    odds -= odds.max()
    probabilities = level_probabilities(odds, np.array([expected]), np.array([0]))
    assert probabilities.sum() == pytest.approx(expected, abs=1e-9 * len(odds))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (np.diff(probabilities[np.argsort(odds)]) >= 0).all()


@given(arrays.arrays(np.float64, st.integers(2, 20), elements=st.floats(-20, 0)), st.floats(0.05, 0.95))
def test_log_odds_differ_by_those_that_were_given(odds, share):
    probabilities = level_probabilities(odds, np.array([share * len(odds)]), np.array([0]))
    inside = (probabilities > 1e-6) & (probabilities < 1 - 1e-6)
    levels = np.log(probabilities[inside] / (1 - probabilities[inside])) - odds[inside]
    assert np.ptp(levels) < 1e-6 if inside.any() else True


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1 - 1e-9))
def test_one_candidate_has_the_expected_number_itself(odds, expected):
    assert level_probabilities(np.array([odds]), np.array([expected]), np.array([0])) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("raw", [-1e300, -1e3, 1e3, 1e300])
def test_a_pointwise_model_that_is_too_sure_still_gives_a_level(raw):
    """Of which the sum would round to 0 or to L, where no finite level is."""
    features = np.full((5, 1), raw)
    calibration = Calibration(STAGE.temperatures, (Column(0), STAGE))
    probabilities = calibration.probabilities(features, np.arange(5.0), np.arange(5.0), "qilcm")
    assert np.isfinite(probabilities).all()
    assert probabilities == pytest.approx(float(raw > 0), abs=1e-8)


def test_the_pointwise_model_gives_the_number_and_the_ranker_the_order():
    features, scores = np.array([[0.2], [0.9], [-0.4]]), np.array([1.0, 3.0, 2.0])
    calibration = Calibration(STAGE.temperatures, (Column(0), STAGE))
    expected = (1 / (1 + np.exp(1.0 - 2.0 * features[:, 0]))).sum()
    for strategy, temperature in STAGE.temperatures.items():
        probabilities = calibration.probabilities(features, scores, -scores, strategy)
        assert probabilities.sum() == pytest.approx(expected)
        odds = np.log(probabilities / (1 - probabilities))
        assert np.diff(odds) == pytest.approx(np.diff(scores) / temperature)


def test_the_pointwise_scores_add_to_the_odds_as_far_as_the_order_allows():
    stage = STAGE.model_copy(update={"pointwise": {"qilcm": 2.0}})
    features, scores = np.array([[0.3], [1.0], [-0.4], [0.0]]), np.array([1.5, 3.0, 1.0, 0.5])
    calibration = Calibration(stage.temperatures, (Column(0), stage))
    found = calibration.probabilities(features, scores, scores, "qilcm")
    together = scores / 0.5 + 2.0 * features[:, 0]  # 3.6, 8.0, 1.2, 1.0: in the ranker's order
    assert np.diff(np.log(found / (1 - found))) == pytest.approx(np.diff(together))
    assert found.sum() == pytest.approx(calibration.expected(features))
    features[0] = 3.0  # 9.0 would be the best
    found = calibration.probabilities(features, scores, scores, "qilcm")
    assert np.diff(np.log(found / (1 - found))) == pytest.approx(np.diff([8.5, 8.5, 1.2, 1.0]))


SMALL = arrays.arrays(np.float64, 12, elements=st.integers(-3, 3).map(float))


@given(SMALL, SMALL, st.permutations(range(12)))
def test_values_follow_scores_whatever_the_order_of_the_candidates(scores, values, places):
    found = follow_scores(scores, values)
    order = np.argsort(scores, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert all(np.ptp(found[scores == score]) == 0 for score in np.unique(scores))
    assert follow_scores(found, found) == pytest.approx(found)
    assert follow_scores(scores[places], values[places]) == pytest.approx(found[places])
    for name in np.unique(found):
        assert values[found == name].mean() == pytest.approx(name)
    assert values.min() <= found.min() <= found.max() <= values.max()


def test_a_contradiction_moves_its_neighbours_alone():
    scores, values = -np.arange(100.0), -0.1 * np.arange(100.0)
    values[-1] = 5.0
    found = follow_scores(scores, values)
    moved = found != values
    assert moved[50:].any()
    assert not moved[:50].any()


def test_below_the_cutoff_the_first_stage_continues_the_odds():
    scores, first = np.array([np.nan, 2.0, np.nan, 5.0]), np.array([4.0, 9.0, 7.0, 8.0])
    assert log_odds(scores, first, 0.5, 3.0) == pytest.approx([-6.0 - 1.0, -6.0, -6.0, 0.0])
    found = Calibration({"qilcm": 0.5, "first_stage": 3.0}).probabilities(np.zeros((4, 1)), scores, first, "qilcm")
    assert found == pytest.approx(np.exp([-7.0, -6.0, -6.0, 0.0]) / np.exp([-7.0, -6.0, -6.0, 0.0]).sum())


def test_without_scores_or_a_temperature_there_are_none():
    calibration, nothing = Calibration({"qilcm": 2.0}), np.full(3, np.nan)
    assert calibration.probabilities(np.zeros((3, 1)), nothing, nothing, "qilcm") is None
    assert calibration.probabilities(np.zeros((3, 1)), np.arange(3.0), np.arange(3.0), "first_stage") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


CHOICES = MappingProxyType({"probability": "choice", "cutoff": 5, "specialists": 2})


RELEVANCE = MappingProxyType({"probability": "relevance", "cutoff": 5, "specialists": 2})


@pytest.mark.parametrize("made", [dict(RELEVANCE), dict(CHOICES), {"probability": "relevance", "relative": True}])
def test_a_ranking_has_them_only_where_they_are_asked_for(folder, made):
    name = "-".join(made)
    reranker = bundle.load(make_bundle(folder / f"{made['probability']}-{name}" / "1", **made)).reranker
    for strategy in ("auto", *reranker.manifest.strategies):
        candidates = CandidateList(rows(np.random.default_rng(1), 9))
        plain, ranking = (reranker.rerank(candidates, strategy=strategy, probability=asked) for asked in (False, True))
        assert plain.probability is None
        assert np.array_equal(plain.order, ranking.order)
        assert (np.diff(ranking.probability[ranking.order]) <= 0).all()
        if made["probability"] == "choice":
            assert ranking.probability.sum() == pytest.approx(1.0)
            assert np.array_equal(ranking.probability, ranking.relevance) == (strategy not in ("auto", "qilcm"))
            short = reranker.rerank(CandidateList(candidates.features[:5]), strategy=strategy, probability=True)
            assert np.array_equal(short.probability, short.relevance), "to the bit where a stage scored everybody"


def test_a_pointwise_model_of_list_relative_columns_sees_them(folder):
    path = make_bundle(folder / "relative" / "1", probability="relevance", relative=True)
    manifest, reranker = bundle.read_manifest(path), bundle.load(path).reranker
    features = rows(np.random.default_rng(1), 9)
    wide = RelativeColumns(manifest.relative, manifest.feature_schema)
    model = lightgbm.Booster(model_file=path / "probability.txt")
    expected = model.predict(lightgbm_input(wide.widened(features), wide.schema))
    assert reranker.calibration.pointwise(features) == pytest.approx(expected)
    assert reranker.calibration.expected(features) == pytest.approx(expected.sum())


def test_a_bundle_without_calibration_has_none(folder):
    reranker = bundle.load(make_bundle(folder / "plain" / "1", kind=None)).reranker
    assert reranker.calibration is None
    assert reranker.rerank(CandidateList(rows(np.random.default_rng(1), 4)), probability=True).probability is None


def test_a_list_without_time_for_them_or_whose_model_fails_is_ranked_without(folder):
    reranker = bundle.load(make_bundle(folder / "slow" / "1", probability="relevance")).reranker
    candidates = CandidateList(rows(np.random.default_rng(1), 4))
    for _ in range(9):
        reranker.pace.note("probability", 4, 1e12)
    late = reranker.rerank(candidates, probability=True, deadline=Deadline(1e9))
    assert (late.probability, late.degraded) == (None, False)
    reranker.calibration = Calibration(STAGE.temperatures, (Broken(), STAGE))
    failed = reranker.rerank(candidates, probability=True)
    assert (failed.probability, failed.degraded) == (None, False)


def test_golden_lists_hold_the_pointwise_model_to_what_it_gave(folder, tmp_path):
    path = make_bundle(folder / "golden" / "1", probability="relevance")
    text = (path / "golden.jsonl").read_bytes()
    lists = bundle.golden.read(text, path)
    assert all(one.probability is not None for one in lists)
    reranker = bundle.load(path).reranker
    bundle.golden.replay(reranker, lists, path)
    reranker.calibration = Calibration(STAGE.temperatures, (Column(0), STAGE))
    with pytest.raises(bundle.BundleError, match="line 1: probability"):
        bundle.golden.replay(reranker, lists, path)


def test_golden_lists_do_not_compare_probabilities_of_another_order(folder):
    """Where two scores are nearly equal, another machine may swap them, and probabilities follow the order."""
    path = make_bundle(folder / "swapped" / "1", probability="relevance")
    one = bundle.golden.read((path / "golden.jsonl").read_bytes(), path)[3]
    ranking = bundle.load(path).reranker.rerank(CandidateList(bundle.golden.as_array(one.features)), probability=True)
    other = one.model_copy(update={"probability": [0.5] * len(one.order)})
    assert "probability" in bundle.golden.difference(other, ranking)
    swapped = other.model_copy(update={"order": [one.order[1], one.order[0], *one.order[2:]]})
    assert "order" in bundle.golden.difference(swapped, ranking)
