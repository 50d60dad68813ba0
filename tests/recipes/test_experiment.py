"""Both suites from the command line on data of seconds: finished parts are kept, and a page is left."""

import json

import polars as pl
import pytest

from listwright_lab import experiment
from support.training.tiny import SPECIALISED

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "specialised.toml"
    path.write_text(SPECIALISED)
    return path


def run(*arguments):
    return experiment.main([str(argument) for argument in arguments])


def test_oracle_goes_on_after_an_interruption(recipe, tmp_path, monkeypatch, capsys):
    out = tmp_path / "oracle"
    command = ("oracle", "--recipe", recipe, "--folds", "1,2", "--specialists", "1,2", "--out", out)
    from listwright_lab.suites import oracle

    measure, folds = oracle.measure, []

    def interrupted(part, *more, **settings):
        folds.append(part.fold)
        if folds == [1, 2]:
            raise KeyboardInterrupt
        return measure(part, *more, **settings)

    monkeypatch.setattr(oracle, "measure", interrupted)
    assert run(*command) == 130
    assert "the same command goes on" in capsys.readouterr().out
    assert run(*command) == 0
    assert folds == [1, 2, 2], "the first fold was finished"
    frame = pl.read_parquet(out / "results.parquet")
    assert sorted(frame["fold"].unique()) == [1, 2]
    assert frame.filter(pl.col("ranker") == "lambdamart").height == 40
    assert frame.filter(pl.col("specialists") == 2).height == 80
    summary = json.loads((out / "summary.json").read_text())
    assert [curve["specialists"] for curve in summary["curves"]] == [1, 2]
    assert summary["sentence"] in " ".join(capsys.readouterr().out.split())
    assert str(tmp_path) not in (out / "page.html").read_text(), "a page names no folder of this machine"
    assert run(*command[:-1], tmp_path / "other", "--seeds", "0") == 1


def test_routing(recipe, tmp_path):
    out = tmp_path / "routing"
    assert run("routing", "--recipe", recipe, "--folds", "1", "--out", out) == 0
    frame = pl.read_parquet(out / "results.parquet")
    assert frame.height == 20
    assert frame["specialists"].list.len().unique().to_list() == [2]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["queries"] == 20
    assert summary["ndcg"]["routed"] == pytest.approx(frame["routed"].mean())
    assert "Routing" in (out / "page.html").read_text()


def test_wrong_options_are_one_clear_line(tmp_path, capsys):
    assert run("oracle", "--out", tmp_path / "x") == 1
    assert "name the data with --data PATH" in " ".join(capsys.readouterr().out.split())
    assert run("oracle", "--recipe", "planted", "--folds", "1,x", "--out", tmp_path / "x") == 1
    assert "--folds 1,x: expected whole numbers from 1" in " ".join(capsys.readouterr().out.split())
