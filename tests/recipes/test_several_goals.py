"""Fits for several goals: what the bundle serves, with which weights, and that runs repeat."""

import io
import json

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import RecipeError
from listwright.training.commands import fit
from listwright.training.evaluation.protocol import evaluate, goal_lists
from listwright.training.pipeline import goals, run
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.options import with_goals
from listwright.training.reporting.fit_page import fit_page
from support.training.suites import printed_text
from support.training.tiny import TINY

pytestmark = pytest.mark.nightly

HEAD, REST = TINY.split("[data]")[0], TINY.split("[first_stage]")[1]
RECIPE = f'{HEAD}[data]\nkind = "table"\nqid = "q"\nlabel = "booked"\n[first_stage]{REST}'
QUERIES, LENGTH = 150, 8


@pytest.fixture(scope="module")
def frame():
    """Lists in which what is booked is cheap, and what is cheap has little margin."""
    rng = np.random.default_rng(0)
    rows = QUERIES * LENGTH
    quality, price, plain = rng.normal(size=(3, rows)).round(3)
    chance = 1.0 / (1.0 + np.exp(1.0 - 1.5 * quality + 1.5 * price))
    return pl.DataFrame(
        {
            "q": np.arange(rows) // LENGTH,
            "booked": (rng.random(rows) < chance).astype(int),
            "quality": quality,
            "price": price,
            "plain": plain,
            "margin": np.exp(price + 0.3 * rng.normal(size=rows)).round(4),
            "eco": np.maximum(0.0, plain).round(4),
        }
    )


@pytest.fixture(scope="module")
def table(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    frame.write_csv(path)
    return path


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(RECIPE)
    return config.load(str(path))


def fitted(recipe, table, out, *texts, cost=None, budget=None, **more):
    text = io.StringIO()
    run.run(
        with_goals(recipe, texts, cost),
        [str(table)],
        out,
        budget=budget or Budget(0.0),
        console=Console(file=text, width=200),
        **more,
    )
    return bundle.load(out), text.getvalue()


@pytest.fixture(scope="module")
def first(recipe, table, tmp_path_factory):
    """A bundle with a network, a second goal by cost, and a third by its least ratio."""
    out = tmp_path_factory.mktemp("models") / "shop" / "1"
    return fitted(recipe, table, out, "margin", "eco>=1.1", cost=0.1)


def contents(out):
    """What a bundle ranks with, and its answers and weights, to the bit."""
    names = ("first_stage.txt", "goal_1.txt", "golden.jsonl")
    stage = bundle.load(out).manifest.goals
    return {name: (out / name).read_bytes() for name in names} | {"goals": stage}


def served(loaded, data, weights):
    """NDCG@10 by each goal of lists as the bundle ranks them."""
    keys = np.empty(data.rows)
    for n, (features, _) in enumerate(data.lists()):
        keys[data.slice(n)] = loaded.reranker.rerank(CandidateList(features), weights=weights).sort_keys
    values = [data.labels.astype(float), *data.goals.values()]
    return [np.nan_to_num(goal_lists(v, data.offsets).measure(("ndcg@10",), keys)["ndcg@10"]).mean() for v in values]


def test_what_is_served_with_weights_is_on_the_front(first, table):
    loaded, _ = first
    stage = loaded.manifest.goals
    splits = load(config.of(loaded.manifest.recipe, ""), [str(table)])
    default = [1.0, *(goal.weight for goal in stage.others)]
    assert stage.names == ("booked", "margin", "eco")
    assert default[1] > 0.0
    assert default[2] > 0.0
    assert set(stage.spreads) == {"first_stage", "qilcm"}
    for point in (stage.front[0], stage.front[len(stage.front) // 2], stage.front[-1]):
        weights = dict(zip(stage.names, point.weights, strict=True))
        assert served(loaded, splits.valid, weights) == pytest.approx(point.valid, abs=1e-9)
        assert served(loaded, splits.test, weights) == pytest.approx(point.test, abs=1e-9)
    answered = next(point for point in stage.front if list(point.weights) == default)
    assert served(loaded, splits.test, None) == pytest.approx(answered.test, abs=1e-9)
    alone = stage.front[0]
    assert answered.valid[2] >= 1.1 * alone.valid[2]
    assert answered.valid[1] > alone.valid[1]


def test_all_other_figures_are_of_the_label_alone(first, recipe, table, tmp_path):
    loaded, _ = first
    manifest = loaded.manifest
    headline = {metric.ranker: metric.mean for metric in manifest.metrics if metric.name == "ndcg@10"}
    assert headline[manifest.strategy] == pytest.approx(manifest.goals.front[0].test[0], abs=1e-9)
    out = tmp_path / "shop" / "1"
    alone, _ = fitted(recipe.model_copy(update={"data": ignoring(recipe)}), table, out)
    assert alone.manifest.metrics == manifest.metrics
    assert alone.manifest.temperatures == manifest.temperatures
    assert alone.manifest.probability == manifest.probability
    assert alone.manifest.goals is None
    assert not list(out.glob("goal*"))
    assert (out / "first_stage.txt").read_bytes() == (loaded.path / "first_stage.txt").read_bytes()
    assert (out / "golden.jsonl").read_bytes() != (loaded.path / "golden.jsonl").read_bytes()


def ignoring(recipe):
    return recipe.data.model_copy(update={"ignore": ("margin", "eco")})


def test_the_page_has_every_point(first):
    loaded, _ = first
    report = json.loads((loaded.path / "report.json").read_text())
    front = loaded.manifest.goals.front
    assert report["details"]["goals"]["front"] == [point.model_dump(mode="json") for point in front]
    page = fit_page(report)
    assert page.count("<title>{") == 2 * len(front)
    assert f"{front[-1].test[2]:.4f}" in page


def test_an_interrupted_run_fits_no_goal_twice(recipe, table, tmp_path, monkeypatch):
    whole = tmp_path / "shop" / "1"
    fitted(recipe, table, whole, "margin")

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    out = tmp_path / "shop" / "2"
    monkeypatch.setattr(run, "write_bundle", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, table, out, "margin")
    monkeypatch.undo()
    monkeypatch.setattr(goals, "tune", interrupt)
    fitted(recipe, table, out, "margin", resume=True)
    assert contents(out) == contents(whole)


def test_a_bounded_fit_is_replayed_to_the_bit(recipe, table, tmp_path):
    fitted(recipe, table, tmp_path / "shop" / "1", "margin", budget=Budget(1.0))
    report = json.loads((tmp_path / "shop" / "1" / "report.json").read_text())
    fitted(recipe, table, tmp_path / "shop" / "2", "margin", budget=Budget(replay=report["budget"]))
    assert contents(tmp_path / "shop" / "2") == contents(tmp_path / "shop" / "1")
    fitted(recipe, table, tmp_path / "shop" / "3", "margin", budget=Budget(1e-6))
    assert contents(tmp_path / "shop" / "3")["goal_1.txt"], "a goal that was asked for is there, whatever the time"


def test_rows_on_disk_give_the_same(recipe, table, tmp_path):
    fitted(recipe, table, tmp_path / "shop" / "1", "margin")
    fitted(recipe, table, tmp_path / "shop" / "2", "margin", shards="always")
    assert contents(tmp_path / "shop" / "2") == contents(tmp_path / "shop" / "1")


def test_a_goal_equal_to_the_label_costs_nothing(recipe, frame, tmp_path):
    path = tmp_path / "rows.csv"
    frame.with_columns(margin=pl.col("booked")).write_csv(path)
    loaded, _ = fitted(recipe, path, tmp_path / "shop" / "1", "margin", cost=0.05)
    for point in loaded.manifest.goals.front:
        assert point.valid[0] == pytest.approx(point.valid[1], abs=1e-9)


def test_weighted_rows_and_given_scores(recipe, frame, tmp_path):
    path = tmp_path / "rows.csv"
    weight = np.repeat(np.arange(QUERIES) % 3, LENGTH)
    frame.with_columns(w=pl.Series(weight), score=pl.col("quality") - pl.col("price")).write_csv(path)
    given = config.of(
        {
            **recipe.model_dump(),
            "data": {**recipe.data.model_dump(), "weight": "w"},
            "first_stage": {"kind": "column", "column": "score"},
            "model": {"kind": "first_stage"},
        },
        "",
    )
    loaded, _ = fitted(given, path, tmp_path / "shop" / "1", "margin=0.5")
    stage = loaded.manifest.goals
    assert stage.default_weights == {"booked": 1.0, "margin": 0.5}
    splits = load(config.of(loaded.manifest.recipe, ""), [str(path)])
    test = evaluate(bundle.open_unsealed(loaded.path, loaded.manifest.model_copy(update={"goals": None})), splits.test)
    assert stage.front[0].test[0] == pytest.approx(test.mean("ndcg@10", "first_stage"), abs=1e-9)
    assert stage.front[-1].test[1] > stage.front[0].test[1]


def test_a_ratio_out_of_reach_publishes_nothing(recipe, table, tmp_path):
    out = tmp_path / "shop" / "1"
    with pytest.raises(RecipeError, match=r"margin>=9: .*closest ratio is 1\.\d"):
        fitted(recipe, table, out, "margin>=9")
    assert not out.exists()


def test_the_command_line_fits_goals(table, tmp_path, capsys):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    out = tmp_path / "shop" / "1"
    options = ["--goal", "margin=0.3", "--goal", "eco", "--cost", "0.02", "--model", "first_stage"]
    assert fit.main([str(path), "--data", str(table), *options, "--out", str(out)]) == 0
    recipe = bundle.load(out).manifest.recipe
    assert recipe["data"]["goals"] == ["margin", "eco"]
    assert recipe["goals"] == {"weights": {"margin": 0.3}, "ratios": {}, "cost": 0.02}
    assert "Goal margin: weight 0.3," in printed_text(capsys)
