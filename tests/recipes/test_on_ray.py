"""Real Ray clusters of one-core nodes, one of which is lost in the middle of each kind of work."""

import json
import os
import signal

import numpy as np
import polars as pl
import pytest

from listwright.training.commands import score, tune
from listwright_lab import experiment
from support.training.ray_cluster import cluster, ended
from support.training.tiny import TINY
from support.waiting import until

pytest.importorskip("ray", reason="needs pip install 'listwright[ray]'")

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("default")]

TABLE3 = ("table3", "--seeds", "2", "--shifts", "0")


@pytest.fixture(scope="module")
def ray():
    with cluster() as found:
        yield found


@pytest.fixture
def planted(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.replace("queries = 60", "queries = 60\nshift = 0.5"))
    return path


def results(folder):
    return pl.read_parquet(folder / "results.parquet").drop("seconds")


def test_an_experiment_that_loses_a_node_has_the_results_of_processes(ray, planted, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert experiment.main([*TABLE3, "--recipe", str(planted), "--jobs", "2", "--out", str(here)]) == 0

    def half_done():
        return len(list((there / "parts").glob("*.parquet"))) >= 2

    status, said = ray.run_and_lose_nodes("experiment", *TABLE3, "--recipe", planted, "--out", there, when=[half_done])
    assert status == 0, said
    assert results(there).equals(results(here))


def test_a_client_of_a_cluster_gets_the_results_of_processes(ray, planted, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert experiment.main([*TABLE3, "--recipe", str(planted), "--jobs", "2", "--out", str(here)]) == 0
    status, said = ray.run("experiment", *TABLE3, "--recipe", planted, "--out", there, on=ray.client)
    assert status == 0, said
    assert results(there).equals(results(here))


def test_a_search_that_loses_a_node_ends_as_one_in_processes(ray, recipe, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    words = (str(recipe), "--trials", "6", "--jobs", "2", "--model", "first_stage")
    assert tune.main([*words, "--study", str(here)]) == 0
    begun = there / "state" / "lightgbm.journal"
    status, said = ray.run_and_lose_nodes("tune", *words, "--study", there, when=[begun.exists])
    assert status == 0, said
    assert (there / "winner.toml").read_text() == (here / "winner.toml").read_text()


def test_an_interrupted_experiment_goes_on_and_leaves_no_task(ray, planted, tmp_path):
    out = tmp_path / "out"
    words = (*TABLE3, "--recipe", planted, "--out", out)
    process = ray.start("experiment", *words)
    until(lambda: list((out / "parts").glob("*.parquet")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)
    status, said = ended(process)
    assert status == 130, said
    assert "the same command goes on" in said
    kept = {path: path.stat().st_mtime_ns for path in (out / "parts").glob("*.parquet")}
    assert 1 <= len(kept) < 10
    status, said = ray.run("experiment", *words)
    assert status == 0, said
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_scoring_that_loses_a_node_writes_the_file_of_processes(ray, fitted, tmp_path, monkeypatch):
    schema = json.loads((fitted / "manifest.json").read_text())["feature_schema"]["features"]
    rng = np.random.default_rng(0)
    queries, length = 30_000, 10
    columns = {
        feature["name"]: rng.choice(feature["categories"], queries * length)
        if feature["kind"] == "categorical"
        else rng.normal(size=queries * length)
        for feature in schema
    }
    rows = tmp_path / "rows.parquet"
    pl.DataFrame({"qid": np.repeat(np.arange(queries), length), **columns}).write_parquet(rows)
    words = (str(fitted), "--data", str(rows), "--qid", "qid")
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    assert score.main([*words, "--jobs", "2", "--out", str(here)]) == 0

    def begun():
        return (tmp_path / ".there.parquet.partial" / "job.json").exists()

    status, said = ray.run_and_lose_nodes("score", *words, "--out", there, when=[begun])
    assert status == 0, said
    assert pl.read_parquet(there).equals(pl.read_parquet(here))


def test_a_fit_that_loses_nodes_ends_with_the_same_bundle(ray, tmp_path):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        TINY.replace("folds = 3", "folds = 2").replace("max_epochs = 3", "max_epochs = 40\npatience = 40")
    )
    words = (recipe, "--quick", "--workers", 2)
    whole, other = tmp_path / "whole" / "1", tmp_path / "other" / "1"
    node = ray.add()
    status, said = ray.run("fit", *words, "--out", whole)
    ray.kill(node)
    assert status == 0, said
    state = tmp_path / "other" / ".1.partial" / "state"
    in_trees, in_epochs = (state / name for name in ("plain_trials_valid.journal", "qilcm.pt"))
    status, said = ray.run_and_lose_nodes("fit", *words, "--out", other, when=[in_trees.exists, in_epochs.exists])
    assert status == 0, said
    for name in ("first_stage.txt", "qilcm.onnx"):
        assert (other / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_cluster_without_room_says_so(ray, planted, tmp_path, monkeypatch):
    status, said = ray.run("fit", planted, "--quick", "--workers", 2, "--out", tmp_path / "m" / "1", room_s=5)
    assert status == 1
    assert "the cluster has no room: no core was free for 5 s" in " ".join(said.split())
