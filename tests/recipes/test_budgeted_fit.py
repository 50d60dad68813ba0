"""Fits in the time that they are given: what ends by the clock is told, and repeated to the bit."""

import io
import json

import pytest
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.errors import RecipeError
from listwright.training import fit
from listwright.training.budget import Budget
from listwright.training.first_stage import lambdamart
from listwright.training.recipe import config
from listwright.training.run import run
from listwright.training.steps import fitting
from support.training.tiny import SPECIALISED, TINY

MANY = TINY.replace("queries = 60", "queries = 150\nshift = 1.0").replace("[model]", "[choice]\nfolds = 2\n[model]")


class Clock:
    """Stands still, but where a test moves it on."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "many.toml"
    path.write_text(MANY)
    return config.load(str(path))


def fitted(recipe, out, budget, **more):
    text = io.StringIO()
    run(recipe, [], out, budget=budget, console=Console(file=text, width=200), **more)
    return json.loads((out / "report.json").read_text()), text.getvalue()


def stages(out):
    """What a bundle ranks with, and its answers, to the bit."""
    names = [stage.file for stage in bundle.load(out).manifest.second_stages]
    return {name: (out / name).read_bytes() for name in ("first_stage.txt", "golden.jsonl", *names)}


@pytest.mark.nightly
def test_with_time_enough_all_of_the_recipe_is_done(recipe, tmp_path):
    report, said = fitted(recipe, tmp_path / "many" / "1", Budget(1e6, clock=Clock()))
    found = report["budget"]
    assert (found["minutes"], found["left_out"], found["undecided"], found["ends"]) == (1e6, [], [], {})
    assert found["planned"]["settings"] == 2
    assert found["planned"]["epochs for QILCM"] == 3
    assert [one["ranker"] for one in report["default_strategy"]["compared"]] == ["relative", "qilcm", "qilcm2"]
    assert "One LightGBM fit takes 0.0 s; this fit has" in said


def test_without_time_for_networks_the_first_stage_stands_alone(recipe, tmp_path, monkeypatch):
    clock, choose = Clock(), fitting.choose

    def late(*given):
        clock.now += 55.0
        return choose(*given)

    monkeypatch.setattr(fitting, "choose", late)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(1.0, clock=clock))
    assert report["budget"]["left_out"] == ["QILCM", "QILCM2"]
    loaded = bundle.load(tmp_path / "many" / "1")
    assert loaded.manifest.second_stages == ()
    assert loaded.manifest.strategy == "first_stage"
    assert [one.ranker for one in loaded.manifest.choice] == ["relative"]


def test_a_replay_gives_the_same_bundle(recipe, tmp_path, monkeypatch):
    """The clock ends settings after the first, and QILCM's last fit after its second epoch."""
    clock, goes_on = Clock(), Budget.goes_on
    stops = {"settings of LambdaMART": 1, "settings of LambdaMART + relative": 1, "epochs of QILCM": 2}

    def slow(budget, name, done, seconds):
        return goes_on(budget, name, done, 1e9 if stops.get(name) == done else seconds)

    monkeypatch.setattr(Budget, "goes_on", slow)
    first, _ = fitted(recipe, tmp_path / "many" / "1", Budget(10.0, clock=clock))
    assert first["budget"]["ends"] == stops
    assert first["first_stage"]["trials"] == 1
    monkeypatch.undo()
    again, _ = fitted(recipe, tmp_path / "many" / "2", Budget(replay=first["budget"], clock=clock))
    assert stages(tmp_path / "many" / "2") == stages(tmp_path / "many" / "1")
    assert {**again["budget"], "seconds": 0, "lightgbm_fit_seconds": 0} == {
        **first["budget"], "seconds": 0, "lightgbm_fit_seconds": 0
    }  # fmt: skip
    whole, _ = fitted(recipe, tmp_path / "many" / "3", Budget(10.0, clock=clock))
    assert whole["budget"]["ends"] == {}
    assert stages(tmp_path / "many" / "3") != stages(tmp_path / "many" / "1")


@pytest.mark.nightly
def test_an_interrupted_fit_goes_on_with_its_plan(recipe, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    out, clock = tmp_path / "many" / "1", Clock()
    budget = Budget(10.0, clock=clock)
    monkeypatch.setattr(fitting, "fit_networks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, out, budget)
    monkeypatch.undo()
    report, _ = fitted(recipe, out, Budget(20.0, clock=clock), resume=True)
    assert report["budget"]["planned"] == budget.planned
    again, _ = fitted(recipe, tmp_path / "many" / "2", Budget(replay=report["budget"], clock=clock))
    assert stages(tmp_path / "many" / "2") == stages(out)
    assert again["budget"]["planned"] == budget.planned


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--minutes", "-1"], "minutes -1: expected a number from 0"),
        (["--minutes", "nan"], "minutes nan: expected a number from 0"),
        (["--replay", "report.json", "--minutes", "3"], "leave out --minutes"),
        (["--replay", "none.json"], "none.json"),
        (["--replay", "report.json"], "--replay report.json: that fit had no bound"),
        (["specialised.toml", "--minutes", "3"], "--minutes 3: recipe 'specialised' fits specialists"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "specialised.toml").write_text(SPECIALISED)
    assert fit.main(options) == 1
    assert says in capsys.readouterr().out.replace("\n", " ")
    assert not (tmp_path / "models").exists()


def test_less_than_one_lightgbm_fit_is_refused(recipe, tmp_path, monkeypatch):
    clock, search = Clock(), lambdamart.search_settings
    budget = Budget(0.5, clock=clock)

    def slow(*given, **more):
        clock.now += 60.0
        return search(*given, **more)

    monkeypatch.setattr(lambdamart, "search_settings", slow)
    with pytest.raises(RecipeError, match=r"one LightGBM fit takes 60 s here"):
        fitted(recipe, tmp_path / "many" / "1", budget)
