"""What a tracked fit logs, and what happens where that fails."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from listwright import command as listwright
from listwright.ranking.errors import RecipeError
from listwright.training.console import command
from listwright.training.pipeline import tracking
from listwright.training.pipeline.tracking import Tracker, flat, redact, results
from listwright.training.recipe import config
from support.training.progress import RecordedProgress
from support.waiting import until

ROOT = Path(__file__).resolve().parents[3]


class Follower:
    """Follows stand-ins of a fit, as attempts at one bundle."""

    def __init__(self, folder):
        self.out, self.folder, self.progress = folder / "shop" / "1", folder / "partial", RecordedProgress()
        self.folder.mkdir()

    def follow(self, tracker, points, end):
        def fit():
            for name, step, value in points:
                tracker.log(name, step, value)
            if isinstance(end, BaseException):
                raise end
            return end

        recipe = config.load("demo")
        return tracker.follow(fit, self.out, recipe, "abc", folder=self.folder, progress=self.progress)


REPORT = SimpleNamespace(
    default={"strategy": "first_stage"},
    metrics=[
        SimpleNamespace(ranker="first_stage", name="ndcg@10", mean=0.75),
        SimpleNamespace(ranker="qilcm", name="mrr", mean=0.5),
    ],
)


def curves(folder):
    """Of the one run under the folder."""
    (run,) = {path.parent for path in folder.rglob("events.*")}
    events = EventAccumulator(str(run)).Reload()
    return {
        name: [(event.step, round(event.value, 4)) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


@pytest.fixture
def follower(tmp_path):
    return Follower(tmp_path)


def test_an_interrupted_fit_goes_on_in_its_run_and_repeats_no_step(follower, tmp_path):
    uri = f"tensorboard:{tmp_path / 'runs'}"
    with pytest.raises(KeyboardInterrupt):
        follower.follow(Tracker(uri), [("qilcm/valid_ndcg", 1, 0.25)], KeyboardInterrupt())
    points = [("qilcm/valid_ndcg", 1, 0.25), ("qilcm/valid_ndcg", 2, 0.5)]
    assert follower.follow(Tracker(uri), points, REPORT) is REPORT
    assert curves(tmp_path / "runs") == {
        "qilcm/valid_ndcg": [(1, 0.25), (2, 0.5)],
        "test/first_stage/ndcg_at_10": [(0, 0.75)],
        "test/default/ndcg_at_10": [(0, 0.75)],
        "test/qilcm/mrr": [(0, 0.5)],
    }
    assert follower.progress.said == []


def test_curves_grow_while_the_fit_runs(follower, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    tracker, seen = Tracker(f"tensorboard:{tmp_path / 'runs'}"), []

    def points():
        yield "lightgbm/ndcg_trial_1", 10, 0.5
        tracker._thread.join()
        yield "lightgbm/ndcg_trial_1", 20, 0.75
        tracker._thread.join()
        seen.append(curves(tmp_path / "runs"))

    follower.follow(tracker, points(), REPORT)
    assert seen == [{"lightgbm/ndcg_trial_1": [(10, 0.5), (20, 0.75)]}]


def test_a_fit_waits_for_nothing_and_its_folder_may_go(follower, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    tracker, over = Tracker(f"tensorboard:{tmp_path / 'runs'}"), Event()
    begin = tracker._run.open
    monkeypatch.setattr(tracker._run, "open", lambda *args: over.wait() and begin(*args))

    def points():
        yield "x", 1, 1.0
        yield "x", 2, 2.0
        shutil.rmtree(follower.folder)
        over.set()

    follower.follow(tracker, points(), REPORT)
    assert curves(tmp_path / "runs")["x"] == [(1, 1.0), (2, 2.0)]
    assert follower.progress.said == []
    assert not follower.folder.exists()


def test_a_fit_that_is_killed_remembers_its_run(follower, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    tracker = Tracker(f"tensorboard:{tmp_path / 'runs'}")

    def points():
        yield "x", 1, 1.0
        tracker._thread.join()
        yield "x", 2, 2.0
        (run,) = (tmp_path / "runs" / "shop").iterdir()
        assert json.loads((follower.folder / "tracking.json").read_text())["run"] == f"shop/{run.name}"

    follower.follow(tracker, points(), REPORT)


def test_a_resumed_fit_whose_run_was_deleted_is_tracked(follower, tmp_path):
    uri = f"tensorboard:{tmp_path / 'runs'}"
    with pytest.raises(KeyboardInterrupt):
        follower.follow(Tracker(uri), [("x", 1, 1.0)], KeyboardInterrupt())
    shutil.rmtree(tmp_path / "runs")
    follower.follow(Tracker(uri), [("x", 2, 2.0)], REPORT)
    assert curves(tmp_path / "runs")["x"] == [(2, 2.0)]
    assert follower.progress.said == []


def test_a_folder_may_begin_with_the_home(follower, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    follower.follow(Tracker("tensorboard:~/runs"), [("x", 1, 1.0)], REPORT)
    assert curves(tmp_path / "runs")["x"] == [(1, 1.0)]


def test_another_uri_is_another_run(follower, tmp_path):
    for name in ("a", "b"):
        with pytest.raises(KeyboardInterrupt):
            follower.follow(Tracker(f"tensorboard:{tmp_path / name}"), [("x", 1, 1.0)], KeyboardInterrupt())
    assert curves(tmp_path / "a") == curves(tmp_path / "b") == {"x": [(1, 1.0)]}


@pytest.mark.parametrize("end", [REPORT, KeyboardInterrupt()], ids=["published", "interrupted"])
def test_what_fails_is_one_note_and_nothing_else(follower, tmp_path, monkeypatch, end):
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    (tmp_path / "runs").write_text("not a folder")
    tracker = Tracker(f"tensorboard:{tmp_path / 'runs'}")
    points = [("x", step, 1.0) for step in range(3)]
    if end is REPORT:
        assert follower.follow(tracker, points, end) is REPORT
    else:
        with pytest.raises(KeyboardInterrupt):
            follower.follow(tracker, points, end)
    (note,) = follower.progress.said
    assert "Error" in note
    assert list(follower.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("end", "status"), [(REPORT, "FINISHED"), (KeyboardInterrupt(), "KILLED"), (OSError(), "FAILED")]
)
def test_what_a_server_missed_is_sent_at_the_end(follower, tmp_path, monkeypatch, end, status):
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    (tmp_path / "runs").write_text("not a folder")
    tracker = Tracker(f"tensorboard:{tmp_path / 'runs'}")

    def points():
        yield "x", 1, 1.0
        until(lambda: follower.progress.said)
        (tmp_path / "runs").unlink()
        yield "x", 2, 2.0

    ends = []
    monkeypatch.setattr(tracker._run, "close", ends.append)
    if end is REPORT:
        follower.follow(tracker, points(), end)
    else:
        with pytest.raises(type(end)):
            follower.follow(tracker, points(), end)
    assert curves(tmp_path / "runs")["x"] == [(1, 1.0), (2, 2.0)]
    assert ends == [status]
    assert len(follower.progress.said) == 1


def test_a_store_that_hangs_is_left_alone(follower, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "WAIT_S", 0.01)
    over = Event()
    tracker = Tracker(f"tensorboard:{tmp_path / 'runs'}")
    monkeypatch.setattr(tracker._run, "open", lambda *_: over.wait())
    assert follower.follow(tracker, [("x", 1, 1.0)], REPORT) is REPORT
    over.set()
    (note,) = follower.progress.said
    assert "no answer" in note


@pytest.mark.parametrize("uri", ["tensorboard:", "tensorboard: ", "tensorboard://", "tensorboard://runs"])
def test_a_bad_uri_is_refused_before_the_fit(uri):
    with pytest.raises(RecipeError, match=f"{uri}: names no folder: write tensorboard:DIR"):
        Tracker(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite+pysqlite://",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:////",
    ],
)
@pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")
def test_a_database_without_a_file_is_refused(uri):
    pytest.importorskip("mlflow")
    with pytest.raises(RecipeError, match="names no file, so that the runs would be lost: write sqlite:///FILE"):
        Tracker(uri)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "uri",
    [
        "runs",
        "http://",
        "http://[::1",
        "http://me:secret@host:port",
        "postgresql://me:secret@host:port/db",
        "file:runs",
        "htp://h:1",
        "sqlite//runs.db",
        "http://me:secret@",
    ],
)
def test_a_bad_uri_of_mlflow_is_refused_before_the_fit(uri):
    with pytest.raises(RecipeError) as raised:
        Tracker(uri)
    assert "expected" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "library", "extra"),
    [("http://localhost:5000", "mlflow", "mlflow"), ("tensorboard:runs", "tensorboard", "tensorboard")],
)
def test_without_its_extra_an_uri_is_refused_by_name(uri, library, extra, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RecipeError, match=rf"needs {library}.*listwright\[{extra}\]"):
        Tracker(uri)


@pytest.mark.nightly
def test_without_its_driver_a_database_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(RecipeError, match="needs pymysql: install it"):
        Tracker("mysql+pymysql://me:secret@host/db")


@pytest.mark.nightly
@pytest.mark.parametrize("uri", ["databricks", "databricks://profile", "https://host", "sqlite:///runs.db"])
def test_what_mlflow_takes_is_not_refused(uri):
    assert Tracker(uri).uri == uri


def test_without_its_extra_fetch_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "listwright.training.commands.fetch", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert listwright.main(["fetch", "models:/shop@champion", "--out", "shop/1"]) == 1
    assert capsys.readouterr().err == "error: listwright fetch needs mlflow: pip install 'listwright[mlflow]'\n"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("http://me:secret@host:5000", "http://host:5000"),
        ("postgresql://me:se@cret@host/db?password=secret", "postgresql://host/db"),
        ("request to https://token@host/api failed", "request to https://host/api failed"),
        ("http://me:s'e\"c ret@host:5000", "http://host:5000"),
        ("request to http://me:s ecret@host failed\nhttp://other", "request to http://host failed\nhttp://other"),
        ("sqlite:///runs.db", "sqlite:///runs.db"),
    ],
)
def test_credentials_are_removed(text, plain):
    assert redact(text) == plain


@pytest.mark.parametrize("option", ["--track", "--trac", "--tra", "--tr"])
@pytest.mark.parametrize("form", ["{} http://me:secret@host", "{}=http://me:secret@host"])
def test_the_command_in_reports_does_not_track(option, form):
    words = ["demo", *form.format(option).split(), "--seed", "3"]
    assert command.repeatable("fit", words) == "listwright fit demo --seed 3"


def test_a_recipe_is_flat_and_complete():
    recipe = config.load("demo").model_dump(mode="json")
    fields = flat(recipe)
    assert (fields["model.kind"], fields["first_stage.trials"], fields["seed"]) == ("qilcm", "2", "0")
    assert json.loads(fields["first_stage.settings"]) == recipe["first_stage"]["settings"]
    assert "specialists" not in fields


def test_results_name_the_ranker_that_answers():
    assert results(REPORT) == {
        "test/first_stage/ndcg_at_10": 0.75,
        "test/default/ndcg_at_10": 0.75,
        "test/qilcm/mrr": 0.5,
    }


@pytest.mark.nightly
def test_a_fit_without_the_option_loads_none_of_the_libraries():
    code = "import listwright.training.commands.fit, listwright.training.pipeline.run, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "torch" in loaded
    assert loaded.isdisjoint({"mlflow", "tensorboard", "sqlalchemy", "alembic"})
