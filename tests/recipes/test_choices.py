"""A whole run on weighed choices: what the manifest, the report and the page say, and that it is what was measured."""

import json

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.metrics import ndcg
from listwright.ranking.order import relevance
from listwright.training.commands import fit
from listwright.training.pipeline.steps import load
from listwright.training.recipe.options import recipe_from

pytestmark = pytest.mark.nightly

QUERIES, LENGTH = 150, 6

OPTIONS = ["--qid", "q", "--label", "y", "--weight", "w", "--gains", "0,4", "--monotone", "price=-1"]

RECIPE = """
minutes = 0
[data]
kind = "table"
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = 20
folds = 2
[model]
kind = "mlp"
encoder_width = 8
hidden = [8]
max_epochs = 4
cutoff = 4
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """A choice per query by price and a hidden taste, and a weight per query."""
    folder = tmp_path_factory.mktemp("choices")
    rng = np.random.default_rng(0)
    price, stars = rng.normal(size=(2, QUERIES, LENGTH))
    utility = stars - 1.5 * price + rng.gumbel(size=price.shape)
    chosen = utility.argmax(axis=1)[:, None] == np.arange(LENGTH)
    frame = {
        "q": np.repeat(np.arange(QUERIES), LENGTH),
        "y": chosen.ravel().astype(int),
        "w": np.repeat(rng.exponential(size=QUERIES), LENGTH),
        "price": price.ravel(),
        "stars": stars.ravel(),
    }
    pl.DataFrame(frame).write_csv(folder / "rows.csv")
    (folder / "own.toml").write_text(RECIPE)
    return [str(folder / "own.toml"), "--data", str(folder / "rows.csv"), *OPTIONS]


@pytest.fixture(scope="module")
def bought(arguments, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "choices" / "1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISTWRIGHT_CACHE", str(out.parent.parent / "cache"))
        assert fit.main([*arguments, "--out", str(out)]) == 0
    return out


def test_metrics_are_weighted_and_by_the_gains(arguments, bought, tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path))
    loaded = bundle.load(bought)
    protocol = loaded.manifest.protocol
    assert (protocol.weighted, protocol.gains) == (True, (0.0, 4.0))
    report = json.loads((bought / "report.json").read_text())
    assert "gain 0, 4 of label 0, 1, ..., " in report["protocol"]
    assert "weighted mean over queries" in report["protocol"]
    options = fit._parser().parse_args(arguments)
    test = load(recipe_from(options), options.data).test
    values = []
    for features, labels in test.lists():
        ranking = loaded.reranker.rerank(CandidateList(features), strategy="mlp")
        values.append(ndcg(-ranking.ranks.astype(float), labels, cutoff=3, gains=(0.0, 4.0)))
    weights = [test.weights[test.slice(n)][0] for n in range(len(test))]
    found = next(m for m in loaded.manifest.metrics if (m.ranker, m.name) == ("mlp", "ndcg@3"))
    assert found.mean == pytest.approx(np.average(values, weights=weights))
    assert found.mean != pytest.approx(np.mean(values), abs=1e-6)
    assert loaded.manifest.recipe["data"]["weight"] == "w"


def test_what_is_served_is_a_calibrated_probability(bought):
    loaded = bundle.load(bought)
    temperatures = loaded.manifest.temperatures
    assert set(temperatures) == {"mlp", "qilcm", "first_stage"}
    rows = np.random.default_rng(1).normal(size=(LENGTH, 2)).astype(np.float32)
    for strategy, temperature in temperatures.items():
        ranking = loaded.reranker.rerank(CandidateList(rows), strategy=strategy)
        assert ranking.relevance == pytest.approx(relevance(ranking.scores / temperature), nan_ok=True)
        assert temperature != 1.0


def test_the_report_says_how_well(bought):
    details = json.loads((bought / "report.json").read_text())["details"]
    assert details["calibration"] == {"choices": True, "lists": QUERIES, "without_choice": 0}
    found = details["probability"]
    assert (found["lists"], found["answering"], found["rival"]) == (
        None,
        bundle.load(bought).manifest.strategy,
        "undivided",
    )
    assert [row["by"] for row in found["stated"]] == ["base_rate", "undivided", "mlp", "qilcm", "first_stage"]
    for row in found["stated"]:
        assert row["over_rival"]["low"] <= row["over_rival"]["mean"] <= row["over_rival"]["high"]
        assert sum(of_bin[0] for of_bin in row["bins"]) == QUERIES * LENGTH // 5
        assert row["ece"] > 0.0
    page = (bought / "report.html").read_text()
    assert "A score is the probability of being chosen" in page
    assert 'aria-label="Share chosen by probability' in page


def test_the_report_says_what_breaks_a_constraint(bought):
    first, second, _ = json.loads((bought / "report.json").read_text())["details"]["monotone"]
    assert (first["ranker"], first["scores_wrong"], first["ranks_wrong"]) == ("first_stage", 0, 0)
    assert first["moved"] > 150
    assert second["ranker"] == "mlp"
    assert "price −1" in (bought / "report.html").read_text()


def test_grades_are_no_choices(fitted):
    """Nothing is claimed of scores that no choice stands behind."""
    assert bundle.load(fitted).manifest.temperatures == {}
    report = json.loads((fitted / "report.json").read_text())
    assert report["details"]["calibration"]["choices"] is False
    page = (fitted / "report.html").read_text()
    assert "Scores are not probabilities on these data" in page
    assert "A score is the probability" not in page


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        ({1: 1}, "softmax (training labels are 0 or 1, and rows have no weights)"),
        ({1: 2}, "lambdarank (training labels go up to 2)"),
    ],
)
def test_equal_weights_are_no_weights_and_the_loss_is_stated(arguments, labels, loss, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path))
    rows = pl.read_csv(arguments[2]).with_columns(pl.col("y").replace(labels), pl.lit(3.0).alias("w"))
    rows.write_csv(tmp_path / "rows.csv")
    data = [arguments[0], "--data", str(tmp_path / "rows.csv"), "--qid", "q", "--label", "y"]
    outs = [tmp_path / name / "1" for name in ("weighted", "plain")]
    for out, option in zip(outs, ("--weight", "--ignore"), strict=True):
        assert fit.main([*data, option, "w", "--out", str(out)]) == 0
        assert f"Loss of LightGBM: {loss.replace(' (', ', because ').rstrip(')')}" in " ".join(
            capsys.readouterr().out.split()
        )
        report = json.loads((out / "report.json").read_text())
        assert report["first_stage"]["loss"] == loss
        assert report["first_stage"]["params"]["objective"] == loss.split()[0]
        assert loss in (out / "report.html").read_text()
    models = [{file.name: file.read_bytes() for file in out.iterdir() if "report" not in file.name} for out in outs]
    manifests = [json.loads(model.pop("manifest.json")) for model in models]
    assert models[0] == models[1]
    differing = {name for name in manifests[0] if manifests[0][name] != manifests[1][name]}
    assert differing <= {"name", "created_at", "recipe", "files", "sha256"}
