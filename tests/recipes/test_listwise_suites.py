"""The listwise suites from the command line on data of seconds: shared first stages, interruptions, workers that die."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import polars as pl
import psutil
import pytest

from ranking.errors import ScoringError
from tiny import TINY
from training import config, experiment, lambdamart
from training.experiments import tuned as suite_tuned
from training.experiments import workers
from training.experiments.fits import Fit
from training.experiments.plans import Shipped
from training.experiments.store import Store
from training.model_config import FirstStageAlone, Mlp

ONE_EPOCH = TINY.replace("max_epochs = 3", "max_epochs = 1")
TABLE2 = (
    "lambdamart",
    "lambdamart+relative",
    "dlcm",
    "dcm",
    "mlp",
    "qilcm",
    "qilcm2",
    "qilcm+relative",
    "qilcm2+relative",
    "shipped",
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(ONE_EPOCH)
    return path


@pytest.fixture
def here(monkeypatch):
    """The fits one after the other in this process, where tests can see them; counts what is fitted."""
    measured, tuned, searched, fits = workers.measured, lambdamart.search_settings, suite_tuned.search_network, []

    @contextmanager
    def pool(jobs):
        with ThreadPoolExecutor(1) as one:
            try:
                yield one
            finally:
                one.shutdown(cancel_futures=True)

    def counted(fit, *where):
        fits.append(fit.name)
        return measured(fit, *where)

    def counted_tuning(train, valid, spec, **more):
        fits.extend(["tuning"] if spec.trials > 1 else [])
        return tuned(train, valid, spec, **more)

    def counted_search(model, *data, **more):
        fits.append(f"search of {model.kind}")
        return searched(model, *data, **more)

    monkeypatch.setattr(workers, "pool", pool)
    monkeypatch.setattr(workers, "measured", counted)
    monkeypatch.setattr(lambdamart, "search_settings", counted_tuning)
    monkeypatch.setattr(suite_tuned, "search_network", counted_search)
    return fits


def run(*arguments):
    return experiment.main([str(argument) for argument in arguments])


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_table2_goes_on_after_an_interruption_and_with_more_seeds(recipe, tmp_path, here, monkeypatch, capsys):
    out = tmp_path / "table2"
    command = ("table2", "--recipe", recipe, "--out", out, "--seeds")
    whole = workers.measured

    def interrupted(fit, *where):
        if fit.method == "dcm":
            raise KeyboardInterrupt
        return whole(fit, *where)

    monkeypatch.setattr(workers, "measured", interrupted)
    assert run(*command, 1) == 130
    assert "the same command goes on" in said(capsys)
    before = {path.name: path.read_bytes() for path in (out / "parts").iterdir()}
    assert set(before) == {f"shift-0.5-seed-0-fold-1-{name}.parquet" for name in TABLE2[:3]}

    monkeypatch.setattr(workers, "measured", whole)
    here.clear()
    assert run(*command, 2) == 0
    first, second = ([f"shift-0.5-seed-{seed}-fold-1-{name}" for name in TABLE2] for seed in (0, 1))
    assert sorted(here) == sorted([*first[3:], *second]), "nothing twice, and settings are searched once for all seeds"
    assert here[-1].endswith("shipped"), "what takes over the results of others comes after them"
    assert before.items() <= {path.name: path.read_bytes() for path in (out / "parts").iterdir()}.items()
    assert not list((out / "state").iterdir()), "nothing is left of what is done"

    frame = pl.read_parquet(out / "results.parquet")
    assert frame.height == 2 * len(TABLE2) * 12
    assert set(frame["method"].unique()) == set(TABLE2)
    assert frame["ndcg@10"].null_count() == (frame["relevant"] == 0).sum()
    assert (frame["ndcg@10"] <= frame["ndcg@10 truncated"]).all(), "the truncated ideal knows fewer candidates"
    summary = json.loads((out / "summary.json").read_text())
    of_one = frame.filter((pl.col("method") == "dcm") & (pl.col("relevant") > 0))["ndcg@10"].sum() / 24
    assert summary["methods"]["dcm"]["means"]["ndcg@10"]["mean"] == pytest.approx(of_one)
    assert len(summary["comparisons"]) == 5 * 4
    by_method = {name: frame.filter(pl.col("method") == name).drop("method", "chosen", "seconds") for name in TABLE2}
    chosen = frame.filter(pl.col("method") == "shipped").select("seed", "chosen").unique().sort("seed")["chosen"]
    assert len(chosen) == 2
    for seed, name in enumerate(chosen):
        of_seed = pl.col("seed") == seed
        assert by_method["shipped"].filter(of_seed).equals(by_method[name].filter(of_seed)), "no second fit"
    assert summary["sentence"] in said(capsys)
    page = (out / "page.html").read_text()
    assert summary["command"] == "python -m training.experiment table2 --recipe tiny.toml --seeds 2"
    assert str(tmp_path) not in page, "a page names no folder of this machine"

    here.clear()
    assert run(*command, 2) == 0
    assert here == []
    assert run("table2", "--recipe", "demo", "--out", out) == 1
    assert "holds results with other recipe" in said(capsys)
    other = recipe.with_name("other") / "tiny.toml"
    other.parent.mkdir(exist_ok=True)
    other.write_text(f'{ONE_EPOCH}\n[rivals.dlcm]\nkind = "dlcm"\ncutoff = 6\nheads = 1\n')
    assert run("table2", "--recipe", other, "--out", out) == 1
    assert "holds results with other method dlcm" in said(capsys)


def test_more_rows_join_those_that_are_there(recipe, tmp_path, here):
    out = tmp_path / "table2"
    command = ("table2", "--recipe", recipe, "--out", out, "--seeds", 1, "--methods")
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


def test_every_network_is_searched_once_per_fold_and_begins_with_its_defaults(recipe, tmp_path, here, monkeypatch):
    searched, firsts = suite_tuned.search_network, []

    def kept(model, *data, **more):
        firsts.append((model, more["trials"], more["seed"]))
        return searched(model, *data, **more)

    monkeypatch.setattr(suite_tuned, "search_network", kept)
    out = tmp_path / "table2"
    command = ("table2", "--recipe", recipe, "--out", out, "--seeds", 2, "--methods", "mlp,qilcm+relative")
    assert run(*command, "--tune", 2, "--folds", "1,2") == 0
    asked = sorted((type(model).__name__, trials, seed) for model, trials, seed in firsts)
    assert asked == [("Mlp", 2, 0)] * 2 + [("Qilcm", 2, 0)] * 2
    assert [model.hidden for model, _, _ in firsts] == [(256, 128)] * 4, "the recipe's (8,) may have been found here"
    assert {model.cutoff for model, _, _ in firsts} == {6}
    assert here.count("tuning") == 4, "LightGBM with and without list-relative columns, in two folds"
    found = {path.stem: json.loads(path.read_text()) for path in (out / "tuned").glob("*.json")}
    assert set(found) == {
        f"shift-0.5-fold-{fold}-{name}"
        for fold in (1, 2)
        for name in ("lambdamart", "lambdamart+relative", "mlp", "qilcm+relative")
    }
    assert set(found["shift-0.5-fold-2-mlp"]) >= {"learning_rate", "hidden", "dropout"}
    page = (out / "page.html").read_text()
    assert "2 settings tried per fold on its own validation queries" in page
    here.clear()
    assert run(*command, "--tune", 2, "--folds", "1,2") == 0
    assert here == []
    assert run(*command, "--tune", 3, "--folds", "1,2") == 1, "results of another protocol are not mixed in"


def test_table3_over_planted_shifts(recipe, tmp_path, here):
    out = tmp_path / "table3"
    assert run("table3", "--recipe", recipe, "--seeds", 1, "--shifts", "1,0", "--out", out) == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame["shift"].unique().sort().to_list() == [0.0, 1.0]
    labels = [frame.filter(pl.col("shift") == shift).select("qid", "method", "relevant") for shift in (0.0, 1.0)]
    assert labels[0].equals(labels[1]), "the same queries at every shift"
    assert here.count("tuning") == 2
    assert [part["shift"] for part in json.loads((out / "summary.json").read_text())["data_sets"]] == [0.0, 1.0]


def test_variants_on_the_first_stage_with_relative_columns(recipe, tmp_path, here):
    for which in ((), ("--relative",)):
        out = tmp_path / f"table3{len(which)}"
        assert run("table3", "--recipe", recipe, "--seeds", 1, "--shifts", "1", "--out", out, *which) == 0
    plain, relative = (pl.read_parquet(tmp_path / f"table3{n}" / "results.parquet") for n in (0, 1))
    assert relative["method"].unique().sort().to_list() == [
        "lambdamart+relative",
        *sorted(set(plain["method"]) - {"lambdamart"}),
    ]
    first = [frame.filter(pl.col("method").str.starts_with("lambdamart"))["ndcg@10"] for frame in (plain, relative)]
    assert not first[0].equals(first[1])
    out = tmp_path / "anomaly"
    assert run("anomaly", "--recipe", recipe, "--seeds", 1, "--out", out, "--relative") == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame.filter(pl.col("method") == "lambdamart+relative")["anomaly"].null_count() == 0
    assert "list-relative columns" in (out / "page.html").read_text()


def test_anomaly_and_lambda(recipe, tmp_path, here):
    assert run("anomaly", "--recipe", recipe, "--seeds", 1, "--out", tmp_path / "anomaly") == 0
    frame = pl.read_parquet(tmp_path / "anomaly" / "results.parquet")
    scores = frame.filter(pl.col("method") == "lambdamart")["anomaly"]
    assert scores.is_between(0.0, 1.0).all()
    assert scores.n_unique() > 6
    gaps = json.loads((tmp_path / "anomaly" / "summary.json").read_text())["gaps"]
    assert [gap["metric"] for gap in gaps] == ["ndcg@1", "ndcg@10"]

    assert run("lambda", "--recipe", recipe, "--seeds", 1, "--out", tmp_path / "lambda") == 0
    methods = json.loads((tmp_path / "lambda" / "summary.json").read_text())["methods"]
    equal = {name: method["lambda_of_eq_10"] for name, method in methods.items()}
    assert equal["lambdamart"] == equal["qilcm-0"] == 0.0
    assert equal["qilcm-0.3"] == pytest.approx(100 * equal["qilcm-0.003"])
    assert equal["qilcm-0.3"] > 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table2", "--seeds", 0), "--seeds 0: expected 1 or more"),
        (("table2", "--jobs", 0), "--jobs 0: expected 1 or more"),
        (("table2", "--shifts", "1"), "--shifts is for table3 with a recipe that plants its data, such as shifted"),
        (("table3", "--shifts", "1,x"), "--shifts 1,x: expected numbers from 0, separated by commas"),
        (("table3", "--shifts", "-1"), "--shifts -1: expected numbers from 0"),
        (("lambda", "--specialists", "2"), "--specialists 2: suite lambda has none; leave it out"),
        (("oracle", "--jobs", 2), "--jobs 2: suite oracle has none; leave it out"),
        (("lambda", "--tune", 2), "--tune 2: suite lambda has none; leave it out"),
        (("table2", "--tune", 0), "--tune 0: expected 1 or more"),
        (("table2", "--relative"), "--relative: suite table2 has none; leave it out"),
        (("table3", "--methods", "qilcm"), "--methods qilcm: suite table3 has none; leave it out"),
        (("table2", "--methods", "qilcm,gru"), "--methods gru: table2 has lambdamart, lambdamart+relative, dlcm, "),
        (("table2", "--methods", "lambdamart"), "--methods lambdamart: LambdaMART is there in any case"),
        (("anomaly", "--ndcg-at", 7), "--ndcg-at 7: these suites measure NDCG at 1, 3, 5, 10, 50"),
        (("table2", "--folds", "9"), "there is no fold 9"),
        (("table2", "--data", "rows.txt"), "makes its own data: leave out --data rows.txt"),
    ],
)
def test_wrong_options_are_one_clear_line(recipe, tmp_path, capsys, arguments, message):
    (tmp_path / "rows.txt").touch()
    assert run(*arguments, "--recipe", recipe, "--out", tmp_path / "x") == 1
    assert message in said(capsys)
    assert not (tmp_path / "x" / "parts").exists()


def test_settings_are_searched_once_though_two_seeds_could_start(recipe, tmp_path, monkeypatch):
    search, searches = lambdamart.search_settings, []

    @contextmanager
    def pool(jobs):
        with ThreadPoolExecutor(jobs) as side_by_side:
            yield side_by_side

    def counted(train, valid, spec, **more):
        searches.extend([spec.trials] if spec.trials > 1 else [])
        return search(train, valid, spec, **more)

    monkeypatch.setattr(workers, "pool", pool)
    monkeypatch.setattr(lambdamart, "search_settings", counted)
    assert run("table3", "--recipe", recipe, "--seeds", 3, "--shifts", "0", "--jobs", 3, "--out", tmp_path / "x") == 0
    assert searches == [2]


def test_the_first_seed_searches_even_if_another_could_sooner(recipe, tmp_path):
    """Or what is found would depend on which process was faster."""
    specs = {"lambdamart": FirstStageAlone(), "mlp": Mlp()}
    fits = [
        Fit(config.load(str(recipe)), (), seed, name, spec, cutoff=6, trials=2)
        for seed in (0, 1)
        for name, spec in specs.items()
    ]
    with Store(tmp_path / "x", {}) as store:
        makers = workers._makers(fits, store)
        assert workers._next(fits, makers, {}, store) is fits[0]
        assert workers._next(fits[1:], makers, {}, store) is None
        done = {made: maker for made, maker in makers.items() if maker not in (fits[0].name, fits[2].name)}
        assert workers._next([fits[3]], done, {}, store) is None, "its first stage is there, seed 0's search is not"
        assert workers._next([fits[1], fits[3]], done, {}, store) is fits[1]
        assert workers._next([fits[3]], {}, {}, store) is fits[3]
        shipped = Fit(fits[0].recipe, (), 0, "shipped", Shipped((Mlp(),), folds=2), cutoff=6)
        assert workers._next([shipped], {}, {shipped.place: 2}, store) is None, "another row of its place is under way"
        assert workers._next([shipped], {}, {shipped.place: 1}, store) is shipped


def test_an_error_in_a_fit_says_in_which(recipe, tmp_path, here, monkeypatch, capsys):
    def diverged(fit, *where):
        raise ScoringError("the training loss became nan")

    monkeypatch.setattr(workers, "measure", diverged)
    assert run("table2", "--recipe", recipe, "--seeds", 1, "--out", tmp_path / "x") == 1
    assert "shift-0.5-seed-0-fold-1-lambdamart: the training loss became nan" in said(capsys)


def _die(fit, *where):
    psutil.Process().kill()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_of(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "measured", _die)
    assert run("table2", "--recipe", recipe, "--seeds", 1, "--jobs", 1, "--out", tmp_path / "x") == 1
    assert "with --jobs N for fewer at a time" in said(capsys)


@pytest.mark.slow
def test_killed_it_leaves_no_worker_and_goes_on(recipe, tmp_path):
    out = tmp_path / "table3"
    words = ["table3", "--recipe", str(recipe), "--seeds", "1", "--shifts", "0", "--jobs", "1", "--out", str(out)]
    command = [sys.executable, "-m", "training.experiment", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as killed:
        deadline = time.monotonic() + 120
        while not list((out / "parts").glob("*.parquet")) and killed.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        children = psutil.Process(killed.pid).children(recursive=True)
        assert children
        killed.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    before = {path: path.stat().st_mtime_ns for path in (out / "parts").glob("*.parquet")}
    assert 1 <= len(before) < 5
    assert run(*words) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert pl.read_parquet(out / "results.parquet")["method"].n_unique() == 5
