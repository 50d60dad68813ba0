"""``training.Qilcm`` fitted: the bundle that the command line would have written, and a ranker for scikit-learn."""

import json
import pickle

import numpy as np
import polars as pl
import pytest

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError, RecipeError, SchemaMismatchError, ScoringError
from listwright.ranking.metrics import ndcg
from listwright.ranking.order import rank_by_score
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.training.commands import fit
from support.one_list import measure
from support.service.asgi import asking
from support.training.searches import LENGTH, SMALL, features

pytestmark = pytest.mark.nightly

RECIPE = """
name = "library"
about = "x"
minutes = 0
[data]
kind = "table"
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = 5
folds = 2
[model]
kind = "qilcm"
encoder_width = 4
hidden = [4]
max_epochs = 2
cutoff = 4
"""


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    return model.save(tmp_path_factory.mktemp("models") / "shop" / "7")


def test_command_line_and_library_write_the_same_bundle(frame, saved, tmp_path):
    rows, recipe, out = tmp_path / "rows.parquet", tmp_path / "own.toml", tmp_path / "shop" / "7"
    pl.DataFrame(frame.to_dict("list")).write_parquet(rows)
    recipe.write_text(RECIPE)
    columns = ("--qid", "search", "--label", "clicked", "--categorical", "stops")
    assert fit.main([str(recipe), "--data", str(rows), *columns, "--model", "qilcm", "--out", str(out)]) == 0
    ours, theirs = bundle.load(saved).manifest, bundle.load(out).manifest
    for name in ("first_stage.txt", "qilcm.onnx", "golden.jsonl"):
        assert (saved / name).read_bytes() == (out / name).read_bytes()
    assert ours.metrics == theirs.metrics
    assert ours.fingerprint == theirs.fingerprint
    assert {file.name for file in ours.files} == {file.name for file in theirs.files}


def test_scores_order_every_query_as_the_service_would(frame, model, saved):
    scores = model.predict(features(frame), frame["search"])
    assert np.isfinite(scores).all()
    reranker = bundle.load(saved).reranker
    codes = np.column_stack([frame["price"], frame["carrier"].map({"x": 1, "y": 2}), frame["stops"] + 1])
    for search in ("s0", "s1", "s39"):
        rows = np.flatnonzero(frame["search"] == search)
        assert len(rows) == LENGTH > model.cutoff, "two of them are below the cutoff"
        ranking = reranker.rerank(CandidateList(codes[rows].astype(np.float32)))
        assert rank_by_score(scores[rows]).tolist() == ranking.order.tolist()


def test_a_score_belongs_to_its_row(frame, model):
    scores = model.predict(features(frame), frame["search"])
    picked = frame.sort_values("search", kind="stable")
    order = np.argsort(frame["search"].to_numpy(), kind="stable")
    assert model.predict(features(picked), picked["search"]) == pytest.approx(scores[order])
    as_polars = pl.DataFrame(features(frame).to_dict("list"))
    assert model.predict(as_polars, frame["search"].to_list()).tolist() == scores.tolist()


def test_score_is_the_mean_ndcg(frame, model):
    scores = model.predict(features(frame), frame["search"])
    labels, searches = frame["clicked"].to_numpy(), frame["search"].to_numpy()
    values = [ndcg(scores[searches == s], labels[searches == s], cutoff=10) for s in np.unique(searches)]
    asked = features(frame), frame["clicked"], frame["search"]
    assert model.score(*asked) == pytest.approx(np.mean(np.nan_to_num(values)))
    for name in ("map", "err@5"):
        values = [measure(name, scores[searches == s], labels[searches == s]) for s in np.unique(searches)]
        assert model.score(*asked, metric=name) == pytest.approx(np.mean(values))
    with pytest.raises(RecipeError, match="metric 'auc': expected ndcg@K"):
        model.score(*asked, metric="auc")


def test_a_leak_is_pointed_out_in_the_report(frame, model):
    assert model.report_["notes"] == []
    place = frame.groupby("search", sort=False).cumcount()
    leaking = training.Qilcm(**SMALL, model="first_stage").fit(
        features(frame).assign(place=place), frame["clicked"], frame["search"]
    )
    (note,) = leaking.report_["notes"]
    assert note.startswith("'place' counts the candidates in row order in 24 of 24 training lists")
    assert note.endswith("leave it out of X")


def test_the_saved_bundle_knows_its_name(saved):
    manifest = bundle.load(saved).manifest
    assert (manifest.name, manifest.version) == ("shop", "7")
    repeat = json.loads((saved / "report.json").read_text())["repeat"]
    assert repeat["bundle"] == "shop/7"
    assert repeat["command"].startswith("Qilcm(")
    assert "shop/7" in (saved / "report.html").read_text()
    assert sorted(path.name for path in saved.parent.iterdir()) == ["7"], "nothing is left beside it"


def test_the_service_serves_it(saved):
    with asking(create_app(Settings(bundle=saved))) as client:
        cheap = {"id": "a", "features": {"price": -1.0, "carrier": "y", "stops": "0"}}
        good = {"id": "b", "features": {"price": 3.0, "carrier": "x", "stops": "1"}}
        answer = client.post("/rerank", json={"candidates": [cheap, good], "strategy": "qilcm"})
    assert answer.status_code == 200
    assert answer.json()["meta"]["stage_reached"] == "second_stage"


def test_a_bundle_of_the_command_line_is_loaded_with_its_parameters(fitted):
    model = training.Qilcm.load(fitted)
    assert (model.model, model.cutoff, model.hidden, model.max_trees, model.parts) == ("auto", 6, (8,), 20, 5)
    assert model.predict([[1.0, 2.0, 3.0, 4.0, "v1"]], ["only"]).shape == (1,)


@pytest.mark.parametrize(
    ("place", "error", "says"),
    [
        ("shop/7", BundleError, "exists already: a published version never changes; choose another path"),
        ("my shop/1", RecipeError, "'my shop' cannot be a bundle's name"),
    ],
)
def test_what_cannot_be_saved_leaves_nothing(model, saved, place, error, says):
    models = saved.parent.parent
    with pytest.raises(error, match=says):
        model.save(models / place)
    assert sorted(path.name for path in saved.parent.iterdir()) == ["7"]


def test_a_frame_may_lack_a_feature_that_has_a_default(frame, model, tmp_path):
    parameters = SMALL | {"categorical": ("stops",), "defaults": {"price": 0.5, "stops": 2}}
    ours = training.Qilcm(**parameters).fit(features(frame), frame["clicked"], frame["search"])
    searches = frame["search"]
    assert ours.predict(features(frame), searches).tolist() == model.predict(features(frame), searches).tolist()
    filled = ours.predict(frame.assign(price=0.5, stops=2)[["price", "carrier", "stops"]], searches)
    assert filled.tolist() != ours.predict(features(frame), searches).tolist()
    again = training.Qilcm.load(ours.save(tmp_path / "shop" / "1"))
    pickled = pickle.loads(pickle.dumps(ours))
    assert again.get_params() == pickled.get_params() == ours.get_params()
    for one in (ours, again, pickled):
        assert one.predict(frame[["carrier"]], searches).tolist() == filled.tolist()
        with pytest.raises(SchemaMismatchError, match="X lacks carrier"):
            one.predict(frame[["price"]], searches)


def test_a_fitted_model_explains_itself(frame, model):
    """The folder of its bundle is gone; the trees are in memory."""
    listed = CandidateList(np.array([[0.2, 1, 1], [0.9, 2, 2], [0.5, 1, 1]], dtype=np.float32))
    found = model.reranker_.explain(listed, 0).first_stage
    assert (found.ranker, found.exact) == ("lightgbm", True)
    assert sum(one.contribution for one in found.contributions) == pytest.approx(found.score - found.reference_score)
    assert found.score != found.reference_score


def test_an_answer_of_an_earlier_stage_is_no_answer(frame, model, monkeypatch):
    def fail(_inputs):
        raise ScoringError("the graph gave nan")

    monkeypatch.setattr(model.reranker_, "default_strategy", "qilcm")
    monkeypatch.setattr(model.reranker_.second_pass.networks["qilcm"], "score", fail)
    with pytest.raises(ScoringError, match=r"query s\d+: the graph gave nan"):
        model.predict(features(frame), frame["search"])
