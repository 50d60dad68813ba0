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
from training import experiment, lambdamart
from training.experiments import workers

ONE_EPOCH = TINY.replace("max_epochs = 3", "max_epochs = 1")
TABLE2 = ("lambdamart", "qilcm", "dcm", "dlcm", "mlp", "qilcm2")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(ONE_EPOCH)
    return path


@pytest.fixture
def here(monkeypatch):
    """The fits one after the other in this process, where tests can see them; counts what is fitted."""
    measured, tuned, fits = workers.measured, lambdamart.search_settings, []

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

    monkeypatch.setattr(workers, "pool", pool)
    monkeypatch.setattr(workers, "measured", counted)
    monkeypatch.setattr(lambdamart, "search_settings", counted_tuning)
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
        if fit.method == "dlcm":
            raise KeyboardInterrupt
        return whole(fit, *where)

    monkeypatch.setattr(workers, "measured", interrupted)
    assert run(*command, 1) == 130
    assert "the same command goes on" in said(capsys)
    before = {path.name: path.read_bytes() for path in (out / "parts").iterdir()}
    assert set(before) == {f"shift-0.5-seed-0-fold-1-{name}.parquet" for name in ("lambdamart", "qilcm", "dcm")}

    monkeypatch.setattr(workers, "measured", whole)
    here.clear()
    assert run(*command, 2) == 0
    first, second = ([f"shift-0.5-seed-{seed}-fold-1-{name}" for name in TABLE2] for seed in (0, 1))
    assert sorted(here) == sorted([*first[3:], *second]), "nothing twice, and settings are searched once for all seeds"
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
    assert len(summary["comparisons"]) == 2 * 4
    assert summary["sentence"] in said(capsys)
    page = (out / "page.html").read_text()
    assert summary["command"] == "python -m training.experiment table2 --recipe tiny.toml --seeds 2"
    assert str(tmp_path) not in page, "a page names no folder of this machine"

    here.clear()
    assert run(*command, 2) == 0
    assert here == []
    assert run("table2", "--recipe", "demo", "--out", out) == 1
    assert "holds results with other recipe" in said(capsys)


def test_table3_over_planted_shifts(recipe, tmp_path, here):
    out = tmp_path / "table3"
    assert run("table3", "--recipe", recipe, "--seeds", 1, "--shifts", "1,0", "--out", out) == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame["shift"].unique().sort().to_list() == [0.0, 1.0]
    labels = [frame.filter(pl.col("shift") == shift).select("qid", "method", "relevant") for shift in (0.0, 1.0)]
    assert labels[0].equals(labels[1]), "the same queries at every shift"
    assert here.count("tuning") == 2
    assert [part["shift"] for part in json.loads((out / "summary.json").read_text())["data_sets"]] == [0.0, 1.0]


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
