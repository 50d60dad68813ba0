"""Workers that do one thing together: a step that loses one of them is done again by new ones."""

import pytest

from listwright.ranking.errors import RecipeError, ScoringError
from listwright.training.cluster import Workers, pickle_call
from support.training.ray_stand_in import RayStandIn


class Adder:
    """Knows its rank, and how many there are."""

    def __init__(self, start):
        self.start = start

    def join(self, rank, addresses):
        self.rank, self.size = rank, len(addresses)

    def add(self, number):
        return self.start + self.rank + number, self.size

    def ports(self, addresses):
        return len(set(addresses))

    def fail(self):
        raise ScoringError("the loss became nan")

    def stumble(self):
        raise OSError("connection reset by a peer that is gone")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("listwright.training.cluster.time.sleep", lambda _seconds: None)


def group(ray, size=3):
    return Workers(ray, size).group(lambda rank: pickle_call(Adder, 10 * rank))


def test_all_answer_by_rank():
    assert group(RayStandIn()).step("add", 5) == [(5, 3), (16, 3), (27, 3)]


def test_addresses_are_one_more_argument():
    assert group(RayStandIn()).step("ports", addressed=True) == [3, 3, 3]


@pytest.mark.parametrize("losses", [1, 4])
def test_a_step_is_repeated_by_new_workers(losses):
    ray = RayStandIn(losses=losses)
    assert group(ray).step("add", 5) == [(5, 3), (16, 3), (27, 3)]
    assert ray.killed == 3 * losses


def test_losses_without_an_end_are_told():
    with pytest.raises(RecipeError, match="workers were lost 6 times: the node is gone"):
        group(RayStandIn(losses=100)).step("add", 5)


def test_an_error_of_ours_is_not_repeated_and_any_other_one_is():
    with pytest.raises(ScoringError, match="became nan"):
        group(RayStandIn()).step("fail")
    with pytest.raises(RecipeError, match="lost 6 times: connection reset"):
        group(RayStandIn()).step("stumble")


def test_the_next_group_takes_over_the_processes():
    ray = RayStandIn()
    workers = Workers(ray, 2)
    first = workers.group(lambda _rank: pickle_call(Adder, 0))
    first.step("add", 1)
    first.release()
    idle = list(workers.idle)
    second = workers.group(lambda _rank: pickle_call(Adder, 100))
    assert second.step("add", 1) == [(101, 2), (102, 2)]
    assert workers.idle == []
    second.release()
    assert workers.idle == idle
    assert ray.killed == 0


def test_no_room_for_all_is_told(monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_ROOM_S", "7")
    ray = RayStandIn(cores=0)
    with pytest.raises(RecipeError, match="no room: no core was free for 7 s"):
        group(ray).step("add", 1)
    assert ray.killed == 3
