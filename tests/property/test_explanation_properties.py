"""True of every explanation: sums, the order of the others, changes that pass."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from support.explained import contribution_values, total, with_quantiles
from support.service.bundles import make_bundle, rows

MADE = (
    {"relative": True},
    {"specialists": 3, "margin": 0.1},
    {"first_stage": "onnx", "cutoff": 3},
    {"kind": None},
)


@pytest.fixture(scope="module", params=MADE, ids=[" ".join(made) for made in MADE])
def served(request, tmp_path_factory):
    path = make_bundle(tmp_path_factory.mktemp("explained") / "some" / "1", **request.param)
    return with_quantiles(bundle.load(path).reranker, rows(np.random.default_rng(0), 300))


@st.composite
def listed(draw):
    """A list of continuous values, so that no scores are equal, and one of its candidates."""
    length = draw(st.integers(1, 8))
    return rows(np.random.default_rng(draw(st.integers(0, 2**31))), length), draw(st.integers(0, length - 1))


@given(listed())
def test_contributions_sum_to_the_score_difference(served, one):
    features, candidate = one
    found = served.explain(CandidateList(features), candidate, budget=40)
    ranking = found.ranking
    first, second = found.first_stage, found.second_stage
    assert first.score == pytest.approx(ranking.first_stage_scores[candidate], abs=1e-6)
    assert total(first) == pytest.approx(first.score - first.reference_score, abs=1e-6)
    scored = ranking.stage_reached == "second_stage" and not np.isnan(ranking.scores[candidate])
    assert (second is not None) == scored
    if scored:
        assert second.score == pytest.approx(ranking.scores[candidate], abs=1e-4)
        assert total(second) == pytest.approx(second.score - second.reference_score, abs=1e-6)


@given(listed(), st.randoms(use_true_random=False))
def test_the_order_of_the_other_candidates_changes_nothing(served, one, random):
    features, candidate = one
    order = list(range(len(features)))
    random.shuffle(order)
    found = served.explain(CandidateList(features), candidate)
    scores = found.ranking.first_stage_scores
    assume(len(np.unique(scores)) == len(scores))  # trees give equal scores at times, which keep the input order
    moved = served.explain(CandidateList(features[order]), order.index(candidate))
    assert contribution_values(moved.first_stage) == pytest.approx(contribution_values(found.first_stage), abs=1e-5)
    assert (moved.second_stage is None) == (found.second_stage is None)
    if found.second_stage is not None:
        assert contribution_values(moved.second_stage) == pytest.approx(
            contribution_values(found.second_stage), abs=1e-4
        )
    assert {(order[move.index], move.rank, move.rank_without) for move in moved.moves} == {
        (move.index, move.rank, move.rank_without) for move in found.moves
    }
    assert (moved.passing is None) == (found.passing is None)
    if found.passing is not None:
        assert order[moved.passing.above.index] == found.passing.above.index
        if found.ranking.stage_reached == "second_stage":  # a step may lead to equal scores of trees
            assert (moved.passing.one, moved.passing.two) == (found.passing.one, found.passing.two)
