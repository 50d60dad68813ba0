"""Fits in the time that they are given: what ends by the clock is told, and repeated to the bit."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.errors import RecipeError
from listwright.training.commands import fit
from listwright.training.first_stage import boosting, lambdamart
from listwright.training.job_folder import folder_of
from listwright.training.pipeline import choice, steps
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.run import run
from listwright.training.recipe import config
from listwright.training.recipe.model import FirstStageAlone
from listwright.training.reporting.sentences import budget_sentences, compared_rows, default_sentence
from listwright.training.second_stage import fit as second_stage
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
    report, text = fitted(recipe, tmp_path / "many" / "1", Budget(1e6, clock=Clock()))
    found = report["budget"]
    assert (found["minutes"], found["left_out"], found["undecided"], found["ends"]) == (1e6, [], [], {})
    assert found["planned"]["settings"] == 2
    assert (found["planned"]["QILCM"], found["planned"]["QILCM2"]) == (1, 1)
    assert [one["ranker"] for one in report["default_strategy"]["compared"]] == ["relative", "qilcm", "qilcm2"]
    assert re.search(r"One LightGBM fit takes \d\.\d s; this fit has", text)


def test_without_time_for_networks_the_first_stage_stands_alone(recipe, tmp_path, monkeypatch):
    clock, choose = Clock(), steps.choose

    def late(*given):
        clock.now += 55.0
        return choose(*given)

    monkeypatch.setattr(steps, "choose", late)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(1.0, clock=clock))
    assert report["budget"]["left_out"] == ["QILCM", "QILCM2"]
    loaded = bundle.load(tmp_path / "many" / "1")
    assert loaded.manifest.second_stages == ()
    assert loaded.manifest.strategy == "first_stage"
    assert [one.ranker for one in loaded.manifest.choice] == ["relative"]


def test_a_network_that_there_is_no_time_to_compare_is_not_said_to_answer(tmp_path, monkeypatch):
    """The validation queries are too few, and the clock ends the comparison before its first part."""
    path, goes_on = tmp_path / "few.toml", Budget.goes_on
    text = MANY.replace("queries = 150", "queries = 60")
    path.write_text(text.replace("trials = 2", 'trials = 2\nrelative = "none"'))

    def slow(budget, name, done, seconds):
        return goes_on(budget, name, done, 1e9 if name.startswith("parts of") else seconds)

    monkeypatch.setattr(Budget, "goes_on", slow)
    report, _ = fitted(config.load(str(path)), tmp_path / "few" / "1", Budget(10.0, clock=Clock()))
    assert report["budget"]["undecided"] == ["qilcm", "qilcm2"]
    said = default_sentence(report["default_strategy"], "qilcm")
    assert said.startswith("This bundle answers with the first stage unless a request says strategy=qilcm")


def test_a_replay_gives_the_same_bundle(recipe, tmp_path, monkeypatch):
    """The clock ends settings after the first, and QILCM's last fit after its second epoch."""
    clock, goes_on = Clock(), Budget.goes_on
    stops = {"settings of LightGBM": 1, "settings of LightGBM + relative": 1, "epochs of QILCM": 2}

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
    monkeypatch.setattr(steps, "fit_networks", interrupt)
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


@pytest.mark.parametrize("more", [{}, {"select_on": "folds"}])
def test_a_bound_that_ends_within_the_first_lightgbm_fit_publishes_its_trees(recipe, tmp_path, monkeypatch, more):
    clock, trial_of = Clock(), boosting.LocalGrower.trial_of
    recipe = recipe.model_copy(update={"first_stage": recipe.first_stage.model_copy(update=more)})

    def slow(grower, *given, **options):
        objective = trial_of(grower, *given, **options)

        def try_setting(number, values, report):
            def later(step, value):
                clock.now += 40.0
                report(step, value)

            return objective(number, values, later)

        return try_setting

    monkeypatch.setattr(boosting.LocalGrower, "trial_of", slow)
    out = tmp_path / "many" / "1"
    report, text = fitted(recipe, out, Budget(1.0, clock=clock))
    assert "the time limit ended the first LightGBM fit after 20 trees" in text
    assert report["first_stage"]["trees"] == 20
    assert report["first_stage"]["train_scores"] == "of the model itself"
    assert report["budget"]["ends"] == {"trees of the first LightGBM fit": 20}
    manifest = bundle.load(out).manifest
    assert (manifest.strategy, manifest.second_stages, manifest.anomaly) == ("first_stage", (), None)
    monkeypatch.undo()
    again, _ = fitted(recipe, tmp_path / "many" / "2", Budget(replay=report["budget"], clock=Clock()))
    assert stages(tmp_path / "many" / "2") == stages(out)
    assert again["budget"]["planned"] == report["budget"]["planned"]


@pytest.mark.nightly
def test_columns_that_a_recipe_names_are_in_the_fit_that_is_timed(recipe, tmp_path, monkeypatch):
    widths, search = [], lambdamart.search_settings

    def noted(train, *given, **more):
        widths.append(len(train.schema))
        return search(train, *given, **more)

    monkeypatch.setattr(lambdamart, "search_settings", noted)
    named = recipe.first_stage.model_copy(update={"relative": ("z",)})
    recipe = recipe.model_copy(update={"first_stage": named, "choice": None, "model": FirstStageAlone()})
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(10.0, clock=Clock()))
    assert report["first_stage"]["trials"] == 2
    assert widths[0] == widths[1] == 5 + 4, "four numeric features"


def test_less_than_one_lightgbm_fit_publishes_that_one(recipe, tmp_path, monkeypatch):
    search = lambdamart.search_settings

    def slow(*given, **more):
        return replace(search(*given, **more), first_seconds=60.0)

    monkeypatch.setattr(lambdamart, "search_settings", slow)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(0.5, clock=Clock()))
    assert report["budget"]["left_out"] == ["list-relative columns", "probabilities", "QILCM", "QILCM2"]
    assert report["first_stage"]["trials"] == 1


def test_a_fit_with_a_bound_does_not_go_on_without_one(recipe, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    out = tmp_path / "many" / "1"
    monkeypatch.setattr(steps, "fit_networks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, out, Budget(10.0, clock=Clock()))
    monkeypatch.undo()
    with pytest.raises(RecipeError, match="had another bound on its time"):
        fitted(recipe, out, Budget(), resume=True)


def test_a_comparison_that_the_clock_ends_is_no_harm(recipe, tmp_path, monkeypatch):
    """Networks of one epoch, whatever their gain."""
    goes_on = Budget.goes_on

    def one_epoch(budget, name, done, seconds):
        return goes_on(budget, name, done, 1e9 if name.startswith("epochs of") else seconds)

    monkeypatch.setattr(Budget, "goes_on", one_epoch)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(10.0, clock=Clock()))
    told = {one["ranker"]: one for one in report["default_strategy"]["compared"]}
    rows = {row[0]: row[-1] for row in compared_rows(report["default_strategy"], report["rankers"], report["budget"])}
    for kind, title in (("qilcm", "QILCM"), ("qilcm2", "QILCM2")):
        assert rows[title] == ("gain" if told[kind]["low"] > 0.0 else "not enough time")
    assert "QILCM" in budget_sentences(report["budget"])[0]


def test_a_mistake_leaves_no_interrupted_run_behind(tmp_path, capsys):
    path, out = tmp_path / "many.toml", tmp_path / "many" / "1"
    path.write_text(MANY)
    assert fit.main([str(path), "--first-stage-column", "nope", "--minutes", "5", "--out", str(out)]) == 1
    assert "nope" in capsys.readouterr().out
    assert not folder_of(out).exists()


def test_the_report_of_another_recipe_is_not_replayed(tmp_path, capsys):
    path, report = tmp_path / "many.toml", tmp_path / "report.json"
    path.write_text(MANY)
    report.write_text(json.dumps({"budget": {"planned": {}, "ends": {}}, "recipe": {}}))
    assert fit.main([str(path), "--replay", str(report)]) == 1
    assert "that fit had another recipe" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("minutes", [0.0, 10.0])
def test_with_enough_validation_queries_each_network_is_fitted_once(recipe, tmp_path, monkeypatch, minutes):
    """And compared on those queries, by the checkpoint that is shipped."""
    fits, fit_network = [], second_stage.fit_network

    def counted(spec, train, *given, **more):
        fits.append((spec.kind, len(train)))
        return fit_network(spec, train, *given, **more)

    monkeypatch.setattr(choice, "FEW", 10)
    monkeypatch.setattr(choice, "ENOUGH", 10)
    for module in (second_stage, choice):
        monkeypatch.setattr(module, "fit_network", counted)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(minutes, clock=Clock()))
    assert fits == [("qilcm", 90), ("qilcm2", 90)]
    compared = {one["ranker"]: one["n"] for one in report["default_strategy"]["compared"]}
    assert compared == {"relative": 120, "qilcm": 30, "qilcm2": 30}


@pytest.mark.parametrize("minutes", [0.0, 10.0])
def test_training_queries_are_added_where_validation_queries_leave_a_gain_open(recipe, tmp_path, monkeypatch, minutes):
    fits, fit_network = [], second_stage.fit_network

    def counted(spec, train, *given, **more):
        fits.append((spec.kind, len(train)))
        return fit_network(spec, train, *given, **more)

    for module in (second_stage, choice):
        monkeypatch.setattr(module, "fit_network", counted)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(minutes, clock=Clock()))
    assert fits[:3] == [("qilcm", 90), ("qilcm", 45), ("qilcm", 45)]
    compared = {one["ranker"]: one["n"] for one in report["default_strategy"]["compared"]}
    assert (compared["relative"], compared["qilcm"]) == (120, 120)


def test_a_network_that_the_clock_ends_is_not_compared_in_time(recipe, tmp_path, monkeypatch):
    goes_on = Budget.goes_on

    def slow(budget, name, done, seconds):
        return goes_on(budget, name, done, 1e9 if name == "epochs of QILCM" and done == 1 else seconds)

    monkeypatch.setattr(choice, "FEW", 10)
    monkeypatch.setattr(choice, "ENOUGH", 10)
    monkeypatch.setattr(Budget, "goes_on", slow)
    report, _ = fitted(recipe, tmp_path / "many" / "1", Budget(10.0, clock=Clock()))
    qilcm = next(one for one in report["default_strategy"]["compared"] if one["ranker"] == "qilcm")
    assert ("qilcm" in report["budget"]["undecided"]) == (qilcm["low"] <= 0.0)
    assert report["model"]["epochs"] == 1
    monkeypatch.undo()
    monkeypatch.setattr(choice, "FEW", 10)
    monkeypatch.setattr(choice, "ENOUGH", 10)
    again, _ = fitted(recipe, tmp_path / "many" / "2", Budget(replay=report["budget"], clock=Clock()))
    assert stages(tmp_path / "many" / "2") == stages(tmp_path / "many" / "1")
    assert again["default_strategy"] == report["default_strategy"]
