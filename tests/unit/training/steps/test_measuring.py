"""A sealed bundle is measured until nothing that ``auto`` answers with is shown to harm; figures are those of what is sealed."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.experiments.specialised import units
from listwright.training.progress import NO_TASK, SILENT
from listwright.training.recipe import config
from listwright.training.reporting.report import verdict
from listwright.training.steps.measuring import measure
from support.service.bundles import make_bundle, rows
from support.stand_ins import standing_in
from support.training.measured import routed

MARGIN = 0.25
LISTS, LENGTH = 60, 8


@pytest.fixture
def folder(tmp_path):
    return make_bundle(tmp_path / "shop" / "1", specialists=3, margin=MARGIN)


def lists(share_of_routed):
    """Feature rows of queries, the first of them such that the router of the bundle picks a specialist."""
    rng = np.random.default_rng(0)
    for n in range(LISTS):
        features = rows(rng, LENGTH)
        features[:, 0] += (1.0 if n < share_of_routed * LISTS else -1.0) - features[:, 0].mean()
        yield features


def splits_of(folder, share_of_routed, *, right):
    """Test queries whose one relevant candidate is what ``right`` puts first."""
    reranker = bundle.load(folder).reranker
    features, labels = [], []
    for part in lists(share_of_routed):
        features.append(part)
        labels.append(np.zeros(LENGTH, np.int32))
        labels[-1][right(reranker, CandidateList(part)).order[0]] = 1
    offsets = np.arange(0, (LISTS + 1) * LENGTH, LENGTH)
    data = Dataset(
        np.concatenate(features), np.concatenate(labels), offsets, tuple(map(str, range(LISTS))), reranker.schema
    )
    return Splits(data, data, data, "by hand")


def by_first_stage(reranker, candidates):
    return reranker.rerank(candidates, strategy="first_stage")


def by_specialist_or_first_stage(reranker, candidates):
    ranking = reranker.rerank(candidates)
    return ranking if ranking.route.strategy == "srm" else by_first_stage(reranker, candidates)


def measured(folder, splits, **options):
    options = {"metric": "ndcg@10", "as_fitted": False} | options
    return measure(folder, config.load("planted"), splits, progress=SILENT, **options)


def mean(found, ranker):
    return float(np.nan_to_num(found.evaluation.values[ranker]["ndcg@10"]).mean())


def test_what_harms_is_taken_away_step_by_step(folder):
    """The first stage is always right: neither QILCM nor any specialist may answer for it."""
    found = measured(folder, splits_of(folder, 0.5, right=by_first_stage))
    manifest = bundle.load(folder).manifest
    assert found.served.manifest == manifest, "what was measured is what is sealed"
    assert (manifest.strategy, manifest.router.margin) == ("first_stage", None)
    assert "qilcm is worse" in manifest.default_reason
    assert "routing is worse" in manifest.default_reason
    assert mean(found, "routed") == mean(found, "first_stage") == 1.0
    assert mean(found, "qilcm") < 0.9, "its figures stay its own"
    assert verdict(found.routing).endswith("every answer is the first stage's.")


def test_a_router_that_does_not_harm_stays_and_abstains_to_the_first_stage(folder):
    found = measured(folder, splits_of(folder, 0.4, right=by_specialist_or_first_stage))
    manifest = bundle.load(folder).manifest
    assert (manifest.strategy, manifest.router.margin) == ("first_stage", MARGIN)
    assert mean(found, "routed") == 1.0, "measured again: with the first stage where it abstains"
    assert mean(found, "first_stage") > mean(found, "qilcm")
    assert found.routing.routed.tolist() == np.nan_to_num(found.evaluation.values["routed"]["ndcg@10"]).tolist()
    assert found.routing.coverage == pytest.approx(0.4)
    assert found.routing.default.mean() == pytest.approx(mean(found, "first_stage"))
    assert found.routing.generalist.mean() == pytest.approx(mean(found, "qilcm"))
    said = verdict(found.routing)
    assert said.startswith("Routing pays: 40% of queries go to a specialist")
    assert said.endswith("over the first stage alone.")
    assert f", {1.0 - mean(found, 'first_stage'):+.4f} [" in said
    facts = found.routing.facts()
    assert facts["abstains_to"] == "first stage"
    assert facts["gain_over_default"]["mean"] < facts["gain_over_generalist"]["mean"]


def test_nothing_is_taken_away_where_nothing_harms(folder):
    before = (folder / "manifest.json").read_bytes(), (folder / "golden.jsonl").read_bytes()
    right = splits_of(folder, 0.5, right=lambda reranker, candidates: reranker.rerank(candidates))
    found = measured(folder, right)
    assert before == ((folder / "manifest.json").read_bytes(), (folder / "golden.jsonl").read_bytes())
    assert found.routing.default.tolist() == found.routing.generalist.tolist()
    assert verdict(found.routing).endswith("over the generalist alone.")


def test_who_measures_on_the_test_split_takes_nothing_away(folder):
    found = measured(folder, splits_of(folder, 0.5, right=by_first_stage), as_fitted=True)
    manifest = bundle.load(folder).manifest
    assert (manifest.strategy, manifest.router.margin, manifest.default_reason) == ("qilcm", MARGIN, None)
    assert mean(found, "routed") < 1.0


def test_the_routing_suite_measures_bundles_as_they_were_fitted(tmp_path, monkeypatch):
    """Its pages are about the test split: nothing may be taken away by it first."""
    asked = {}
    monkeypatch.setattr(units, "load", lambda *_: None)
    monkeypatch.setattr(units, "measurable", lambda _: Splits(*[standing_in(Dataset, qids=("a", "b"))] * 3, "x"))
    monkeypatch.setattr(units, "run", lambda *_, **words: asked.update(words))
    monkeypatch.setattr(units, "evaluate_routing", lambda *_, **__: routed(2))
    units.routing(config.load("planted"), (), tmp_path, NO_TASK)
    assert asked["as_fitted"] is True
