"""The listwise suites from the command line on data of seconds: shared first stages, interruptions, workers that die."""

import json
import subprocess
import sys

import polars as pl
import psutil
import pytest

from listwright.ranking.errors import ScoringError
from listwright_lab.suites.listwise import suite
from support.training.suites import ONE_EPOCH, TABLE2, printed_text, run
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly


def test_table2_goes_on_after_an_interruption_and_with_more_seeds(tiny_recipe, tmp_path, here, monkeypatch, capsys):
    out = tmp_path / "table2"
    command = ("table2", "--recipe", tiny_recipe, "--out", out, "--seeds")
    whole = suite.measure_fit

    def interrupted(fit, *where):
        if fit.method == "dcm":
            raise KeyboardInterrupt
        return whole(fit, *where)

    monkeypatch.setattr(suite, "measure_fit", interrupted)
    assert run(*command, 1) == 130
    assert "the same command goes on" in printed_text(capsys)
    before = {path.name: path.read_bytes() for path in (out / "parts").iterdir()}
    assert set(before) == {f"shift-0.5-seed-0-fold-1-{name}.parquet" for name in TABLE2[:3]}

    monkeypatch.setattr(suite, "measure_fit", whole)
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
    assert summary["sentence"] in printed_text(capsys)
    page = (out / "page.html").read_text()
    assert summary["command"] == "listwright experiment table2 --recipe tiny.toml --seeds 2"
    assert str(tmp_path) not in page, "a page names no folder of this machine"

    here.clear()
    assert run(*command, 2) == 0
    assert here == []
    assert run("table2", "--recipe", "demo", "--out", out) == 1
    assert "holds results with other recipe" in printed_text(capsys)
    other = tiny_recipe.with_name("other") / "tiny.toml"
    other.parent.mkdir(exist_ok=True)
    other.write_text(f'{ONE_EPOCH}\n[rivals.dlcm]\nkind = "dlcm"\ncutoff = 6\nheads = 1\n')
    assert run("table2", "--recipe", other, "--out", out) == 1
    assert "holds results with other method dlcm" in printed_text(capsys)


def test_table3_over_planted_shifts(tiny_recipe, tmp_path, here):
    out = tmp_path / "table3"
    assert run("table3", "--recipe", tiny_recipe, "--seeds", 1, "--shifts", "1,0", "--out", out) == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame["shift"].unique().sort().to_list() == [0.0, 1.0]
    labels = [frame.filter(pl.col("shift") == shift).select("qid", "method", "relevant") for shift in (0.0, 1.0)]
    assert labels[0].equals(labels[1]), "the same queries at every shift"
    assert here.count("tuning") == 2
    assert [part["shift"] for part in json.loads((out / "summary.json").read_text())["data_sets"]] == [0.0, 1.0]


def test_variants_on_the_first_stage_with_relative_columns(tiny_recipe, tmp_path, here):
    for which in ((), ("--relative",)):
        out = tmp_path / f"table3{len(which)}"
        assert run("table3", "--recipe", tiny_recipe, "--seeds", 1, "--shifts", "1", "--out", out, *which) == 0
    plain, relative = (pl.read_parquet(tmp_path / f"table3{n}" / "results.parquet") for n in (0, 1))
    assert relative["method"].unique().sort().to_list() == [
        "lambdamart+relative",
        *sorted(set(plain["method"]) - {"lambdamart"}),
    ]
    first = [frame.filter(pl.col("method").str.starts_with("lambdamart"))["ndcg@10"] for frame in (plain, relative)]
    assert not first[0].equals(first[1])
    out = tmp_path / "anomaly"
    assert run("anomaly", "--recipe", tiny_recipe, "--seeds", 1, "--out", out, "--relative") == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame.filter(pl.col("method") == "lambdamart+relative")["anomaly"].null_count() == 0
    assert "list-relative columns" in (out / "page.html").read_text()


def test_anomaly_and_lambda(tiny_recipe, tmp_path, here):
    assert run("anomaly", "--recipe", tiny_recipe, "--seeds", 1, "--out", tmp_path / "anomaly") == 0
    frame = pl.read_parquet(tmp_path / "anomaly" / "results.parquet")
    scores = frame.filter(pl.col("method") == "lambdamart")["anomaly"]
    assert scores.is_between(0.0, 1.0).all()
    assert scores.n_unique() > 6
    gaps = json.loads((tmp_path / "anomaly" / "summary.json").read_text())["gaps"]
    assert [gap["metric"] for gap in gaps] == ["ndcg@1", "ndcg@10"]

    assert run("lambda", "--recipe", tiny_recipe, "--seeds", 1, "--out", tmp_path / "lambda") == 0
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
def test_wrong_options_are_one_clear_line(tiny_recipe, tmp_path, capsys, arguments, message):
    (tmp_path / "rows.txt").touch()
    assert run(*arguments, "--recipe", tiny_recipe, "--out", tmp_path / "x") == 1
    assert message in printed_text(capsys)
    assert not (tmp_path / "x" / "parts").exists()


def test_an_error_in_a_fit_says_in_which(tiny_recipe, tmp_path, here, monkeypatch, capsys):
    def diverged(fit, *where):
        raise ScoringError("the training loss became nan")

    monkeypatch.setattr(suite, "measure", diverged)
    assert run("table2", "--recipe", tiny_recipe, "--seeds", 1, "--out", tmp_path / "x") == 1
    assert "shift-0.5-seed-0-fold-1-lambdamart: the training loss became nan" in printed_text(capsys)


def _die(fit, *where):
    psutil.Process().kill()


def test_a_worker_that_is_killed_is_told_of(tiny_recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(suite, "measure_fit", _die)
    assert run("table2", "--recipe", tiny_recipe, "--seeds", 1, "--jobs", 1, "--out", tmp_path / "x") == 1
    assert "with --jobs N for fewer at a time" in printed_text(capsys)


def test_killed_it_leaves_no_worker_and_goes_on(tiny_recipe, tmp_path):
    out = tmp_path / "table3"
    words = ["table3", "--recipe", str(tiny_recipe), "--seeds", "1", "--shifts", "0", "--jobs", "1", "--out", str(out)]
    command = [sys.executable, "-m", "listwright", "experiment", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as killed:
        until(lambda: list((out / "parts").glob("*.parquet")) or killed.poll() is not None)
        children = psutil.Process(killed.pid).children(recursive=True)
        assert children
        killed.kill()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []
    before = {path: path.stat().st_mtime_ns for path in (out / "parts").glob("*.parquet")}
    assert 1 <= len(before) < 5
    assert run(*words) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert pl.read_parquet(out / "results.parquet")["method"].n_unique() == 5
