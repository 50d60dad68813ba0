"""Whole runs, from the command line to a bundle that loads: what a person who fits something meets."""

import json
import re

import lightgbm
import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.commands import fit
from listwright.training.console import bars
from listwright.training.data.load import load
from listwright.training.job_folder import folder_of
from listwright.training.recipe import config
from support.training.suites import printed_text
from support.training.tiny import TINY


def run(*arguments):
    return fit.main([str(argument) for argument in arguments])


def test_bundle_is_whole_and_named_after_its_folder(fitted):
    loaded = bundle.load(fitted)
    assert (loaded.manifest.name, loaded.manifest.version) == ("tiny", "1")
    assert loaded.manifest.recipe["data"]["queries"] == 60
    assert loaded.manifest.second_stage.cutoff == 6
    assert loaded.manifest.validated_lengths == (1, 2, 5, 6, 7, 12), "around the cutoff, and the longest list"
    assert not folder_of(fitted).exists(), "a finished run leaves no working folder"


def test_metrics_are_those_of_the_sealed_bundle(fitted, recipe):
    """Results again from the files on disk, over the same test split."""
    loaded = bundle.load(fitted)
    from listwright.training.evaluation.protocol import evaluate

    test = load(config.load(str(recipe)), []).test
    assert evaluate(loaded.reranker, test).metrics() == loaded.manifest.metrics
    report = json.loads((fitted / "report.json").read_text())
    own = [metric for metric in report["metrics"] if metric["ranker"] != "plain_first_stage"]
    assert own == [metric.model_dump() for metric in loaded.manifest.metrics]
    assert set(report["empty_query_conventions"]) == {"0", "1", "drop"}


@pytest.mark.nightly
def test_one_seed_repeats_the_run(fitted, recipe, tmp_path):
    again = tmp_path / "tiny" / "1"
    assert run(recipe, "--out", again) == 0
    for name in ("first_stage.txt", "golden.jsonl"):
        assert (again / name).read_bytes() == (fitted / name).read_bytes()
    assert bundle.load(again).manifest.metrics == bundle.load(fitted).manifest.metrics
    other = tmp_path / "tiny" / "2"
    assert run(recipe, "--out", other, "--seed", 1) == 0
    assert (other / "golden.jsonl").read_bytes() != (fitted / "golden.jsonl").read_bytes()


@pytest.mark.nightly
def test_interrupted_run_goes_on_where_it_was(fitted, recipe, tmp_path, monkeypatch, capsys):
    out = tmp_path / "tiny" / "1"

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("listwright.training.pipeline.run.write_bundle", interrupt)
    assert run(recipe, "--out", out) == 130
    assert "run the same command with --resume" in capsys.readouterr().out
    monkeypatch.undo()
    assert not out.exists()
    assert run(recipe, "--out", out) == 1
    assert "holds an interrupted run" in printed_text(capsys)

    monkeypatch.setattr("listwright.training.first_stage.lambdamart.tune", interrupt)
    assert run(recipe, "--out", out, "--resume") == 0, "the first stage was finished and must not be tuned again"
    assert (out / "golden.jsonl").read_bytes() == (fitted / "golden.jsonl").read_bytes()


@pytest.mark.nightly
def test_without_a_terminal_every_stage_is_told_in_plain_lines(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bars, "LINE_S", 0.0)
    monkeypatch.setattr(bars, "CHECK_S", 0.002)
    assert run(recipe, "--out", tmp_path / "tiny" / "1") == 0
    printed = capsys.readouterr().out
    told = re.findall(r"^0:00:\d\d  ([a-z ]+) \(0:00:\d\d\)(.*)$", printed, re.MULTILINE)
    assert {"first stage", "choice", "evaluation"} <= {stage for stage, _ in told}
    assert any(re.fullmatch(r": Tuning LightGBM.*, [01] of 2.*", task) for _, task in told)
    assert not set("\x1b\r\b") & set(printed)


def test_published_bundle_is_never_overwritten(fitted, recipe, capsys):
    assert run(recipe, "--out", fitted) == 1
    assert "exists already" in capsys.readouterr().out


def table(path, rng, queries=40, length=6):
    rows = queries * length
    frame = pl.DataFrame(
        {
            "search": np.repeat(np.arange(queries), length),
            "price": rng.normal(size=rows),
            "carrier": rng.choice(["x", "y", "z"], rows),
            "stops": rng.integers(0, 3, rows),
            "old_score": rng.normal(size=rows),
        }
    )
    best = frame["price"].to_numpy().reshape(queries, length).argmax(axis=1)
    clicked = np.zeros(rows, dtype=int)
    clicked[np.arange(queries) * length + best] = 1
    frame.with_columns(pl.Series("clicked", clicked)).write_parquet(path)
    return frame


@pytest.fixture
def own_data(tmp_path):
    path = tmp_path / "rows.parquet"
    return path, table(path, np.random.default_rng(0))


@pytest.fixture
def table_recipe(tmp_path):
    path = tmp_path / "own.toml"
    head, model = TINY.split("[first_stage]")
    path.write_text(head.split("[data]")[0] + '[data]\nkind = "table"\n[first_stage]' + model)
    return path


COLUMNS = ("--qid", "search", "--label", "clicked", "--categorical", "stops")


@pytest.mark.nightly
def test_own_table(own_data, table_recipe, tmp_path, capsys):
    out = tmp_path / "own" / "1"
    assert run(table_recipe, "--data", own_data[0], *COLUMNS, "--out", out) == 0
    assert "carrier: 3, stops: 3 values" in printed_text(capsys)
    schema = bundle.load(out).manifest.feature_schema
    assert schema.names == ("price", "carrier", "stops", "old_score")
    assert schema.features[2].categories == ("0", "1", "2")


@pytest.mark.nightly
def test_own_model_is_served_as_it_was(own_data, table_recipe, tmp_path, capsys):
    path, frame = own_data
    numbers = frame.select("old_score", "price").to_numpy()
    label = (frame["price"].to_numpy() > 0).astype(int)
    params = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}
    booster = lightgbm.train(
        params, lightgbm.Dataset(numbers, label, group=[6] * 40, feature_name=["old_score", "price"]), num_boost_round=5
    )
    booster.save_model(tmp_path / "model.txt")
    out = tmp_path / "own" / "1"
    model = ("--first-stage", tmp_path / "model.txt")
    assert run(table_recipe, "--data", path, *COLUMNS, "--ignore", "carrier", *model, "--out", out) == 0
    assert "look better there than they will on new ones" in printed_text(capsys)
    reranker = bundle.load(out).reranker
    rows = np.column_stack([frame["price"], frame["stops"] + 1, frame["old_score"]])[:6].astype(np.float32)
    scores = reranker.rerank(CandidateList(rows)).first_stage_scores
    assert scores == pytest.approx(booster.predict(rows[:, [2, 0]], raw_score=True))


def test_own_model_that_does_not_fit_is_refused_by_name(own_data, table_recipe, tmp_path, capsys):
    path, frame = own_data
    numbers = frame.select("price").to_numpy()
    data = lightgbm.Dataset(numbers, np.zeros(240), group=[6] * 40, feature_name=["cost"])
    lightgbm.train({"objective": "lambdarank", "verbosity": -1}, data, num_boost_round=1).save_model(tmp_path / "m.txt")
    assert (
        run(table_recipe, "--data", path, *COLUMNS, "--first-stage", tmp_path / "m.txt", "--out", tmp_path / "o/1") == 1
    )
    assert "uses 'cost', which the data lack" in printed_text(capsys)


@pytest.mark.nightly
def test_scores_in_the_data_as_first_stage(own_data, table_recipe, tmp_path, capsys):
    path, frame = own_data
    out = tmp_path / "own" / "1"
    assert run(table_recipe, "--data", path, *COLUMNS, "--first-stage-column", "old_score", "--out", out) == 0
    assert "Note:" in capsys.readouterr().out
    loaded = bundle.load(out)
    assert not (out / "first_stage.txt").exists()
    assert loaded.manifest.second_stage.first_stage_score is False, "the score is a feature already"
    rows = np.column_stack([frame["price"], np.ones(240), frame["stops"] + 1, frame["old_score"]])[:6].astype(
        np.float32
    )
    ranking = loaded.reranker.rerank(CandidateList(rows))
    assert ranking.first_stage_scores == pytest.approx(frame["old_score"].to_numpy()[:6])
    rows[2, 3] = np.nan
    holey = loaded.reranker.rerank(CandidateList(rows))
    assert holey.stage_reached == "input_order"
    assert "'old_score' gave nan for candidate 2" in holey.reason


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonesuch"], "no recipe 'nonesuch': use one of airline, airline-paper, car, context, demo"),
        (["rows.csv"], "rows.csv is no recipe: give a table as --data rows.csv --qid COLUMN --label COLUMN"),
        (["mq2008"], "recipe 'mq2008' needs --data PATH"),
        (["demo", "--data", "x"], "makes its own data"),
        (["demo", "--fold", "9"], "there is no fold 9"),
        (["demo", "--qid", "x"], "--qid names a column, but recipe 'demo' reads no table"),
        (["demo", "--resume"], "nothing to resume"),
        (["letor", "--data", "absent.txt"], "absent.txt"),
    ],
)
def test_mistakes_get_one_clear_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").touch()
    assert run(*arguments) == 1
    output = printed_text(capsys)
    assert says in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "a.file/1"], "a.file/.1.partial cannot be made: Not a directory"),
        (["--out", "my models/1"], "'my models' cannot be a bundle's name or version"),
        (["--out", "shop/1 beta"], "'1 beta' cannot be a bundle's name or version"),
        (["--device", "abacus"], "--device 'abacus' cannot be used"),
        (["--first-stage", "absent.txt"], "--first-stage absent.txt: "),
    ],
)
def test_mistakes_are_noticed_before_anything_is_fitted(arguments, says, recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.file").touch()
    monkeypatch.setattr(
        "listwright.training.first_stage.lambdamart.tune", lambda *_args, **_more: pytest.fail("too late")
    )
    assert run(recipe, *arguments) == 1
    assert says in printed_text(capsys)


def test_a_corrected_command_is_not_held_up_by_the_mistake(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("letor", "--data", "absent[/x].txt", "--out", "x/1") == 1
        assert "absent[/x].txt" in printed_text(capsys)
    assert list((tmp_path / "x").iterdir()) == []


def test_every_shipped_recipe_is_valid():
    names = config.recipe_names()
    assert {"demo", "mq2008", "ohsumed", "airline", "mslr", "letor", "table"} <= set(names)
    for name in names:
        assert config.load(name).name == name
