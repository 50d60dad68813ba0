"""A second stage that harms is said to, everywhere, and is not what the bundle answers with; nor is a given first stage
said not to know the test queries.
"""

import json

import numpy as np
import pytest

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.commands import verify
from listwright.ranking.metrics import ndcg
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.training.commands import fit
from support.service.asgi import asking
from support.training.suites import printed_text

pytestmark = pytest.mark.nightly

QUERIES, LENGTH = 60, 8

RECIPE = """
name = "harmful"
about = "x"
minutes = 0
[data]
kind = "letor"
[first_stage]
kind = "column"
column = "f1"
[model]
kind = "qilcm"
encoder_width = 8
hidden = [8]
max_epochs = 15
learning_rate = 0.01
cutoff = 6
"""


def written(path, *, right):
    """Queries in which feature ``right`` (1 or 2) gives the relevant candidate away; the other one misleads."""
    rng = np.random.default_rng(right)
    lines = []
    for query in range(QUERIES):
        best = rng.integers(LENGTH)
        for n in range(LENGTH):
            good, bad = (n == best) + 0.1 * rng.random(), (n != best) + 0.1 * rng.random()
            first, second = (good, bad) if right == 1 else (bad, good)
            lines.append(f"{int(n == best)} qid:{path.stem}{query} 1:{first:.4f} 2:{second:.4f} 3:{rng.random():.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """What is learned on the training queries is wrong on all others, where the scores in the data are right."""
    folder = tmp_path_factory.mktemp("data")
    parts = {"train": 2, "valid": 1, "test": 1}
    return [f"{name}={written(folder / f'{name}.txt', right=right)}" for name, right in parts.items()]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "harmful.toml"
    path.write_text(RECIPE)
    return path


def fitted(recipe, sources, out, *more):
    assert fit.main([str(recipe), "--data", *sources, "--out", str(out), *(more or ("--quick",))]) == 0
    return out


@pytest.fixture(scope="module")
def harmful(recipe, sources, tmp_path_factory):
    return fitted(recipe, sources, tmp_path_factory.mktemp("models") / "harmful" / "1")


@pytest.mark.parametrize(("more", "kind", "title"), [((), "qilcm", "QILCM"), (("--model", "dlcm"), "dlcm", "DLCM")])
def test_terminal_manifest_and_report_say_so_and_why(recipe, sources, tmp_path, capsys, more, kind, title):
    out = fitted(recipe, sources, tmp_path / "harmful" / "1", *more)
    printed = printed_text(capsys)
    assert f"{title} over first stage, NDCG@10: -0." in printed
    assert "]: harm (paired" in printed
    assert f"answers with the first stage unless a request says strategy={kind}: {kind} is worse" in printed
    assert "This also applies to a model requested with --model" in printed
    assert "contains 0" not in printed
    manifest = bundle.load(out).manifest
    assert (manifest.strategy, manifest.second_stage.kind) == ("first_stage", kind)
    assert manifest.default_reason.startswith(
        f"{kind} is worse than the first stage on the {QUERIES} validation queries"
    )
    report = json.loads((out / "report.json").read_text())
    assert report["gain_over_first_stage"]["verdict"] == "harm"
    assert report["gain_over_first_stage"]["high"] < 0
    assert report["default_strategy"] == {"strategy": "first_stage", "reason": manifest.default_reason}
    assert report["recipe"]["model"]["kind"] == kind, "what is forced is what is fitted"
    page = (out / "report.html").read_text()
    assert f"{title} is worse than the first stage by" in page
    assert f"unless a request says strategy={kind}" in page
    assert "Serve the first stage" not in page, "it does"
    assert verify.main([str(out)]) == 0
    assert f"default: {kind} is worse" in capsys.readouterr().out


def test_the_figures_are_those_of_each_ranker_by_name(harmful):
    manifest = bundle.load(harmful).manifest
    means = {metric.ranker: metric.mean for metric in manifest.metrics if metric.name == "ndcg@10"}
    assert set(means) == {"input_order", "first_stage", "qilcm"}
    assert means["first_stage"] == 1.0 > means["qilcm"]
    report = json.loads((harmful / "report.json").read_text())
    assert report["rankers"]["qilcm"] == "QILCM"
    assert report["details"]["movement"]["irrelevant"]["mean"] is not None, "what the second stage does is told"


def test_auto_is_the_first_stage_in_the_service_and_the_library(harmful):
    rng = np.random.default_rng(5)
    matrix = rng.random((LENGTH, 3)).astype(np.float32)
    reranker = bundle.load(harmful).reranker
    by_first = reranker.rerank(CandidateList(matrix), strategy="first_stage").order.tolist()
    assert by_first == np.argsort(-matrix[:, 0], kind="stable").tolist()
    second = reranker.rerank(CandidateList(matrix), strategy="qilcm").order.tolist()
    assert second != by_first
    with asking(create_app(Settings(bundle=harmful))) as client:
        assert client.get("/info").json()["default_strategy"] == "first_stage"
        body = {"features": matrix.astype(float).tolist()}
        auto = client.post("/rerank", json=body).json()
        named = client.post("/rerank", json=body | {"strategy": "qilcm"}).json()
    assert [result["index"] for result in auto["results"]] == by_first
    assert (auto["meta"]["status"], auto["route"]["strategy"]) == ("ok", "first_stage")
    assert [result["index"] for result in named["results"]] == second
    scores = training.Qilcm.load(harmful).predict(matrix, np.zeros(LENGTH))
    assert np.argsort(-scores, kind="stable").tolist() == by_first
    assert ndcg(scores, (np.arange(LENGTH) == by_first[0]).astype(int), cutoff=1) == 1.0


def test_the_test_split_takes_nothing_away(recipe, tmp_path):
    """On the validation queries, where the network stopped, it gains; on the test queries it harms."""
    parts = {"train": 2, "valid": 2, "test": 1}
    sources = [f"{name}={written(tmp_path / f'{name}.txt', right=right)}" for name, right in parts.items()]
    out = fitted(recipe, sources, tmp_path / "harmful" / "1")
    manifest = bundle.load(out).manifest
    assert (manifest.strategy, manifest.default_reason) == ("qilcm", None)
    report = json.loads((out / "report.json").read_text())
    assert report["gain_over_first_stage"]["verdict"] == "harm"
    assert "Serve the first stage" in (out / "report.html").read_text()


UNSEEN = ("not used for fitting", "held-out", "held out", "unseen")


def test_a_first_stage_that_was_brought_along_may_know_the_test_queries(harmful, recipe, sources, tmp_path, capsys):
    page = (harmful / "report.html").read_text()
    for claim in UNSEEN:
        assert claim not in page, claim
        assert claim not in (harmful / "report.json").read_text(), claim
    assert "which the given first stage may have been fitted on" in page
    assert "are valid only for queries that it was not fitted on" in page
    fitted(recipe, sources, tmp_path / "harmful" / "1")
    printed = printed_text(capsys)
    assert "are valid only for queries that it was not fitted on" in printed
    assert all(claim not in printed for claim in UNSEEN)


def test_so_may_a_model_file(sources, tmp_path):
    own = RECIPE.replace('kind = "column"\ncolumn = "f1"', 'kind = "lambdamart"\ntrials = 1\nmax_trees = 5\nfolds = 2')
    (tmp_path / "own.toml").write_text(own.replace("max_epochs = 15", "max_epochs = 1"))
    mine = fitted(tmp_path / "own.toml", sources, tmp_path / "own" / "1")
    assert "not used for fitting or tuning" in (mine / "report.html").read_text(), "it was fitted here"
    assert "held-out result" in (mine / "report.html").read_text()
    given = fitted(
        tmp_path / "own.toml", sources, tmp_path / "given" / "1", "--first-stage", str(mine / "first_stage.txt")
    )
    page = (given / "report.html").read_text()
    assert all(claim not in page for claim in UNSEEN)
    assert "which the given first stage may have been fitted on" in page
