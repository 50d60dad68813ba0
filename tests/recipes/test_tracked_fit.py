"""Fits that MLflow follows, from the command line to a model that is loaded, registered and fetched again."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import chdir

import httpx
import pytest
from mlflow import MlflowClient, pyfunc, set_tracking_uri

from listwright.ranking import bundle
from listwright.training.commands import fetch, fit
from listwright.training.console.bars import Bars
from listwright.training.pipeline import steps as fit_parts
from listwright.training.pipeline import tracking
from support.http.processes import free_port
from support.training.scored import answers
from support.waiting import until

pytestmark = [
    pytest.mark.nightly,
    # what MLflow's own libraries deprecate
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(*arguments):
    return fit.main([str(argument) for argument in arguments])


def runs_of(client, experiment="tiny"):
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def files_of(client, run, path=None):
    for file in client.list_artifacts(run, path):
        yield from files_of(client, run, file.path) if file.is_dir else [file.path]


@pytest.fixture(scope="module")
def store(tmp_path_factory, recipe):
    """A store with one fit, whose model is registered as ``shop`` with the alias ``champion``: client, URI, bundle."""
    folder = tmp_path_factory.mktemp("tracked")
    uri, out = f"sqlite:///{folder}/runs.db", folder / "models" / "tiny" / "1"
    with chdir(folder):  # the store keeps artifacts where it is begun
        assert run(recipe, "--out", out, "--track", uri) == 0
    client = MlflowClient(uri, uri)
    (tracked,) = runs_of(client)
    client.create_registered_model("shop")
    client.create_model_version("shop", f"{tracked.info.artifact_uri}/model", tracked.info.run_id)
    client.set_registered_model_alias("shop", "champion", "1")
    yield client, uri, out
    set_tracking_uri(None)


def test_a_run_has_recipe_results_report_and_curves(store):
    client, _, out = store
    (tracked,) = runs_of(client)
    report = json.loads((out / "report.json").read_text())
    assert (tracked.info.run_name, tracked.info.status) == ("tiny/1", "FINISHED")
    params, metrics = tracked.data.params, tracked.data.metrics
    assert (params["data.queries"], params["model.kind"]) == ("60", "qilcm")
    assert params["data_fingerprint"] == report["repeat"]["data_fingerprint"]
    for metric in report["metrics"]:
        assert metrics[f"test/{metric['ranker']}/{metric['name'].replace('@', '_at_')}"] == metric["mean"]
    assert metrics["test/default/mrr"] == metrics[f"test/{report['default_strategy']['strategy']}/mrr"]

    def curve(name):
        return {metric.step: metric.value for metric in client.get_metric_history(tracked.info.run_id, name)}

    learning = report["details"]["learning"]
    epochs = {row[0]: row[learning["columns"].index("valid_ndcg")] for row in learning["epochs"]}
    assert curve("qilcm/valid_ndcg") == pytest.approx(epochs, abs=1e-6)
    assert set(curve("lightgbm/ndcg_trial_2")) == {10, 20}
    assert set(curve("lightgbm_relative/ndcg_by_fold")) == {1, 2, 3}
    compared = {row["ranker"]: row["mean"] for row in report["default_strategy"]["compared"]}
    assert curve("qilcm/gain_so_far")[4] == compared["qilcm"]
    names = set(files_of(client, tracked.info.run_id))
    assert {"recipe.json", "report.html", "model/MLmodel", "model/data/1/manifest.json"} <= names


def test_the_loaded_model_predicts_what_the_service_answers(store, tmp_path):
    import pandas as pd
    import polars as pl

    _, uri, out = store
    set_tracking_uri(uri)
    model = pyfunc.load_model("models:/shop@champion")
    names = bundle.load(out).manifest.feature_schema.names
    rows = {name: [0.1, 0.5, None, 0.9, -1.5, 2.0] for name in names}
    rows[names[-1]] = ["0", "1", None, "2", "unheard of", "0"]
    frame = pl.DataFrame({"query": ["a", "a", "a", "b", "b", "b"], **rows})
    for strategy in ("auto", "qilcm"):
        found = model.predict(
            pd.DataFrame(frame.to_dict(as_series=False)), params={"qid": "query", "strategy": strategy}
        )
        columns = found[["score", "rank", "first_stage_score", "strategy"]]
        assert list(columns.itertuples(index=False, name=None)) == list(answers(out, frame, names, strategy=strategy))


def test_a_model_is_fetched_whole_by_alias_version_and_run(store, tmp_path, capsys):
    client, uri, out = store
    (tracked,) = runs_of(client)
    for number, model in enumerate(["models:/shop@champion", "models:/shop/1", f"runs:/{tracked.info.run_id}/model"]):
        folder = tmp_path / "shop" / str(number)
        assert fetch.main([model, "--track", uri, "--out", str(folder)]) == 0
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            path.name: path.read_bytes() for path in out.iterdir()
        }
    assert fetch.main([model, "--track", uri, "--out", str(folder)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == ["0", "1", "2"]


def test_what_is_damaged_or_absent_is_not_fetched(store, tmp_path, capsys, monkeypatch):
    client, uri, _ = store
    (tracked,) = runs_of(client)
    damaged = tmp_path / "model"
    client.download_artifacts(tracked.info.run_id, "model", str(tmp_path))
    (damaged / "data" / "1" / "first_stage.txt").write_text("no model")
    client.create_model_version("shop", str(damaged))
    (tmp_path / "empty").mkdir()
    client.create_model_version("shop", str(tmp_path / "empty"))
    for model, says in (
        ("models:/shop/2", "models:/shop/2/first_stage.txt"),
        ("models:/shop/3", "holds 0 bundles"),
        ("models:/shop@nobody", "nobody"),
    ):
        assert fetch.main([model, "--track", uri, "--out", str(tmp_path / "shop" / "1")]) == 1
        told = capsys.readouterr().err
        assert says in told
        assert str(tmp_path) not in told
        assert list((tmp_path / "shop").iterdir()) == []
    typo = tmp_path / "typo.db"
    assert fetch.main([model, "--track", f"sqlite:///{typo}", "--out", str(tmp_path / "shop" / "1")]) == 1
    assert str(typo) in capsys.readouterr().err
    assert not typo.exists()
    closed = f"http://me:secret@127.0.0.1:{free_port()}"
    assert fetch.main([model, "--track", closed, "--out", str(tmp_path / "shop" / "1")]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1" in told
    assert "secret" not in told
    set_tracking_uri(None)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert fetch.main([model, "--out", str(tmp_path / "shop" / "1")]) == 1
    assert "--track" in capsys.readouterr().err


def test_a_resumed_fit_continues_its_run(store, recipe, tmp_path, monkeypatch, capsys):
    client, uri, _ = store
    out = tmp_path / "again" / "1"

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("listwright.training.pipeline.run.write_bundle", interrupt)
    assert run(recipe, "--quick", "--out", out, "--track", uri) == 130
    (killed,) = runs_of(client, "again")
    assert killed.info.status == "KILLED"
    monkeypatch.undo()
    assert run(recipe, "--quick", "--out", out, "--track", uri, "--resume") == 0
    (resumed,) = runs_of(client, "again")
    assert (resumed.info.run_id, resumed.info.status) == (killed.info.run_id, "FINISHED")
    for name in resumed.data.metrics:
        steps = Counter(metric.step for metric in client.get_metric_history(resumed.info.run_id, name))
        assert set(steps.values()) == {1}, name
    assert {"lightgbm/ndcg_by_fold", "qilcm/valid_ndcg", "test/default/mrr"} <= set(resumed.data.metrics)


def test_a_server_that_is_down_costs_one_note_and_no_secret_leaks(recipe, tmp_path, capfd):
    out = tmp_path / "tiny" / "1"
    uri = f"http://me:secret@127.0.0.1:{free_port()}"
    assert run(recipe, "--quick", "--out", out, "--track", uri) == 0
    told = capfd.readouterr()
    assert told.out.count("Note: --track") == 1
    assert told.err == ""
    assert bundle.load(out).manifest.version == "1"
    written = [told.out, *(path.read_text(errors="replace") for path in out.iterdir())]
    assert [text for text in written if "secret" in text] == []


def test_an_interrupted_fetch_leaves_nothing(store, tmp_path, monkeypatch, capsys):
    _, uri, _ = store

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle, "load", interrupt)
    assert fetch.main(["models:/shop@champion", "--track", uri, "--out", str(tmp_path / "shop" / "1")]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert list((tmp_path / "shop").iterdir()) == []


def test_a_run_that_was_deleted_or_is_unknown_is_begun_anew(store, tmp_path, monkeypatch):
    client, uri, _ = store
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "")
    tracked, out = tracking.MlflowRun(uri), tmp_path / "deleted" / "1"
    first = tracked.open(out, None)
    assert tracked.open(out, first) == first
    client.delete_run(first)
    second = tracked.open(out, first)
    assert tracked.open(out, "unknown") not in (first, second)
    assert {run.info.status for run in runs_of(client, "deleted")} == {"RUNNING"}
    assert len(runs_of(client, "deleted")) == 2


BEGIN = """
import sys
from pathlib import Path
from listwright.training.pipeline.tracking import MlflowRun
run = MlflowRun(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
run.open(Path(sys.argv[2]), None)
"""


def test_fits_may_begin_one_file_of_sqlite_together(tmp_path):
    uri, out = f"sqlite:///{tmp_path}/new/runs.db", str(tmp_path / "shop" / "1")
    command = [sys.executable, "-W", "ignore", "-c", BEGIN, uri, out]
    fits = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    for process in fits:
        assert process.stdout.readline() == b"ready\n"
    for process in fits:
        process.stdin.close()
    assert [process.wait() for process in fits] == [0, 0, 0]
    for process in fits:
        process.stdout.close()
    assert len(runs_of(MlflowClient(uri), "shop")) == 3


class Server:
    """``mlflow server`` on a port of its own, which can be stopped and started again."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        # one process, which needs none of the libraries of MLflow's own jobs
        own = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        store = ["--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *store, "--port", str(self.port), "--workers", "1"],
            cwd=self.folder,
            env={**os.environ, **own, "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self.answers)

    def answers(self):
        assert self.process.poll() is None
        try:
            return httpx.get(self.url + "/health").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


def test_what_a_server_missed_in_the_middle_is_there_in_the_end(recipe, tmp_path, monkeypatch):
    server, out = Server(tmp_path), tmp_path / "tiny" / "1"
    monkeypatch.setattr(tracking, "SEND_S", 0.0)
    fit_networks, publish, notes = fit_parts.fit_networks, bundle.publish, []

    def remark(_bars, text):
        notes.extend([text] if text.startswith("--track") else [])

    def after_a_crash(*arguments):
        server.stop()
        return fit_networks(*arguments)

    def after_a_restart(*arguments):
        until(lambda: notes)
        server.start()
        publish(*arguments)

    monkeypatch.setattr(Bars, "remark", remark)
    monkeypatch.setattr(fit_parts, "fit_networks", after_a_crash)
    monkeypatch.setattr(bundle, "publish", after_a_restart)
    try:
        assert run(recipe, "--quick", "--out", out, "--track", server.url) == 0
        assert len(notes) == 1
        client = MlflowClient(server.url)
        (tracked,) = runs_of(client)
        assert tracked.info.status == "FINISHED"
        assert {"lightgbm/ndcg_by_fold", "qilcm/valid_ndcg", "test/default/mrr"} <= set(tracked.data.metrics)
        assert "model/MLmodel" in set(files_of(client, tracked.info.run_id))
    finally:
        server.stop()
