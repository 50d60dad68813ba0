"""Whole runs with specialists and a router: what lands in the bundle, and that interruptions lose nothing."""

import json

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.commands import fit
from listwright.training.data.load import load
from listwright.training.recipe import config
from listwright.training.recipe.data import SyntheticData
from support.training.tiny import SPECIALISED

pytestmark = pytest.mark.nightly


def run(*arguments):
    return fit.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "specialised.toml"
    path.write_text(SPECIALISED)
    return path


@pytest.fixture(scope="module")
def specialised(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "specialised" / "1"
    assert run(recipe, "--out", out) == 0
    return out


def test_bundle_holds_specialists_and_router(specialised):
    manifest = bundle.load(specialised).manifest
    assert manifest.strategies == ("qilcm", "srm", "first_stage")
    assert len(manifest.srm.specialists) == 2
    assert sum(specialist.weight for specialist in manifest.srm.specialists) == pytest.approx(1.0)
    assert sum(specialist.queries for specialist in manifest.srm.specialists) <= 60
    assert {"srm.onnx", "router.onnx", "anomaly.onnx"} <= {file.name for file in manifest.files}
    assert {metric.ranker for metric in manifest.metrics} == {"input_order", "first_stage", "qilcm", "routed"}


def test_every_specialist_is_replayed_at_load(specialised):
    lines = [json.loads(line) for line in (specialised / "golden.jsonl").read_text().splitlines()]
    assert [line["specialist"] for line in lines if line["specialist"] is not None] == [0, 1]


def test_report_tells_what_routing_is_worth(specialised, capsys):
    report = json.loads((specialised / "report.json").read_text())
    routing = report["routing"]
    assert routing["queries"] == 20
    assert routing["ndcg"]["mean_specialist"] <= routing["ndcg"]["hard_route"] <= routing["ndcg"]["oracle"]
    assert report["specialists"]["router"]["lists"] == 60
    served = {(m["ranker"], m["name"]): m["mean"] for m in report["metrics"]}
    assert served["qilcm", "ndcg@10"] == pytest.approx(routing["ndcg"]["generalist"])
    assert served["routed", "ndcg@10"] == pytest.approx(routing["ndcg"]["routed"])


def test_groups_that_a_feature_gives_away_are_routed(specialised):
    report = json.loads((specialised / "report.json").read_text())
    assert report["routing"]["coverage"] > 0.5
    assert report["routing"]["gain_over_generalist"]["low"] > 0.0


def test_specialists_rank_as_they_were_trained(specialised, recipe):
    """The exported graph through the served path, against the weights that the manifest tells."""
    reranker = bundle.load(specialised).reranker
    test = load(config.load(str(recipe)), []).test
    features, _ = next(rows for rows in test.lists() if len(rows[0]) > 5)
    largest = reranker.manifest.srm.specialists[0].top_features[0]
    if largest.feature in reranker.schema.index:
        column = reranker.schema.index[largest.feature]
        low, high = features[:1].copy(), features[:1].copy()
        low[0, column], high[0, column] = -0.5, 0.5
        scores = reranker.rerank(CandidateList(np.concatenate([low, high])), specialist=0).scores
        assert np.sign(scores[1] - scores[0]) == np.sign(largest.weight)


def test_interruption_between_the_folds_of_the_router_loses_nothing(specialised, recipe, tmp_path, monkeypatch):
    out = tmp_path / "specialised" / "1"
    from listwright.training.pipeline import specialists as fit

    judge, calls = fit.judge, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return judge(*arguments)

    monkeypatch.setattr(fit, "judge", interrupted)
    assert run(recipe, "--out", out) == 130
    assert run(recipe, "--out", out, "--resume") == 0
    assert len(calls) == 3, "the first fold was finished and must not be judged again"
    for name in ("golden.jsonl", "router.onnx"):
        assert (out / name).read_bytes() == (specialised / name).read_bytes()


def test_a_router_without_specialists_is_refused(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    path.write_text(SPECIALISED.replace("[specialists]\nspecialists = 2", "[specialists]\nspecialists = 1"))
    assert run(path, "--out", tmp_path / "wrong" / "1") == 1
    assert "a [router] needs [specialists] to choose among" in " ".join(capsys.readouterr().out.split())


def test_specialists_without_a_router_are_for_callers_and_hooks(tmp_path):
    path = tmp_path / "callers.toml"
    path.write_text(SPECIALISED.partition("[router]")[0].replace("specialised", "callers"))
    out = tmp_path / "callers" / "1"
    assert run(path, "--out", out) == 0
    loaded = bundle.load(out)
    assert loaded.manifest.router is None
    assert loaded.manifest.anomaly is not None
    rng = np.random.default_rng(0)
    candidates = CandidateList(rng.normal(size=(4, len(loaded.manifest.feature_schema))).astype(np.float32))
    ranking = loaded.reranker.rerank(candidates)
    assert ranking.route.strategy == loaded.manifest.strategy, "what pays answers, and QILCM whoever asks"
    assert loaded.reranker.rerank(candidates, strategy="qilcm").route.strategy == "qilcm"
    assert loaded.reranker.rerank(candidates, specialist=1).route.specialist == 1


def test_planted_recipes_differ_in_what_can_be_seen():
    for name, observable in (("planted", 0.9), ("planted-hidden", 0.0)):
        data = config.load(name).data
        assert isinstance(data, SyntheticData)
        assert (data.groups, data.observable) == (3, observable)


def test_nothing_but_categories(tmp_path, capsys):
    """No anomaly score and hence no router, but specialists all the same."""
    rng = np.random.default_rng(0)
    rows = pl.DataFrame(
        {
            "search": np.repeat(np.arange(40), 5),
            "colour": rng.choice(["red", "blue", "green"], 200),
            "clicked": np.tile([1, 0, 0, 1, 0], 40),
        }
    )
    rows.write_parquet(tmp_path / "rows.parquet")
    path = tmp_path / "colours.toml"
    head, _, model = SPECIALISED.partition("[first_stage]")
    path.write_text(head.split("[data]")[0] + '[data]\nkind = "table"\n[first_stage]' + model)
    data = ("--data", tmp_path / "rows.parquet", "--qid", "search", "--label", "clicked")
    assert run(path, *data, "--out", tmp_path / "colours" / "1") == 1
    assert "a [router] needs numeric features" in " ".join(capsys.readouterr().out.split())
    path.write_text(path.read_text().partition("[router]")[0])
    out = tmp_path / "colours" / "2"
    assert run(path, *data, "--out", out) == 0
    manifest = bundle.load(out).manifest
    assert (manifest.anomaly, manifest.router) == (None, None)
    assert len(manifest.srm.specialists) == 2
