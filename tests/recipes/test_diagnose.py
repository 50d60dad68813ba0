"""The diagnosis from the command line: what it finds in planted data, and what it says of bad input."""

import json
import re

import numpy as np
import pytest

from listwright.ranking.errors import ScoringError
from listwright.training.commands import diagnose, fit
from listwright.training.data.load import load
from listwright.training.pipeline import diagnosis
from listwright.training.recipe import config

pytestmark = pytest.mark.nightly

PLANTED = """
name = "planted-here"
minutes = 0
[data]
kind = "synthetic"
queries = 240
min_length = 12
max_length = 12
numeric = 3
categorical = 1
groups = 1
missing = 0.0
anomalous = 0.0
noise = 0.3
shift = {shift}
[model]
kind = "qilcm"
"""


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A network of few epochs: it is LightGBM that these tests are about."""
    monkeypatch.setattr(diagnosis, "EPOCHS", (1, 2))


def run(*arguments):
    return diagnose.main([str(argument) for argument in arguments])


def planted(tmp_path, shift):
    path = tmp_path / f"shift-{shift}.toml"
    path.write_text(PLANTED.format(shift=shift))
    return path


def numbers(tmp_path, *arguments):
    assert run(*arguments, "--json", tmp_path / "found.json") == 0
    return json.loads((tmp_path / "found.json").read_text())


def test_a_planted_shift_is_found(tmp_path, capsys):
    found = numbers(tmp_path, planted(tmp_path, 1.5))
    assert min(spread["between"] for spread in found["features"]) > 0.5
    assert found["relative_columns"]["verdict"] == "gain"
    assert found["relative_columns"]["mean"] > 0.02
    assert found["advice"] in ("relative", "unsure", "second_stage")
    printed = capsys.readouterr().out
    assert "list's level" in printed
    assert printed.rstrip().endswith(found["fit"])


def test_no_shift_shows_no_gain(tmp_path):
    found = numbers(tmp_path, planted(tmp_path, 0.0))
    assert max(spread["between"] for spread in found["features"]) < 0.1
    assert found["relative_columns"]["verdict"] != "gain"
    assert found["second_stage"]["verdict"] != "gain"
    assert [category["feature"] for category in found["categories"]] == ["c1"]


def test_the_numbers_fit_together_and_repeat(tmp_path):
    recipe = planted(tmp_path, 1.5)
    found = numbers(tmp_path, recipe)
    for gain in (found["relative_columns"], found["second_stage"]):
        assert gain["after"] - gain["before"] == pytest.approx(gain["mean"], abs=1e-12)
        assert gain["low"] <= gain["mean"] <= gain["high"]
        assert gain["n"] <= found["queries"] == 192
    assert found["second_stage"]["before"] == pytest.approx(found["relative_columns"]["after"], abs=1e-12)
    assert found["command"] == "listwright diagnose shift-1.5.toml", "no folder of one machine"
    assert numbers(tmp_path, recipe) == found
    assert numbers(tmp_path, recipe, "--seed", 1)["relative_columns"] != found["relative_columns"]


def table(tmp_path, **changes):
    rng = np.random.default_rng(0)
    lines = ["search,clicked,price"]
    for query in range(40):
        price = rng.normal(size=6) + 3 * rng.normal()
        lines += [f"{query},{int(n == price.argmin())},{value:.4f}" for n, value in enumerate(price)]
    path = tmp_path / "own rows.csv"
    path.write_text("\n".join(lines).replace(*changes.get("replace", ("", ""))))
    return path


def test_the_command_that_it_prints_is_a_fit_of_the_same_data(tmp_path, capsys):
    path = table(tmp_path)
    found = numbers(tmp_path, "--data", path, "--qid", "search", "--label", "clicked")
    arguments = re.search(r"listwright fit (.*)", capsys.readouterr().out).group(1)
    assert f"'{path}'" in arguments
    assert "--json" not in arguments
    assert found["fit"] == f"listwright fit {arguments}"
    fit._parser().parse_args(["--data", str(path), "--qid", "search", "--label", "clicked"])


def test_a_first_stage_that_is_given_is_not_compared_with_another(tmp_path, capsys):
    options = ("--data", table(tmp_path), "--qid", "search", "--label", "clicked", "--first-stage-column", "price")
    found = numbers(tmp_path, *options)
    assert found["relative_columns"] is None
    assert "not compared" in capsys.readouterr().out


def test_test_queries_are_not_looked_at(tmp_path, monkeypatch):
    recipe = planted(tmp_path, 1.5)
    found = numbers(tmp_path, recipe)
    whole = load(config.load(str(recipe)), [])
    whole.test.features[:] = 7.0
    whole.test.labels[:] = 0
    monkeypatch.setattr(diagnosis, "load", lambda *_arguments, **_options: whole)
    assert numbers(tmp_path, recipe) == found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), ("no recipe 'nothing'", "demo")),
        (("--data", "{table}", "--qid", "searches", "--label", "clicked"), ("searches",)),
        (("--data", "{table}", "--label", "clicked"), ("qid",)),
        (("--data", "{folder}/absent.csv", "--qid", "search", "--label", "clicked"), ("absent.csv",)),
        (("demo", "--data", "{table}"), ("makes its own data",)),
        (("demo", "--json", "{folder}/no/found.json"), ("--json", "no folder")),
        (("--data", "{table}", "--json", "{table}"), ("--data", "--json", "same file")),
        (("demo", "--device", "abacus"), ("--device", "abacus")),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, capsys, arguments, words):
    path = table(tmp_path)
    assert run(*(argument.format(table=path, folder=tmp_path) for argument in arguments)) == 1
    printed = capsys.readouterr().out
    assert "error:" in printed
    assert all(word in printed for word in words), printed


def test_a_model_is_nothing_that_it_takes(capsys):
    with pytest.raises(SystemExit):
        run("demo", "--model", "dlcm")
    assert "--model" in capsys.readouterr().err


def test_ctrl_c(tmp_path, monkeypatch, capsys):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosis.steps, "choose", interrupted)
    assert run(planted(tmp_path, 1.5), "--json", tmp_path / "found.json") == 130
    assert "interrupted: nothing is kept" in capsys.readouterr().out
    assert not (tmp_path / "found.json").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "found.json").write_text("old")

    def failed(*_arguments, **_options):
        raise ScoringError("no")

    monkeypatch.setattr(diagnosis.steps, "choose", failed)
    assert run(planted(tmp_path, 1.5), "--json", tmp_path / "found.json") == 1
    assert (tmp_path / "found.json").read_text() == "old"
