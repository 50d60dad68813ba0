"""Who moves without the candidate, and what makes a query unusual."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.explaining.explain import explain
from listwright.ranking.explaining.explanation import MovedCandidate
from listwright.ranking.features import QUANTILE_LEVELS
from support.explained import with_quantiles
from support.service.bundles import NUMERIC, make_bundle, rows
from support.service.computed_by_hand import Column, candidates, reranker


def test_who_only_moves_up_does_not_move():
    found = explain(reranker(Column(0), Column(1)), candidates([1, 10], [3, 30], [2, 40]), 2)
    assert found.ranking.order.tolist() == [2, 1, 0]
    assert found.moves == ()


def test_a_candidate_that_takes_its_place_in_the_second_stage_moves():
    """Two of four reach the second stage: prices 4 and 3, then 3 and 2, which has the most stars."""
    of_four = candidates([4, 10], [3, 20], [2, 90], [1, 0])
    found = explain(reranker(Column(0), Column(1), cutoff=2), of_four, 0)
    assert found.ranking.ranks.tolist() == [2, 1, 3, 4]
    assert found.moves == (MovedCandidate(1, None, 1, 2), MovedCandidate(2, None, 3, 1))


class Context:
    """Stars count for the others in proportion to the largest price of the list."""

    def score(self, features):
        return features[:, 1] * (features[:, 0].max() - 2.5)


def test_a_context_that_leaves_with_the_candidate_moves_the_others():
    of_three = candidates([9, 1], [1, 2], [1, 3])
    found = explain(reranker(Column(0), Context()), of_three, 0)
    assert found.ranking.ranks.tolist() == [3, 2, 1]
    assert found.moves == (MovedCandidate(2, None, 1, 2), MovedCandidate(1, None, 2, 1))


def test_alone_nobody_moves():
    assert explain(reranker(Column(0), Column(1)), candidates([1, 10]), 0).moves == ()


@pytest.fixture
def routed(tmp_path):
    """Its anomaly score is a tenth of the sum of the top's means."""
    served = bundle.load(make_bundle(tmp_path / "some" / "1", specialists=2, margin=None))
    return with_quantiles(served.reranker, rows(np.random.default_rng(0), 500))


def test_the_anomaly_score_and_what_raises_it(routed):
    features = rows(np.random.default_rng(2), 6)
    features[:, 1] += 3.0
    features[:, 0] -= 5.0
    found = explain(routed, CandidateList(features), 0).anomaly
    means = np.nanmean(features[:, :3], axis=0)
    medians = [feature.quantiles[3] for feature in routed.manifest.feature_schema.features[:3]]
    assert found.score == pytest.approx(0.1 * means.sum(), abs=1e-5)
    assert found.training_quantiles == dict(
        zip(map(str, QUANTILE_LEVELS), routed.manifest.anomaly.quantiles, strict=True)
    )
    expected = {
        name: found.score - 0.1 * (mean - median)
        for name, mean, median in zip(NUMERIC, means, medians, strict=True)
        if mean > median
    }
    assert "stars" in expected
    assert "price" not in expected
    assert {one.feature: one.anomaly_without for one in found.features} == pytest.approx(expected, abs=1e-5)
    assert found.features[0].feature == "stars"
    assert found.features[0].value == pytest.approx(means[1], abs=1e-5)


def test_the_score_is_the_routers_own(routed):
    features = rows(np.random.default_rng(2), 25)
    listed = CandidateList(features)
    scores = routed.rerank(listed).first_stage_scores
    assert explain(routed, listed, 0).anomaly.score == pytest.approx(routed.anomaly.of(features, scores), abs=1e-6)


def test_a_bundle_without_anomaly_score_has_none():
    assert explain(reranker(Column(0), Column(1)), candidates([1, 10]), 0).anomaly is None
