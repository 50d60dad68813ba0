"""Ray as an executor: results, errors as they were raised, and an end where the cluster has gone."""

from concurrent.futures import ThreadPoolExecutor
from operator import add, truediv

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training import cluster as executors
from listwright.training.cluster import RayExecutor, side_by_side
from support.training.ray_stand_in import RayStandIn


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_results_come_back():
    executor = RayExecutor(RayStandIn())
    futures = [executor.submit(add, 1, n) for n in range(5)]
    assert [future.result(60) for future in futures] == [1, 2, 3, 4, 5]
    executor.shutdown()


def test_an_error_is_the_one_that_was_raised():
    executor = RayExecutor(RayStandIn())
    with pytest.raises(ZeroDivisionError):
        executor.submit(truediv, 1, 0).result(60)
    executor.shutdown()


def test_a_task_that_ray_gives_up_is_told():
    executor = RayExecutor(RayStandIn(losses=1))
    with pytest.raises(RecipeError, match="lost 6 times, perhaps because memory ran out: the node is gone"):
        executor.submit(add, 1, 2).result(60)
    executor.shutdown()


def test_a_cluster_that_has_lost_its_last_core_ends_the_wait(monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_ROOM_S", "0.01")
    executor = RayExecutor(RayStandIn(cores=0))
    with pytest.raises(RecipeError, match="the cluster has no room"):
        executor.submit(add, 1, 2).result(60)
    executor.shutdown()


def test_what_is_not_done_is_cancelled():
    ray = RayStandIn(cores=0)
    executor = RayExecutor(ray)
    executor.submit(add, 1, 2)
    executor.shutdown(cancel_futures=True)
    assert len(ray.cancelled) == 1


def test_without_a_word_it_is_processes(monkeypatch):
    asked = []

    def pool(jobs):
        asked.append(jobs)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(executors, "pool", pool)
    with side_by_side(None, None, local_jobs=3) as (_, jobs):
        assert jobs == 3
    with side_by_side(None, 2, local_jobs=3) as (_, jobs):
        assert jobs == 2
    assert asked == [3, 2]


def test_work_that_comes_after_the_end_is_refused():
    executor = RayExecutor(RayStandIn())
    executor.shutdown()
    with pytest.raises(RuntimeError, match="is shut down"):
        executor.submit(abs, -1)
