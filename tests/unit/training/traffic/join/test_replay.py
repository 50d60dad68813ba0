"""Logged records ranked again: the same to the bit, or named."""

import json
from datetime import timedelta

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.served_log.files import write
from listwright.ranking.served_log.record import RuleEffect
from listwright.training.traffic.join.replay import replay
from support.served import NOON, served_record
from support.service.bundles import make_bundle, rows


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "shop" / "7"
    return bundle.load(make_bundle(folder, cutoff=3, specialists=2, margin=0.25))


def logged(loaded, number, **asked):
    """A record as the service would log it."""
    features = rows(np.random.default_rng(number), 6)
    ranking = loaded.reranker.rerank(CandidateList(features), **asked)
    route = ranking.route
    return served_record(
        number,
        length=6,
        names=loaded.manifest.feature_schema.names,
        served_at=NOON + timedelta(seconds=number),
        bundle="shop/7",
        fingerprint=loaded.manifest.fingerprint,
        features=features,
        first_stage_scores=ranking.first_stage_scores,
        scores=np.asarray(ranking.scores, dtype=np.float64),
        order=ranking.order[:4],
        top_n=4,
        strategy=route.strategy,
        weights=ranking.weights,
        route=None if route.specialist is None else json.dumps({"specialist": route.specialist}),
    )


def test_the_same_bundle_gives_the_same_to_the_bit(loaded, tmp_path):
    asked = [{}, {"strategy": "first_stage"}, {"strategy": "qilcm"}, {"specialist": 1, "strategy": "srm"}]
    records = [logged(loaded, n, **asked[n % 4]) for n in range(24)]
    assert any(record.route for record in records[::4]), "the router decides for some"
    assert any(np.isnan(record.scores).any() for record in records)
    write(tmp_path / "1.avro", records)
    found = replay(tmp_path, loaded, 100)
    assert (found.same, found.differing) == (24, 0)
    assert replay(tmp_path, loaded, 5).same == 5


def test_weights_of_the_request_are_those_of_the_record(tmp_path):
    loaded = bundle.load(make_bundle(tmp_path / "shop" / "7", cutoff=3, goals={"margin": 0.5}))
    asked = [None, {"margin": 0.0}, {"margin": 9.0}]
    write(tmp_path / "1.avro", [logged(loaded, n, weights=asked[n % 3]) for n in range(12)])
    found = replay(tmp_path / "1.avro", loaded, 100)
    assert (found.same, found.differing) == (12, 0)


def test_a_finished_file_that_is_cut_off_is_an_error(loaded, tmp_path):
    write(tmp_path / "1.avro", [logged(loaded, n) for n in range(4)], block_records=2)
    (tmp_path / "1.avro").write_bytes((tmp_path / "1.avro").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"1\.avro: .* 2 records"):
        replay(tmp_path, loaded, 100)


def test_what_differs_is_named(loaded, tmp_path):
    good = logged(loaded, 0, strategy="first_stage")
    scores = good.scores.copy()
    scores[2] = np.nextafter(scores[2], np.inf)
    changed = {
        "score": {"scores": scores},
        "first": {"first_stage_scores": good.first_stage_scores + 1e-9},
        "order": {"order": good.order[::-1].copy()},
    }
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__ if name not in ("query_id", "categories")}
    records = [served_record(0, **{**fields, **change, "query_id": name}) for name, change in changed.items()]
    write(tmp_path / "1.avro", [*records, good])
    found = replay(tmp_path, loaded, 100)
    assert (found.same, found.differing, found.different) == (1, 3, list(changed))


def test_other_bundles_experiments_and_degraded_answers_are_left_out(loaded, tmp_path):
    good = logged(loaded, 0)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__ if name != "categories"}
    others = [
        {"bundle": "shop/8"},
        {"fingerprint": "x"},
        {"teams": ("control",) * 4},
        {"rules": (RuleEffect("campaign", "pin", (0,)),)},
    ]
    records = [served_record(0, **{**fields, **change}) for change in [*others, {"degraded": "late"}]]
    write(tmp_path / "1.avro", records)
    with pytest.raises(RecipeError, match="4 records of other bundles, experiments or rules, 1 degraded"):
        replay(tmp_path, loaded, 100)
    write(tmp_path / "2.avro", [good])
    found = replay(tmp_path, loaded, 100)
    assert (found.same, found.others, found.degraded) == (1, 4, 1)
