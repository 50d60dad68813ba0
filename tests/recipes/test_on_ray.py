"""Real Ray clusters of one-core nodes, one of which is lost in the middle of each kind of work."""

import os
import signal

import polars as pl
import pytest

from listwright.training import experiment, tune
from support.training.ray_cluster import cluster, ended
from support.training.tiny import TINY
from support.waiting import until

pytest.importorskip("ray", reason="needs pip install 'listwright[ray]'")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("default")]

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

    status, said = ray.run_and_lose_a_node("experiment", *TABLE3, "--recipe", planted, "--out", there, when=half_done)
    assert status == 0, said
    assert results(there).equals(results(here))


def test_a_search_that_loses_a_node_ends_as_one_in_processes(ray, recipe, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    words = (str(recipe), "--trials", "6", "--jobs", "2", "--model", "first_stage")
    assert tune.main([*words, "--study", str(here)]) == 0
    begun = there / "state" / "lightgbm.journal"
    status, said = ray.run_and_lose_a_node("tune", *words, "--study", there, when=begun.exists)
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
