"""A search from the command line: what it finds can be put into a recipe, and a killed one goes on."""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from listwright.training.commands import fit, tune
from listwright.training.console import bars
from listwright.training.console.progress import SILENT
from listwright.training.first_stage import boosting, lambdamart
from listwright.training.pipeline import study as study_module
from listwright.training.pipeline.budget import ENDING_S, Budget
from listwright.training.pipeline.steps import load
from listwright.training.pipeline.study import TrialWorkers
from listwright.training.recipe import config
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.loop import fit_network
from support.training.suites import printed_text
from support.training.tiny import TINY
from support.waiting import until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    return tune.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def study(recipe, tmp_path_factory):
    """The network's study, and what was printed."""
    folder = tmp_path_factory.mktemp("studies") / "tiny"
    assert run(recipe, "--trials", 7, "--study", folder) == 0
    return folder


def with_winner(study, path):
    """The recipe with the winning values instead of its own."""
    head = TINY.split("[first_stage]")[0]
    path.write_text(head + (study / "winner.toml").read_text())
    return path


def test_the_winner_is_a_piece_of_a_recipe(study, recipe, tmp_path):
    text = (study / "winner.toml").read_text()
    assert text.startswith("# listwright tune tiny.toml --trials 7\n"), "what repeats it, without folders"
    best, own = map(float, re.search(r"NDCG@10 (\S+), the recipe's own values (\S+);", text).groups())
    assert best > own
    assert "# first stage: LightGBM, 7 trials" in text, "as many as the network"
    found = config.load(str(with_winner(study, tmp_path / "tuned.toml")))
    before = config.load(str(recipe))
    assert found.first_stage.trials == 1
    assert found.first_stage.max_trees == before.first_stage.max_trees
    assert found.model.cutoff == before.model.cutoff
    assert found.model != before.model


def test_a_fit_of_the_winner_gets_the_value_that_was_found(study, tmp_path):
    out = tmp_path / "tuned" / "1"
    assert fit.main([str(with_winner(study, tmp_path / "tuned.toml")), "--out", str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    best = re.search(r"NDCG@10 (\S+),", (study / "winner.toml").read_text()).group(1)
    assert f"{report['model']['valid_ndcg']:.4f}" == best
    assert report["first_stage"]["trials"] == 1


def test_a_killed_search_goes_on_where_it_was(study, recipe, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "tiny"
    fitted, epochs = [], []

    def killed(*arguments, report, **options):
        def interrupt(epoch, value):
            report(epoch, value)
            if len(fitted) == 4 and epoch == 2:
                raise KeyboardInterrupt

        fitted.append(options["checkpoint"])
        return fit_network(*arguments, report=interrupt, **options)

    monkeypatch.setattr(second_stage, "fit_network", killed)
    assert run(recipe, "--trials", 7, "--study", folder) == 130
    assert "the same command goes on" in printed_text(capsys)
    monkeypatch.undo()

    def counted(*arguments, **options):
        before = options["checkpoint"].exists()
        found = fit_network(*arguments, **options)
        epochs.append((options["checkpoint"].name, before))
        return found

    def again(*_arguments, **_options):
        pytest.fail("the first stage was finished and must not be tuned again")

    monkeypatch.setattr(second_stage, "fit_network", counted)
    monkeypatch.setattr(lambdamart, "tune", again)
    assert run(recipe, "--trials", 7, "--study", folder) == 0
    assert epochs[0] == ("trial-4.pt", True), "the trial under way goes on from its last epoch"
    assert (folder / "winner.toml").read_text() == (study / "winner.toml").read_text()


def test_a_search_survives_a_real_kill(study, recipe, tmp_path):
    folder = tmp_path / "tiny"
    command = [sys.executable, "-m", "listwright", "tune", str(recipe), "--trials", "7", "--study", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd=tmp_path) as process:

        def begun():
            assert process.poll() is None, "it was over before it could be killed"
            return (folder / "state" / "trial-3.pt").exists()

        try:
            until(begun, pause_s=0.005)
        finally:
            process.kill()
    assert run(recipe, "--trials", 7, "--study", folder) == 0
    assert (folder / "winner.toml").read_text() == (study / "winner.toml").read_text()


def test_a_mistake_takes_nothing_away_from_a_folder_that_was_there(recipe, tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    options = ("--model", "first_stage", "--first-stage-column", "x0", "--study", tmp_path)
    assert run(recipe, *options) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_terminal_a_search_is_told_in_plain_lines(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bars, "LINE_S", 0.0)
    monkeypatch.setattr(bars, "CHECK_S", 0.002)
    assert run(recipe, "--trials", 1, "--study", tmp_path / "told") == 0
    printed = capsys.readouterr().out
    for told in (r"Tuning LightGBM.*, \d of 1", r"QILCM.*, \d of 1"):
        assert re.search(rf"^0:00:\d\d  {told}", printed, re.MULTILINE), told
    assert "\x1b" not in printed


def test_a_finished_study_answers_at_once(study, recipe, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "tiny"
    shutil.copytree(study, folder)
    monkeypatch.setattr(second_stage, "fit_network", lambda *_a, **_o: pytest.fail("nothing is left to do"))
    assert run(recipe, "--trials", 7, "--study", folder) == 0
    assert (study / "winner.toml").read_text().split("\n", 1)[1] in capsys.readouterr().out


def test_more_trials_say_that_the_first_stage_had_fewer(study, recipe, tmp_path, capsys):
    folder = tmp_path / "tiny"
    shutil.copytree(study, folder)
    assert run(recipe, "--trials", 8, "--study", folder) == 0
    assert "the first stage was tuned with 7 trials, fewer than 8: a new --study" in printed_text(capsys)


def test_minutes_that_are_over_leave_one_setting_to_first_stages_on_workers(recipe, tmp_path):
    class Here(Executor):
        def submit(self, function, /, *arguments, **options):
            done = Future()
            done.set_result(function(*arguments, **options))
            return done

    read = config.load(str(recipe))
    splits = load(read, [])
    workers = TrialWorkers(Here(), 1, lambda: splits)
    budget = Budget(1.0, clock=iter([0.0, *[60.0] * 1000]).__next__)
    winner = study_module.tune(
        read, splits, tmp_path, trials=7, device="cpu", progress=SILENT, workers=workers, budget=budget
    )
    assert winner.first_stage_trials == 1


@pytest.mark.parametrize(("jobs", "seconds"), [(1, (60 - ENDING_S) / 4), (2, (60 - ENDING_S) / 2)])
def test_first_stages_one_after_the_other_share_half_of_the_time(recipe, tmp_path, jobs, seconds):
    class Recorder(Executor):
        def submit(self, _function, /, *arguments):
            given.append(arguments[-1])
            done = Future()
            done.set_exception(KeyboardInterrupt())
            return done

    given, read = [], config.load(str(recipe))
    read = config.changed(read, {"first_stage": read.first_stage.model_copy(update={"relative": "auto"})})
    splits = load(read, [])
    workers = TrialWorkers(Recorder(), jobs, lambda: splits)
    more = {"device": "cpu", "progress": SILENT, "workers": workers, "budget": Budget(1.0, clock=lambda: 0.0)}
    with pytest.raises(KeyboardInterrupt):
        study_module.tune(read, splits, tmp_path, trials=7, **more)
    assert given == pytest.approx([seconds / 60] * 2)


def test_lightgbm_is_searched_where_it_stands_alone(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lambdamart, "PRUNE_AFTER", 5)
    monkeypatch.setattr(boosting, "REPORT_EVERY", 5)
    assert run(recipe, "--trials", 9, "--model", "first_stage") == 0
    study = tmp_path / "studies" / "tiny-first_stage"
    text = (study / "winner.toml").read_text()
    assert "# LightGBM: validation NDCG@10" in text
    assert int(re.search(r"9 trials, (\d) of them ended early", text).group(1)) > 0
    assert "[model]" not in text
    found = config.load(str(with_winner(study, tmp_path / "tuned.toml")))
    best, own = map(float, re.search(r"NDCG@10 (\S+), the recipe's own values (\S+);", text).groups())
    assert best > own
    assert found.first_stage.settings.learning_rate != config.LambdaMartSettings().learning_rate


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--trials", 0], "--trials 0: expected 1 or more"),
        (["--model", "bert"], "no model 'bert': use one of qilcm"),
        (["--device", "abacus"], "--device 'abacus' cannot be used"),
        (["--study", "a.file/x"], "a.file/x cannot be made: Not a directory; choose another --study"),
        (["--data", "x"], "makes its own data"),
        (
            ["--model", "first_stage", "--first-stage-column", "x0"],
            "has nothing to tune: its first stage is a given column, and it has no second one; name a network",
        ),
    ],
)
def test_mistakes_are_named_with_their_remedy(recipe, tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.file").touch()
    monkeypatch.setattr(lambdamart, "search_settings", lambda *_a, **_o: pytest.fail("too late"))
    assert run(recipe, *arguments) == 1
    assert says in printed_text(capsys)
    assert [path.name for path in tmp_path.rglob("study.json")] == [], "a corrected command is not held up"


def test_a_study_belongs_to_one_recipe(study, recipe, capsys):
    assert run(recipe, "--seed", 5, "--study", study) == 1
    assert "holds a study with other recipe: choose another --study, or delete it" in printed_text(capsys)
