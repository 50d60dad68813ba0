"""Where nothing was compared, ``auto`` does without what ranks the validation queries worse than the first stage."""

from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.data.dataset import Dataset
from listwright.training.pipeline.choice import without_worse
from listwright.training.reporting.sentences import default_sentence
from support.service.bundles import make_bundle, rows

MARGIN = 0.25
LISTS, LENGTH = 60, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", specialists=3, margin=MARGIN)


@pytest.fixture(scope="module")
def sealed(folder):
    return bundle.load(folder)


def queries(reranker, share_of_routed, *, right):
    """Queries whose one relevant candidate is what ``right`` puts first; the first of them are routed to a specialist."""
    rng = np.random.default_rng(0)
    features, labels = [], []
    for n in range(LISTS):
        part = rows(rng, LENGTH)
        part[:, 0] += (1.0 if n < share_of_routed * LISTS else -1.0) - part[:, 0].mean()
        features.append(part)
        labels.append(np.zeros(LENGTH, np.int32))
        labels[-1][right(reranker, CandidateList(part)).order[0]] = 1
    offsets = np.arange(0, (LISTS + 1) * LENGTH, LENGTH)
    qids = tuple(map(str, range(LISTS)))
    return Dataset(np.concatenate(features), np.concatenate(labels), offsets, qids, reranker.schema)


def by_first_stage(reranker, candidates):
    return reranker.rerank(candidates, strategy="first_stage")


def by_second_stage(reranker, candidates):
    return reranker.rerank(candidates, strategy="qilcm")


def by_specialist_or_first_stage(reranker, candidates):
    ranking = reranker.rerank(candidates)
    return ranking if ranking.route.strategy == "srm" else by_first_stage(reranker, candidates)


def by_auto(reranker, candidates):
    return reranker.rerank(candidates)


@pytest.mark.parametrize(
    ("right", "share", "strategy", "margin"),
    [
        (by_first_stage, 0.5, "first_stage", None),
        (by_specialist_or_first_stage, 0.4, "first_stage", MARGIN),
        (by_auto, 0.5, "qilcm", MARGIN),
    ],
)
def test_what_is_worse_is_taken_away_second_stage_first(folder, sealed, right, share, strategy, margin):
    after = without_worse(folder, sealed.manifest, queries(sealed.reranker, share, right=right), 10)
    assert (after.strategy, after.router.margin) == (strategy, margin)
    assert (after.default_reason is None) == (strategy == "qilcm")


def test_the_reason_has_both_figures(folder, sealed):
    valid = queries(sealed.reranker, 0.5, right=by_first_stage)
    after = without_worse(folder, sealed.manifest, valid, 10)
    for name in ("qilcm", "routing"):
        assert f"{name} is worse than the first stage on the {LISTS} validation queries" in after.default_reason
    assert "the first stage's 1.0000" in after.default_reason
    printed = default_sentence({"strategy": after.strategy, "reason": after.default_reason}, "qilcm")
    assert after.default_reason in printed


def test_equal_is_not_worse(folder, sealed):
    """All candidates are relevant: every order is as good."""
    valid = queries(sealed.reranker, 0.5, right=by_first_stage)
    valid.labels[:] = 1
    assert without_worse(folder, sealed.manifest, valid, 10) == sealed.manifest


def test_a_query_counts_by_its_weight(folder, sealed):
    """In one half of the queries the second stage is right, in the other one the first stage."""
    gained, harmed = (queries(sealed.reranker, 0.5, right=right) for right in (by_second_stage, by_first_stage))
    half = len(gained.labels) // 2
    labels = np.concatenate([gained.labels[:half], harmed.labels[half:]])
    weights = np.repeat([1.0, 0.0], [half, len(labels) - half])
    valid = replace(gained, labels=labels, weights=weights)
    assert without_worse(folder, sealed.manifest, valid, 10).strategy == "qilcm"
    turned = replace(valid, weights=weights[::-1])
    assert without_worse(folder, sealed.manifest, turned, 10).strategy == "first_stage"
