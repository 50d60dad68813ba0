"""What ``--on`` may say, and what is said when no cluster can be used."""

import sys

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training import cluster
from listwright.training.cluster import OBJECT_STORE_BYTES, STARTS, connected
from support.training.ray_stand_in import RayStandIn


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in (
        "OMP_NUM_THREADS",
        "RAY_USAGE_STATS_ENABLED",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        "RAY_task_oom_retries",
        "RAY_worker_niceness",
    ):
        monkeypatch.setenv(name, "1")


def connect(monkeypatch, ray, on="ray", cores=None):
    monkeypatch.setitem(sys.modules, "ray", ray)
    with connected(on, cores) as (module, found):
        return module, found


def test_a_local_ray_is_bounded_and_ended(monkeypatch):
    ray = RayStandIn(cores=3)
    assert connect(monkeypatch, ray, cores=3) == (ray, 3)
    (options,) = ray.begun
    assert options["address"] == "local"
    assert options["num_cpus"] == 3
    assert options["object_store_memory"] == OBJECT_STORE_BYTES
    assert not options["include_dashboard"]
    assert ray.ended == 1


SLOW = Exception("The current node timed out during startup. This could happen because ...")


def test_a_local_ray_that_starts_too_late_is_started_again(monkeypatch):
    ray = RayStandIn(cores=3, refuses=SLOW, refusals=STARTS - 1)
    assert connect(monkeypatch, ray, cores=3) == (ray, 3)
    assert (len(ray.begun), ray.ended) == (STARTS, STARTS)
    ray = RayStandIn(refuses=SLOW)
    with pytest.raises(RecipeError, match=r"--on ray: Ray did not start within 30 s, in each of 3 tries"):
        connect(monkeypatch, ray)
    assert (len(ray.begun), ray.ended) == (STARTS, STARTS)


UNSERVED = ConnectionAbortedError("Initialization failure from server:\nTraceback ...\nValueError: process not found")


def test_a_cluster_that_starts_no_server_is_asked_again(monkeypatch):
    ray = RayStandIn(cores=3, refuses=UNSERVED, refusals=STARTS - 1)
    assert connect(monkeypatch, ray, "ray://head:10001") == (ray, 3)
    assert (len(ray.begun), ray.ended) == (STARTS, STARTS)
    ray = RayStandIn(refuses=UNSERVED)
    with pytest.raises(
        RecipeError, match=r"--on ray://head:10001: .* in each of 3 tries \(ValueError: process not found"
    ):
        connect(monkeypatch, ray, "ray://head:10001")
    assert (len(ray.begun), ray.ended) == (STARTS, STARTS)


def test_no_other_fault_is_tried_again(monkeypatch):
    ray = RayStandIn(refuses=Exception("no disk"))
    with pytest.raises(Exception, match="no disk"):
        connect(monkeypatch, ray)
    assert len(ray.begun) == 1


@pytest.mark.parametrize("on", ["auto", "ray://head:10001"])
def test_a_cluster_is_taken_as_it_is(monkeypatch, on):
    ray = RayStandIn()
    connect(monkeypatch, ray, on)
    assert ray.begun[0]["address"] == on
    assert "num_cpus" not in ray.begun[0]


@pytest.mark.parametrize(
    ("ray", "on", "said"),
    [
        (RayStandIn(), "head:6379", "--on head:6379: expected 'ray', 'auto' or 'ray://HOST:PORT'"),
        (None, "ray", r"pip install 'listwright\[ray\]'"),
        (RayStandIn(refuses=ConnectionError("nobody")), "auto", "no Ray cluster answers .nobody.; 'ray start --head'"),
        (
            RayStandIn(refuses=RuntimeError("Version mismatch: Ray: 2.0\n this: 2.60")),
            "auto",
            "Version mismatch: Ray: 2.0 this: 2.60; install the same versions of Python and Ray here and there",
        ),
        (RayStandIn(cores=0), "auto", "the cluster has no room: no core was free for 60 s, 0 of 0 are free now"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(monkeypatch, ray, on, said):
    with pytest.raises(RecipeError, match=said):
        connect(monkeypatch, ray, on)
    assert ray is None or on == "head:6379" or ray.ended >= 1


def test_a_node_without_listwright_is_told(monkeypatch):
    def call(*_):
        raise ModuleNotFoundError("No module named 'listwright'")

    monkeypatch.setattr(cluster, "call", call)
    with pytest.raises(RecipeError, match=r"No module named 'listwright'.*install .* on every node"):
        connect(monkeypatch, RayStandIn(), "auto")


def test_a_wait_that_is_no_number_is_told(monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_ROOM_S", "soon")
    with pytest.raises(RecipeError, match="LISTWRIGHT_ROOM_S=soon: expected a number of seconds above 0"):
        connect(monkeypatch, RayStandIn())
