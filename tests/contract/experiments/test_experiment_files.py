"""The file, the kill switch and the bundles change while the service runs."""

import httpx
import pytest

from listwright.service.bundles import folder
from support.experiments import experiment, written
from support.http.processes import Process
from support.http.rerank_requests import matrix
from support.http.worker_processes import both_ready
from support.service.bundles import make_bundle
from support.waiting import until


def part(client, number=0):
    answer = client.post("/rerank", json=matrix() | {"query_id": f"query-{number}"})
    assert answer.status_code == 200
    return answer.json()["meta"].get("experiment")


def named(client):
    return (part(client) or {}).get("name")


def test_files_come_change_and_go(running, file):
    with running() as client:
        assert named(client) is None
        written(file, experiment("interleave"))
        until(lambda: named(client) == "first")
        written(file, experiment("explore", name="second"))
        until(lambda: named(client) == "second")
        file.with_suffix(".new").write_text("[[experiment]")
        file.with_suffix(".new").replace(
            file
        )  # a file that is written in place is empty for a moment, which is no fault
        until(lambda: client.get("/info").json()["experiments"]["refused"])
        assert named(client) == "second", "the last one stays"
        metric = client.app.service.telemetry.registry.get_sample_value
        assert metric("listwright_experiments_refused") == 1
        file.unlink()
        until(lambda: named(client) is None)
        until(lambda: metric("listwright_experiments_refused") == 0)
        assert metric("listwright_experiment_running", {"experiment": "second", "kind": "explore"}) is None


def test_the_kill_switch_ends_all_and_gives_them_back(running, tmp_path):
    switch = tmp_path / "off"
    with running(experiment("interleave"), experiments_off_file=switch) as client:
        until(lambda: named(client) == "first")
        switch.touch()
        until(lambda: named(client) is None)
        told = client.get("/info").json()["experiments"]
        assert told["killed"] == told["experiments"][0]["reason"] is not None
        switch.unlink()
        until(lambda: named(client) == "first")


def test_a_wrong_file_at_the_start_keeps_nobody_from_being_served(running, file):
    file.write_bytes(b"\xff")
    with running() as client:
        assert named(client) is None
        assert "UTF-8" in client.get("/info").json()["experiments"]["refused"]


def state(client):
    (found,) = client.get("/info").json()["experiments"]["experiments"]
    return found["running"], found["reason"]


def test_an_experiment_runs_once_its_challenger_is_served(running, served):
    current = served / "next" / "CURRENT"
    current.unlink()
    with running(experiment("interleave"), models=served) as client:
        assert state(client)[0] is False
        assert "'next' is not served" in state(client)[1]
        assert named(client) is None
        folder.point(served, "next", "1")
        until(lambda: state(client) == (True, None))
        assert named(client) == "first"
        current.unlink()
        until(lambda: named(client) is None)


def test_an_experiment_of_one_version_ends_with_it(running, served):
    make_bundle(served / "shop" / "2", seed=9)
    with running(experiment("interleave", control="shop/1"), models=served) as client:
        assert named(client) == "first"
        folder.point(served, "shop", "2")
        until(lambda: client.get("/info?model=shop").json()["version"] == "2")
        assert named(client) is None, "shop/1 is kept for a rollback, and nobody asks for it"


@pytest.mark.nightly
def test_workers_and_restarts_give_the_same_lists(rivals, file):
    written(file, experiment("interleave", share=0.7))
    seen = []
    for workers in (2, 2, 1):
        service = Process(models=rivals, experiments=file, workers=workers).wait_until_ready()
        if workers == 2:
            both_ready(service)
        for _ in range(3):
            lists = []
            for number in range(12):
                answer = httpx.post(service.url + "/rerank", json=matrix() | {"query_id": f"query-{number}"}).json()
                lists.append((answer["meta"].get("experiment"), answer["ranks"]))
            seen.append(lists)
        assert service.stop()[0] == 0
    assert all(lists == seen[0] for lists in seen)
    assert {part is None for part, _ in seen[0]} == {True, False}
