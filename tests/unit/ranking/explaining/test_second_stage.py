"""Contributions to the final score: against the definition through the serving path, and against planted weights."""

import json
from math import hypot

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.explaining import contributions
from listwright.ranking.explaining.contributions import references
from listwright.ranking.explaining.explain import explain
from support.explained import NEVER, by_permutations, contribution_values, total
from support.pages.figure_blocks import ROOT
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import Column, candidates, reranker
from support.service.routing import NOT_WORTH_IT, WORTH_IT

DEMO = ROOT / "models" / "demo" / "1"


def by_definition(served, features, candidate, **asked):
    """The whole list is ranked anew for every coalition; all candidates reach the second stage."""
    absent = references(features, served.manifest.feature_schema)

    def worth(known):
        changed = features.copy()
        changed[candidate] = [features[candidate, d] if d in known else absent[d] for d in range(len(absent))]
        return served.reranker.rerank(CandidateList(changed), **asked).scores[candidate]

    return by_permutations(worth, features.shape[1])


WAYS = {
    "network": ({}, {}),
    "without the first-stage score": ({"first_stage_score": False}, {}),
    "relative columns": ({"relative": True}, {}),
    "given first stage": ({"first_stage": "onnx"}, {}),
    "second network": ({"also": "mlp"}, {"strategy": "mlp"}),
    "specialist": ({"specialists": 3}, {"specialist": 1}),
    "specialist, relative columns": ({"specialists": 3, "relative": True}, {"specialist": 1}),
    "mixture": ({"specialists": 3}, {"strategy": "srm"}),
    "mixture, relative columns": ({"specialists": 3, "relative": True}, {"strategy": "srm"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_few_features_are_exact(way, tmp_path):
    made, asked = WAYS[way]
    served = bundle.load(make_bundle(tmp_path / "some" / "1", **made))
    features = rows(np.random.default_rng(3), 7)
    ranking = served.reranker.rerank(CandidateList(features), **asked)
    for candidate in (0, 4):
        found = explain(served.reranker, CandidateList(features), candidate, **asked).second_stage
        expected = by_definition(served, features, candidate, **asked)
        names = served.manifest.feature_schema.names
        assert contribution_values(found) == pytest.approx(dict(zip(names, expected, strict=True)), abs=1e-5)
        assert total(found) == pytest.approx(found.score - found.reference_score, abs=1e-9)
        assert found.score == pytest.approx(ranking.scores[candidate], abs=1e-5)
        assert found.exact
        assert np.abs(expected).max() > 0.01


def fitted():
    """The demo's bundle, with its longest golden list."""
    lists = (json.loads(line) for line in (DEMO / "golden.jsonl").read_text().splitlines())
    longest = max((one["features"] for one in lists), key=len)
    return bundle.load(DEMO), CandidateList(np.array(longest, dtype=np.float32))


def test_errors_of_a_difference_add_up_in_squares():
    served, listed = fitted()
    words = {"budget": 200, "seed": 0}
    found = explain(served.reranker, listed, 0, against=1, strategy="qilcm", **words)
    both = contributions.ListExplainer(
        served.reranker, listed, found.ranking, [0, 1], clock=NEVER, **words
    ).explain_second_stage()[0]
    mine, its = ({one.feature: one.standard_error for one in stage.contributions} for stage in both)
    assert {one.feature: one.standard_error for one in found.second_stage.contributions} == mine
    assert {one.feature: one.standard_error for one in found.against.second_stage} == pytest.approx(
        {name: hypot(mine[name], its[name]) for name in mine}
    )
    assert min(max(mine.values()), max(its.values())) > 1e-3, "both were sampled"


def test_sampled_contributions_lie_within_three_standard_errors(monkeypatch):
    """A fitted network; the reference tries all coalitions of its 12 features."""
    served, listed = fitted()
    candidate = int(served.reranker.rerank(listed, strategy="qilcm").order[1])
    found = explain(served.reranker, listed, candidate, strategy="qilcm", budget=500).second_stage
    monkeypatch.setattr(contributions, "EXHAUSTIVE", 2**12)
    exact = explain(served.reranker, listed, candidate, strategy="qilcm", budget=2**12).second_stage
    assert (found.exact, exact.exact) == (False, True)
    expected = contribution_values(exact)
    for one in found.contributions:
        assert abs(one.contribution - expected[one.feature]) <= 3.0 * one.standard_error + 1e-6
    assert max(one.standard_error for one in found.contributions) > 1e-4
    assert found.contributions[0].feature == exact.contributions[0].feature


def test_the_routers_probabilities_stay_those_of_the_answer(tmp_path):
    """A changed candidate may change the route; the answer's is what is explained."""
    served = bundle.load(make_bundle(tmp_path / "some" / "1", specialists=3, margin=0.2))
    reranker, features = served.reranker, NOT_WORTH_IT.features
    ranking = reranker.rerank(NOT_WORTH_IT, strategy="srm")
    assert ranking.route.specialist is None
    absent = references(features, served.manifest.feature_schema)

    def worth(known):
        changed = features.copy()
        changed[2] = [features[2, d] if d in known else absent[d] for d in range(len(absent))]
        scores = reranker.second_pass.specialists.score(changed)
        return reranker.second_pass.routed(scores, ranking.route)[2]

    found = explain(reranker, NOT_WORTH_IT, 2, strategy="srm").second_stage
    expected = by_permutations(worth, len(absent))
    assert contribution_values(found) == pytest.approx(
        dict(zip(served.manifest.feature_schema.names, expected, strict=True)), abs=1e-5
    )
    assert found.ranker == "srm"


def test_the_specialist_of_the_route_is_named(tmp_path):
    served = bundle.load(make_bundle(tmp_path / "some" / "1", specialists=3, margin=0.2))
    found = explain(served.reranker, WORTH_IT, 0)
    assert found.second_stage.ranker == f"srm {found.ranking.route.specialist}"


class Planted:
    """``3 stars - 2 price + 10 first-stage score``, less the list's mean of it."""

    def score(self, features):
        scores = features @ np.array([-2.0, 3.0, 10.0], dtype=np.float32)
        return scores - scores.mean()


def test_planted_weights_come_out_and_those_of_the_first_stage_among_them():
    """The first stage scores by price: what it passes on is the price's."""
    of_four = candidates([1, 10], [3, 30], [2, 40], [7, 20])  # medians, the lower ones: 2 and 20
    found = explain(reranker(Column(0), Planted()), of_four, 3).second_stage
    own = 3 / 4  # the candidate is a quarter of the mean
    assert contribution_values(found) == pytest.approx({"price": (10 - 2) * (7 - 2) * own, "stars": 0.0})
    assert [one.feature for one in found.contributions] == ["price", "stars"]
    assert (found.contributions[0].value, found.contributions[0].reference) == (7.0, 2.0)


class Remembering(Column):
    def __init__(self, column):
        super().__init__(column)
        self.lists = []

    def score(self, features):
        self.lists.append(features.copy())
        return super().score(features)


def test_the_candidates_that_reach_the_second_stage_stay_those_of_the_answer():
    """By price alone the explained one would fall below the cutoff when its price is left out."""
    second = Remembering(1)
    of_four = candidates([1, 10], [3, 30], [2, 40], [9, 20])
    found = explain(reranker(Column(0), second, cutoff=1), of_four, 3)
    assert contribution_values(found.second_stage) == {"price": 0.0, "stars": 0.0}
    explained = [seen for seen in second.lists if seen[0, 0] == 2.0]
    assert explained, "the price was left out"
    assert all(len(seen) == 1 for seen in second.lists)


def test_a_candidate_below_the_cutoff_has_no_second_stage():
    found = explain(reranker(Column(0), Column(1), cutoff=2), candidates([1, 10], [3, 30], [2, 40]), 0)
    assert found.second_stage is None
    assert found.incomplete == ()


def test_asked_for_the_first_stage_there_is_no_second():
    found = explain(reranker(Column(0), Column(1)), candidates([1, 10], [3, 30]), 0, strategy="first_stage")
    assert found.second_stage is None
