"""True of every list: which candidates reach a later stage depends on what they are, not on where they stand."""

import math
import struct
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from listwright.ranking.aggregates import TOP, Aggregates
from listwright.ranking.candidates import CandidateList, FirstPass
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import best, rank_by_score
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import LightGbmStage, NetworkStage
from listwright.training.data.dataset import Dataset
from listwright.training.second_stage.batching import Lists

SCHEMA = FeatureSchema(features=(Feature(name="a"), Feature(name="b"), Feature(name="c", missing_in_training=True)))
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -1e30, np.nan]).map(np.float32)


@st.composite
def tied_lists(draw, missing_scores=False):
    """Rows with duplicates and NaN, scores of which most tie, a permutation, and a cutoff."""
    length = draw(st.integers(1, 14))
    features = draw(hnp.arrays(np.float32, (length, 3), elements=VALUES))
    some = [0.0, 1.0, np.nan] if missing_scores else [0.0, 1.0]
    scores = draw(hnp.arrays(np.float64, length, elements=st.sampled_from(some)))
    return features, scores, np.array(draw(st.permutations(range(length)))), draw(st.integers(1, 14))


def row_of(features):
    """Rows as they compare."""
    return [struct.pack("<3f", *(math.nan if math.isnan(v) else float(v) + 0.0 for v in row)) for row in features]


def chosen(features, scores, count):
    return best(count, rank_by_score(scores), scores, features)


@given(tied_lists(missing_scores=True))
def test_the_best_are_those_of_a_plain_sort(tied):
    features, scores, _, count = tied
    rows, by_score = row_of(features), np.nan_to_num(scores, nan=-1.0)
    expected = sorted(range(len(rows)), key=lambda i: (-by_score[i], rows[i], i))[:count]
    found = chosen(features, scores, count)
    assert sorted(found) == sorted(expected)
    assert (np.diff(by_score[found]) <= 0).all(), "best first"


@given(tied_lists())
def test_training_keeps_what_is_served(tied):
    features, scores, _, cutoff = tied
    labels, offsets = np.zeros(len(scores), dtype=np.int32), np.array([0, len(scores)])
    lists = Lists(Dataset(features, labels, offsets, ("q",), SCHEMA), scores, cutoff=cutoff, append_score=True)
    stage = NetworkStage(cutoff=cutoff, first_stage_score=True)
    first = FirstPass(CandidateList(features), features, scores, rank_by_score(scores))
    kept, served = lists.candidates(0), first.select(stage)
    assert len(kept) == len(served)
    rows = list(zip(row_of(features), scores, strict=True))
    assert sorted(rows[i] for i in kept) == sorted(rows[i] for i in served), "of equals, others may be kept"
    assert np.array_equal(lists.inputs(0), first.inputs(kept, stage), equal_nan=True)


class Context:
    """Scores a list by how far its last column lies from the list's mean: another set, other scores."""

    def score(self, features):
        values = np.nan_to_num(features[:, 2], nan=7.0).astype(np.float64)
        return values - values.mean() + 3.0 * np.nan_to_num(features[:, 1])


@given(tied_lists())
def test_served_scores_follow_their_candidate_across_a_tied_cutoff(tied):
    features, scores, order, cutoff = tied
    features = features.copy()
    features[:, 0] = scores
    features[:, 1] = np.arange(len(scores)) % 4  # rows that differ, and rows that do not
    manifest = Manifest(
        name="hand",
        version="1",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe={},
        data="none",
        feature_schema=SCHEMA,
        fingerprint=SCHEMA.fingerprint,
        first_stage=LightGbmStage(),
        second_stages=(NetworkStage(cutoff=cutoff, first_stage_score=True),),
        strategy="qilcm",
    )
    reranker = Reranker(manifest, FirstColumn(), {"qilcm": Context()})
    before, after = reranker.rerank(CandidateList(features)), reranker.rerank(CandidateList(features[order]))
    assert (before.stage_reached, after.stage_reached) == ("second_stage", "second_stage")
    assert sorted(before.order) == sorted(after.order) == list(range(len(scores)))
    for one, other in ((before, features), (after, features[order])):
        rescored = one.order[: min(cutoff, len(scores))]
        assert np.isfinite(one.scores[rescored]).all()
        rest = one.order[len(rescored) :]
        assert np.isnan(one.scores[rest]).all()
        assert (np.diff(other[rest, 0]) <= 0).all(), "the others in first-stage order"
    pairs = [
        sorted(zip(row_of(rows), np.nan_to_num(one.scores, nan=-1e9).round(6).tolist(), strict=True))
        for one, rows in ((before, features), (after, features[order]))
    ]
    assert [row for row, _ in pairs[0]] == [row for row, _ in pairs[1]]
    assert [score for _, score in pairs[0]] == pytest.approx([score for _, score in pairs[1]], rel=1e-5)


class FirstColumn:
    engine = "column"

    def score(self, features):
        return features[:, 0].astype(np.float64)


@pytest.mark.parametrize("scored", [4, 12, 20])
def test_what_a_router_sees_is_the_same_in_every_order(scored):
    """The tie crosses the top and the specialists' cutoff."""
    rng = np.random.default_rng(0)
    features, specialists = rng.normal(size=(20, 3)).astype(np.float32), rng.normal(size=(20, 2)).astype(np.float32)
    first = np.repeat([2.0, 1.0, 0.0], [3, 14, 3])
    seen = Aggregates(SCHEMA, 2)

    def looked_at(order):
        rows, scores = features[order], first[order]
        kept = np.sort(chosen(rows, scores, scored))
        by_first = rank_by_score(scores)
        anomaly = seen.top_means(rows, scores, by_first).astype(float)
        found = seen.of(rows, scores, by_first, lambda means: float(means[0]), specialists[order][kept], kept)
        return np.concatenate([anomaly, found])

    straight = looked_at(np.arange(20))
    assert straight[0] == pytest.approx(features[chosen(features, first, TOP), 0].mean(), rel=1e-6)
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(20)
        assert looked_at(order) == pytest.approx(straight, rel=1e-6, abs=1e-6)
