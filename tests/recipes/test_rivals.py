"""Every model that a recipe may name: fitted, exported, sealed, loaded, measured and served, as QILCM is."""

import json
import re

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import RecipeError
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.training.commands import fit
from listwright.training.data.load import load
from listwright.training.evaluation.protocol import evaluate
from listwright.training.first_stage import fit as first_stage
from listwright.training.pipeline.run import write_bundle
from listwright.training.pipeline.steps import Fitted
from listwright.training.recipe import config
from listwright.training.recipe.config import GivenColumn, Recipe
from listwright.training.recipe.model import MODEL_NAMES, DcmSpec, DlcmSpec, MlpSpec, Qilcm2Spec, QilcmSpec, model_like
from listwright.training.second_stage import fit as second_stage
from listwright_lab.suites.listwise import methods
from support.service.asgi import asking

pytestmark = pytest.mark.nightly

STRATEGIES = {"qilcm-v1": "qilcm", "qilcm-v2": "qilcm", "qilcm-v3": "qilcm", "qilcm-paper": "qilcm"}


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    """Recipe, data and first stage, which all rivals share."""
    tiny = config.load(str(recipe))
    splits = load(tiny, [])
    first = first_stage.fit(tiny.first_stage, splits, seed=0, state=tmp_path_factory.mktemp("state"))
    return tiny, splits, first


@pytest.mark.parametrize("name", [name for name in MODEL_NAMES if name != "qilcm"])  # which test_fit.py fits
def test_fit_seal_load_measure_serve(run, tmp_path, name):
    tiny, splits, first = run
    strategy = STRATEGIES.get(name, name)
    model = model_like(name, tiny.model)
    if name != "first_stage":
        model = model.model_copy(update={"max_epochs": 2})
    fitted = second_stage.fit(model, splits, first, seed=0)
    folder, out = tmp_path / "writing", tmp_path / "rival" / "1"
    folder.mkdir()
    networks = [] if fitted is None else [fitted]
    write_bundle(folder, out, config.changed(tiny, {"model": model}), splits, Fitted(first, networks=networks))
    bundle.publish(folder, out)

    loaded = bundle.load(out)
    assert loaded.manifest.recipe["model"]["kind"] == strategy
    assert set(loaded.manifest.strategies) == {strategy, "first_stage"}
    assert loaded.manifest.strategy in (strategy, "first_stage"), "two epochs may be too few"
    evaluation = evaluate(loaded.reranker, splits.test)
    assert evaluation.generalist == strategy
    assert set(evaluation.rankers) == {"input_order", "first_stage", strategy}
    assert np.isfinite(evaluation.gain("ndcg@10", strategy, "first_stage")).all()

    features = splits.test.features[splits.test.slice(0)]
    expected = loaded.reranker.rerank(CandidateList(features), strategy=strategy)
    with asking(create_app(Settings(bundle=out))) as client:
        by_name = [dict(zip(loaded.reranker.schema.names, row, strict=True)) for row in _sent(loaded, features)]
        body = {
            "candidates": [{"features": row} for row in by_name],
            "raw_scores": True,
            "finite_scores": False,
            "strategy": strategy,
        }
        answer = client.post("/rerank", json=body).json()
        assert answer["route"]["strategy"] == strategy
        assert answer["meta"]["status"] == "ok"
        found = [np.nan if score is None else score for score in answer["scores"]]
        assert found == pytest.approx(expected.scores.tolist(), nan_ok=True)
        assert [result["index"] for result in answer["results"]] == expected.order.tolist()
        other = "mlp" if strategy != "mlp" else "dlcm"
        assert client.post("/rerank", json=body | {"strategy": other}).status_code == 404
        assert client.get("/info").json()["cutoff"] == (None if name == "first_stage" else 6)


def _sent(loaded, features):
    """Feature rows as a request has them: names of categories, null for what is missing."""
    columns = loaded.reranker.schema.features
    for row in features.tolist():
        yield [
            None if np.isnan(value) else value if column.kind == "numeric" else column.categories[int(value) - 1]
            for column, value in zip(columns, row, strict=True)
        ]


def test_a_rival_from_the_command_line(recipe, tmp_path, capsys):
    out = tmp_path / "rival" / "1"
    assert fit.main([str(recipe), "--model", "dlcm", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"DLCM over LightGBM( \+ relative)?, NDCG@10", said)
    report = json.loads((out / "report.json").read_text())
    assert report["model"]["kind"] == "dlcm"
    assert {metric["ranker"] for metric in report["metrics"]} - {"plain_first_stage"} == {
        "input_order",
        "first_stage",
        "dlcm",
    }


def test_the_first_stage_alone_from_the_command_line(recipe, tmp_path, capsys):
    out = tmp_path / "rival" / "1"
    assert fit.main([str(recipe), "--model", "first_stage", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "over LightGBM" not in said
    assert bundle.load(out).manifest.second_stage is None
    assert [file.name for file in out.glob("*.onnx")] == ["anomaly.onnx"]


@pytest.mark.parametrize("name", ["dlcm", "qilcm2"])
def test_scores_in_the_data_are_found_where_they_stand(run, tmp_path, name):
    """A first stage that is a feature is not appended, and still gives the order and what QILCM2 adds to."""
    tiny, splits, _ = run
    column = next(feature.name for feature in splits.train.schema.features if not feature.missing_in_training)
    given = config.changed(tiny, {"first_stage": GivenColumn(column=column), "model": model_like(name, tiny.model)})
    first = first_stage.fit(given.first_stage, splits, seed=0, state=tmp_path)
    model = given.model.model_copy(update={"max_epochs": 1})
    fitted = second_stage.fit(model, splits, first, seed=0)
    assert fitted.spec.first_stage_score is False
    assert fitted.module.score_column == splits.train.schema.index[column]
    (tmp_path / "writing").mkdir()
    manifest = write_bundle(
        tmp_path / "writing", tmp_path / "rival" / "1", given, splits, Fitted(first, networks=[fitted])
    )
    assert manifest.validated_lengths == (1, 2, 5, 6, 7, 12)


def test_a_rival_is_fitted_like_the_recipes_model():
    like = QilcmSpec(
        encoder_width=7, hidden=(3,), cutoff=9, learning_rate=0.5, rank_loss="softmax", confusion_weight=0.2
    )
    v2 = model_like("qilcm-v2", like)
    assert v2 == like.model_copy(update={"variant": "V2"})
    assert (v2.confusion, model_like("qilcm-v3", like).confusion, model_like("qilcm-v1", like).confusion) == (
        0.0,
        0.0,
        0.2,
    )
    assert (v2.title, like.title) == ("QILCM V2", "QILCM")
    assert model_like("mlp", like) == MlpSpec(
        encoder_width=7, hidden=(3,), cutoff=9, learning_rate=0.5, rank_loss="softmax"
    )
    assert model_like("dlcm", like) == DlcmSpec(encoder_width=7, cutoff=9, learning_rate=0.5, rank_loss="softmax")
    assert model_like("dlcm", Qilcm2Spec(heads=2)).heads == 3, "heads of another kind are other heads"
    assert model_like("dcm", DcmSpec(state_width=5)).state_width == 5
    two = model_like("qilcm2", like)
    assert two == Qilcm2Spec(encoder_width=7, hidden=(3,), cutoff=9, learning_rate=0.5, rank_loss="softmax")
    assert (two.relative, two.dropout) == (True, 0.3), "what the recipe does not say is not the paper's 0"
    assert model_like("qilcm", Qilcm2Spec()) == QilcmSpec(), "the paper's model keeps the paper's values"
    assert model_like("qilcm", model_like("first_stage", like)) == QilcmSpec()
    assert model_like("dcm", QilcmSpec(first_stage_score=False)).order == "presented"


def test_a_rival_that_has_settings_of_its_own_is_fitted_as_they_say(run):
    tiny = run[0]
    seen = {"cutoff": tiny.model.cutoff}
    own = {"qilcm": {"learning_rate": 0.5, **seen}, "dlcm": {"learning_rate": 0.25, "heads": 2, **seen}}
    recipe = config.changed(tiny, {"rivals": own})
    assert recipe.model_named("dlcm") == DlcmSpec(learning_rate=0.25, heads=2, **seen)
    assert recipe.model_named("mlp") == model_like("mlp", tiny.model)
    assert recipe.model_named("qilcm") == tiny.model, "[model] says what a qilcm is where it is one"
    other = config.changed(recipe, {"model": recipe.model_named("dlcm")})
    assert (other.model_named("qilcm").learning_rate, other.model_named("qilcm-v3").variant) == (0.5, "V3")
    assert methods.select_methods("table2", recipe)["dlcm"].spec.heads == 2


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"dlcm": {"cutoff": 7}}, r"rivals\.dlcm\.cutoff = 7, but model\.cutoff = 100"),
        ({"mlp": {"first_stage_score": False}}, r"rivals\.mlp\.first_stage_score = False, but .* the same candidates"),
        ({"mlp": {"heads": 3}}, r"rivals\.mlp\.heads: there is no such field"),
        ({"gru": {}}, r"rivals\.gru: there is no such field"),
        ({"dcm": {"kind": "mlp"}}, r"rivals\.dcm\.kind: Input should be 'dcm'"),
    ],
)
def test_a_rivals_settings_that_do_not_fit_are_named(run, own, says):
    tiny = run[0]
    model = tiny.model.model_copy(update={"cutoff": 100})
    with pytest.raises(RecipeError, match=says):
        config.changed(tiny, {"model": model, "rivals": own})


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"kind": "nonesuch"}, "model: there is no kind 'nonesuch', use one of 'qilcm', 'qilcm2', 'dlcm'"),
        ({"cutoff": 5}, "model: says no kind"),
        ({"kind": "mlp", "confusion_weight": 0.1}, "model.confusion_weight: there is no such field"),
        ({"kind": "dlcm", "first_stage_score": False}, 'order = "first_stage" needs first_stage_score = true'),
        ({"kind": "qilcm", "variant": "V4"}, "model.variant"),
    ],
)
def test_a_model_that_does_not_exist_is_refused_with_its_place(recipe, model, says):
    with pytest.raises(RecipeError) as error:
        config.changed(config.load(str(recipe)), {"model": model})
    assert says in str(error.value)


def test_a_router_needs_something_to_abstain_to(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fit.main(["planted", "--model", "first_stage"]) == 1
    assert "a [router] needs a second stage to abstain to" in " ".join(capsys.readouterr().out.split())
    assert fit.main(["demo", "--model", "nonesuch"]) == 1
    assert "no model 'nonesuch': use one of qilcm, qilcm-v1" in " ".join(capsys.readouterr().out.split())


def test_qilcm_as_printed_takes_only_what_the_paper_leaves_open():
    like = QilcmSpec(
        encoder_width=8, hidden=(4,), variant="V2", dropout=0.5, confusion_weight=0.3, cutoff=7, patience=2
    )
    like = like.model_copy(update={"confusion_pairs": 9, "batch_size": 3, "learning_rate": 0.5, "max_epochs": 1})
    open_in_print = {"confusion_weight": 0.3, "cutoff": 7, "patience": 2}
    printed = {"query_norm": "paper", "rank_loss": "paper", "batches": "random", "first_stage_score": False}
    printed["confusion_pairs"] = "all"
    assert model_like("qilcm-paper", like) == QilcmSpec(**printed, **open_in_print)
    without = model_like("qilcm-paper", like.model_copy(update={"confusion_weight": 0.0}))
    assert without == QilcmSpec(**printed, cutoff=7, patience=2), "a recipe without the loss says nothing of its weight"
    assert model_like("qilcm-paper", MlpSpec(cutoff=7, patience=2)) == QilcmSpec(**printed, cutoff=7, patience=2)


def test_qilcm_as_printed_is_published_over_lists_of_equal_candidates(recipe, tmp_path, monkeypatch, capsys):
    """From the command line, on a table in which every third list repeats one candidate."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["search,clicked,price,stars"]
    for query in range(60):
        rows = rng.lognormal(size=(8, 2)).round(4)
        rows[:] = rows[:1] if query % 3 == 0 else rows
        lines += [f"q{query},{int(place == query % 8)},{price},{stars}" for place, (price, stars) in enumerate(rows)]
    (tmp_path / "shop.csv").write_text("\n".join(lines))
    text = (
        'about = "x"\n[data]\nkind = "table"\nqid = "search"\nlabel = "clicked"\n[first_stage]\nkind = "lambdamart"\n'
    )
    (tmp_path / "shop.toml").write_text(
        text + 'trials = 1\nmax_trees = 5\nfolds = 2\n[model]\nkind = "qilcm"\npatience = 1\n'
    )
    out = tmp_path / "shop" / "1"
    assert fit.main(["shop.toml", "--data", "shop.csv", "--model", "qilcm-paper", "--out", str(out)]) == 0
    model = bundle.load(out).manifest.recipe["model"]
    assert (model["query_norm"], model["rank_loss"], model["batches"]) == ("paper", "paper", "random")
    with pytest.raises(SystemExit):
        fit.main(["--help"])
    assert "qilcm-paper          QILCM as its paper prints it" in capsys.readouterr().out


def test_recipes_name_every_field(recipe):
    """A recipe that was written down reads back as itself, whatever its model."""
    tiny = config.load(str(recipe))
    for name in MODEL_NAMES:
        changed = config.changed(tiny, {"model": model_like(name, tiny.model)})
        assert Recipe.model_validate(changed.model_dump(mode="json")) == changed
