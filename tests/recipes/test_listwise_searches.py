"""What the fits of a suite share: first stages, settings that are found once, and rows that come later."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import polars as pl
import pytest

from listwright.training import cluster
from listwright.training.first_stage import lambdamart
from listwright.training.recipe import config
from listwright.training.recipe.model import FirstStageAlone, MlpSpec
from listwright_lab.suites.listwise import measurement, suite
from listwright_lab.suites.listwise.measurement import MethodFit
from listwright_lab.suites.listwise.methods import Shipped
from listwright_lab.suites.results_folder import ResultsFolder
from support.training.suites import TABLE2, run

pytestmark = pytest.mark.nightly


def test_more_rows_join_those_that_are_there(tiny_recipe, tmp_path, here):
    out = tmp_path / "table2"
    command = ("table2", "--recipe", tiny_recipe, "--out", out, "--seeds", 1, "--methods")
    assert run(*command, "shipped") == 0
    unit = "shift-0.5-seed-0-fold-1-"
    assert here == [f"{unit}lambdamart", "tuning", f"{unit}shipped", "tuning"]
    (chosen,) = pl.read_parquet(out / "results.parquet")["chosen"].drop_nulls().unique()
    assert chosen in TABLE2

    kept = out / "state" / "shift-0.5-seed-0-fold-1" / "plain_tuned.json"
    before = kept.stat().st_mtime_ns
    here.clear()
    assert run(*command, "mlp,shipped") == 0
    assert here == [f"{unit}mlp"]
    assert kept.stat().st_mtime_ns == before, "its first stage is not fitted again"
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["methods"]) == ["lambdamart", "mlp", "shipped"]
    assert summary["methods"]["shipped"]["chosen"] == {chosen: 1}
    assert run(*command[:-1]) == 0
    assert not list((out / "state").iterdir()), "with all rows there, nothing can ask for it"


def test_every_network_is_searched_once_per_fold_and_begins_with_its_defaults(tiny_recipe, tmp_path, here, monkeypatch):
    searched, firsts = measurement.search_network, []

    def kept(model, *data, **more):
        firsts.append((model, more["trials"], more["seed"]))
        return searched(model, *data, **more)

    monkeypatch.setattr(measurement, "search_network", kept)
    out = tmp_path / "table2"
    command = ("table2", "--recipe", tiny_recipe, "--out", out, "--seeds", 2, "--methods", "mlp,qilcm+relative,shipped")
    assert run(*command, "--tune", 2, "--folds", "1,2") == 0
    asked = sorted((type(model).__name__, trials, seed) for model, trials, seed in firsts)
    assert asked == [("MlpSpec", 2, 0)] * 2 + [("QilcmSpec", 2, 0)] * 2
    assert [model.hidden for model, _, _ in firsts] == [(256, 128)] * 4, "the recipe's (8,) may have been found here"
    assert {model.cutoff for model, _, _ in firsts} == {6}
    assert here.count("tuning") == 4, "LightGBM with and without list-relative columns, in two folds"
    found = {path.stem: json.loads(path.read_text()) for path in (out / "tuned").glob("*.json")}
    assert set(found) == {
        f"shift-0.5-fold-{fold}-{name}"
        for fold in (1, 2)
        for name in ("lambdamart", "lambdamart+relative", "mlp", "qilcm+relative", "shipped")
    }
    for fold in (1, 2):
        choice = found[f"shift-0.5-fold-{fold}-shipped"]
        assert [one["ranker"] for one in choice["comparisons"]] == ["relative", "qilcm", "qilcm2"]
    shipped = pl.read_parquet(out / "results.parquet").filter(pl.col("method") == "shipped")
    assert shipped.select("fold", "seed", "chosen").unique().height == 4
    assert shipped.select("fold", "chosen").unique().height == 2, "the first seed of a fold chooses for all"
    assert set(found["shift-0.5-fold-2-mlp"]) >= {"learning_rate", "hidden", "dropout"}
    page = (out / "page.html").read_text()
    assert "2 settings tried per fold on its own validation queries" in page
    here.clear()
    assert run(*command, "--tune", 2, "--folds", "1,2") == 0
    assert here == []
    assert run(*command, "--tune", 3, "--folds", "1,2") == 1, "results of another protocol are not mixed in"


def test_settings_are_searched_once_though_two_seeds_could_start(tiny_recipe, tmp_path, monkeypatch):
    search, searches = lambdamart.search_settings, []

    @contextmanager
    def pool(jobs):
        with ThreadPoolExecutor(jobs) as side_by_side:
            yield side_by_side

    def counted(train, valid, spec, **more):
        searches.extend([spec.trials] if spec.trials > 1 else [])
        return search(train, valid, spec, **more)

    monkeypatch.setattr(cluster, "pool", pool)
    monkeypatch.setattr(lambdamart, "search_settings", counted)
    assert (
        run("table3", "--recipe", tiny_recipe, "--seeds", 3, "--shifts", "0", "--jobs", 3, "--out", tmp_path / "x") == 0
    )
    assert searches == [2]


def test_the_first_seed_searches_even_if_another_could_sooner(tiny_recipe, tmp_path):
    """Or what is found would depend on which process was faster."""
    specs = {"lambdamart": FirstStageAlone(), "mlp": MlpSpec()}
    fits = [
        MethodFit(config.load(str(tiny_recipe)), (), seed, name, spec, cutoff=6, trials=2)
        for seed in (0, 1)
        for name, spec in specs.items()
    ]
    with ResultsFolder(tmp_path / "x", {}) as store:
        makers = suite._makers(fits, store)
        assert suite._next(fits, makers, {}, store) is fits[0]
        assert suite._next(fits[1:], makers, {}, store) is None
        done = {made: maker for made, maker in makers.items() if maker not in (fits[0].name, fits[2].name)}
        assert suite._next([fits[3]], done, {}, store) is None, "its first stage is there, seed 0's search is not"
        assert suite._next([fits[1], fits[3]], done, {}, store) is fits[1]
        assert suite._next([fits[3]], {}, {}, store) is fits[3]
        shipped = MethodFit(fits[0].recipe, (), 0, "shipped", Shipped((MlpSpec(),), folds=2), cutoff=6)
        assert suite._next([shipped], {}, {shipped.state_name: 2}, store) is None, (
            "another method of its seed and fold is under way"
        )
        assert suite._next([shipped], {}, {shipped.state_name: 1}, store) is shipped
