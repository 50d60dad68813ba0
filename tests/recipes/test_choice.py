"""A default fit: it compares by folds, ships what pays, and says why; and what --quick and --model do instead."""

import json

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.commands import fit
from support.training.tiny import TINY

pytestmark = pytest.mark.nightly

SHIFTED = TINY.replace("queries = 60", "queries = 150\nshift = 1.0").replace("[model]", "[choice]\nfolds = 2\n[model]")
PLAIN = SHIFTED.replace("shift = 1.0", "shift = 0.0")


def run(recipe, out, *arguments):
    return fit.main([str(recipe), "--out", str(out), *arguments])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "own.toml"
    path.write_text(SHIFTED)
    return path


@pytest.fixture(scope="module")
def shipped(own, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "own" / "1"
    assert run(own, out) == 0
    return out


def test_on_shifted_data_the_first_stage_sees_list_relative_columns(shipped):
    manifest = bundle.load(shipped).manifest
    assert manifest.relative
    assert manifest.first_stage.relative
    compared = {(one.ranker, one.over): one for one in manifest.choice}
    assert compared["relative", "plain"].low > 0
    assert {one.ranker for one in manifest.choice} == {"relative", "qilcm", "qilcm2"}
    assert {one.n for one in manifest.choice} == {120}, "validation and training queries, no test query"


def test_the_default_is_what_the_comparisons_say(shipped):
    manifest = bundle.load(shipped).manifest
    current = "first_stage"
    for one in manifest.choice[1:]:
        assert one.over == current
        current = one.ranker if one.low > 0 else current
    assert manifest.strategy == current
    assert str(manifest.choice[0].n) in manifest.default_reason


def test_qilcm_answers_whoever_asks_for_it(shipped):
    loaded = bundle.load(shipped)
    assert "qilcm" in [stage.kind for stage in loaded.manifest.second_stages]
    features = np.zeros((4, len(loaded.manifest.feature_schema)), dtype=np.float32)
    assert loaded.reranker.rerank(CandidateList(features), strategy="qilcm").route.strategy == "qilcm"
    assert loaded.reranker.rerank(CandidateList(features)).route.strategy == loaded.manifest.strategy


def test_report_and_page_tell_it(shipped, capsys):
    report = json.loads((shipped / "report.json").read_text())
    assert [one["ranker"] for one in report["default_strategy"]["compared"]] == ["relative", "qilcm", "qilcm2"]
    assert report["rankers"]["plain_first_stage"] == "LightGBM"
    assert report["rankers"]["first_stage"] == "LightGBM + relative"
    assert "plain_first_stage" not in {metric.ranker for metric in bundle.load(shipped).manifest.metrics}
    page = (shipped / "report.html").read_text()
    assert "How the default was chosen" in page
    over_plain = report["default_over_plain"]
    assert over_plain["ranker"] == bundle.load(shipped).manifest.strategy
    means = {one["ranker"]: one["mean"] for one in report["metrics"] if one["name"] == "ndcg@10"}
    assert over_plain["mean"] == pytest.approx(means[over_plain["ranker"]] - means["plain_first_stage"])
    assert over_plain["low"] < over_plain["mean"] < over_plain["high"]
    assert f"interval {over_plain['low']:+.4f} to {over_plain['high']:+.4f}." in page


def test_the_test_split_takes_no_part(own, shipped, tmp_path, monkeypatch):
    """With other test labels the same bundle comes out, but for its figures."""
    from listwright.training.pipeline import run as run_module

    honest = run_module.with_bundle_schema

    def spoiled(recipe, splits):
        splits = honest(recipe, splits)
        splits.test.labels[:] = np.random.default_rng(0).permutation(splits.test.labels)
        return splits

    monkeypatch.setattr(run_module, "with_bundle_schema", spoiled)
    out = tmp_path / "own" / "1"
    assert run(own, out) == 0
    ours, theirs = bundle.load(out).manifest, bundle.load(shipped).manifest
    assert (ours.strategy, ours.choice, ours.relative) == (theirs.strategy, theirs.choice, theirs.relative)
    assert ours.metrics != theirs.metrics
    assert (out / "first_stage.txt").read_bytes() == (shipped / "first_stage.txt").read_bytes()


def test_quick_compares_nothing(own, tmp_path):
    out = tmp_path / "own" / "1"
    assert run(own, out, "--quick") == 0
    manifest = bundle.load(out).manifest
    assert (manifest.choice, manifest.relative, manifest.first_stage.relative) == ((), (), False)
    assert [stage.kind for stage in manifest.second_stages] == ["qilcm"]


def test_a_model_that_is_named_is_the_default(own, tmp_path):
    out = tmp_path / "own" / "1"
    assert run(own, out, "--model", "mlp") == 0
    manifest = bundle.load(out).manifest
    assert [stage.kind for stage in manifest.second_stages] == ["mlp"]
    assert [one.ranker for one in manifest.choice] == ["relative"], "first stages are compared all the same"


def test_of_a_model_that_is_named_nothing_is_claimed(own, tmp_path, capsys):
    out = tmp_path / "own" / "1"
    assert run(own, out, "--model", "mlp") == 0
    assert "simplest ranker" not in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert "compared" not in report["default_strategy"]
    assert "How the default was chosen" not in (out / "report.html").read_text()


def test_qilcm_is_in_a_bundle_whose_recipe_has_another_model(own, tmp_path):
    path, out = tmp_path / "other.toml", tmp_path / "other" / "1"
    path.write_text(own.read_text().replace('kind = "qilcm"', 'kind = "mlp"'))
    assert run(path, out) == 0
    assert {"mlp", "qilcm"} <= {stage.kind for stage in bundle.load(out).manifest.second_stages}


def test_finished_folds_are_not_done_again(own, shipped, tmp_path, monkeypatch):
    from listwright.training.pipeline import choice

    out, calls = tmp_path / "own" / "1", []
    fit_network = choice.fit_network

    def counted(*arguments, **more):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit_network(*arguments, **more)

    monkeypatch.setattr(choice, "fit_network", counted)
    assert run(own, out) == 130
    assert run(own, out, "--resume") == 0
    assert len(calls) == 2 + 1 + 2, "two folds, the one that was broken off, and the two that were left"
    assert bundle.load(out).manifest.choice == bundle.load(shipped).manifest.choice
