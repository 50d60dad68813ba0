"""A bundle's second stage is named by its kind, and there need not be one."""

import json

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.commands import verify
from listwright.ranking.errors import BundleError, UnknownStrategyError
from listwright.ranking.manifest import _own_hash, parse
from support.service.bundles import make_bundle, rows


@pytest.fixture(scope="module")
def candidates():
    return CandidateList(rows(np.random.default_rng(3), 8))


@pytest.mark.parametrize("kind", ["qilcm", "qilcm2", "dlcm", "dcm", "mlp"])
def test_a_network_is_asked_for_by_its_kind(tmp_path, candidates, kind):
    reranker = bundle.load(make_bundle(tmp_path / "shop" / "1", kind=kind)).reranker
    assert reranker.manifest.strategies == (kind, "first_stage")
    answer = reranker.rerank(candidates)
    assert (answer.route.strategy, answer.stage_reached, answer.reason) == (kind, "second_stage", None)
    assert np.array_equal(reranker.rerank(candidates, strategy=kind).scores, answer.scores)
    other = "mlp" if kind == "qilcm" else "qilcm"
    with pytest.raises(UnknownStrategyError, match=f"no strategy '{other}': use one of auto, {kind}, first_stage"):
        reranker.rerank(candidates, strategy=other)


def test_the_first_stage_alone(tmp_path, candidates):
    path = make_bundle(tmp_path / "shop" / "1", kind=None)
    loaded = bundle.load(path)
    assert loaded.manifest.strategies == ("first_stage",)
    assert sorted(file.name for file in path.iterdir()) == ["first_stage.txt", "golden.jsonl", "manifest.json"]
    answer = loaded.reranker.rerank(candidates)
    assert (answer.route.strategy, answer.stage_reached, answer.reason) == ("first_stage", "first_stage", None)
    assert np.array_equal(answer.scores, answer.first_stage_scores)
    with pytest.raises(UnknownStrategyError, match="use one of auto, first_stage"):
        loaded.reranker.rerank(candidates, strategy="qilcm")


def test_verify_says_that_there_is_no_second_stage(tmp_path, capsys):
    assert verify.main([str(make_bundle(tmp_path / "shop" / "1", kind=None))]) == 0
    assert "strategy first_stage, no second stage, validated" in capsys.readouterr().out


def altered(path, **changes):
    """The manifest of a bundle, changed and with the hash of what it says now; ``removed`` takes a field out."""
    values = json.loads((path / "manifest.json").read_text()) | changes
    values = {name: value for name, value in values.items() if value != "removed"}
    return json.dumps(values | {"sha256": _own_hash(values)}).encode()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"strategy": "qilcm"}, "strategy is 'qilcm', but the bundle's are dlcm, first_stage"),
        ({"second_stages": []}, "strategy is 'dlcm', but the bundle's are first_stage"),
        ({"second_stages": "removed"}, "second_stages: Field required"),
    ],
)
def test_a_manifest_whose_stages_do_not_fit_is_refused(tmp_path, changes, says):
    path = make_bundle(tmp_path / "shop" / "1", kind="dlcm")
    with pytest.raises(BundleError, match=says):
        parse(altered(path, **changes), path)
