"""Which bodies the budget holds, and which of them loses its room."""

import pytest

from listwright.service.admission.body import Body, BodyBudget
from listwright.service.errors import OverloadedError


class Arriving(Body):
    """A body as the budget knows it."""

    def __init__(self, budget, size, *, arrived=False):
        self.held, self.lost = 0, None
        budget.hold(self, size)
        if arrived:
            budget.keep(self)

    def lose(self, error):
        self.lost = error


@pytest.fixture
def room():
    """For bodies of 100 bytes together."""
    return BodyBudget(100, lambda: 1)


def test_bodies_are_held_up_to_the_limit(room):
    first, second = Arriving(room, 60, arrived=True), Arriving(room, 40, arrived=True)
    with pytest.raises(OverloadedError, match="100 bytes of other bodies are held"):
        Arriving(room, 1)
    assert (first.lost, second.lost) == (None, None), "what has arrived loses nothing"
    room.release(first)
    Arriving(room, 60)
    assert room.held == 100


def test_who_has_been_arriving_longest_makes_room(room):
    arrived, *arriving = Arriving(room, 10, arrived=True), Arriving(room, 10), Arriving(room, 40), Arriving(room, 40)
    room.hold(arriving[0], 0)  # whatever came last of it
    newcomer = Arriving(room, 30)
    assert [body.held for body in arriving] == [0, 0, 40], "no more of them than it takes"
    assert [body.lost is None for body in (*arriving, arrived, newcomer)] == [False, False, True, True, True]
    assert arriving[0].lost.closes
    assert room.held == 10 + 40 + 30


def test_who_has_been_arriving_longest_gets_no_more_room_itself(room):
    slow, quick = Arriving(room, 10), Arriving(room, 90)
    with pytest.raises(OverloadedError, match="90 bytes of other bodies"):
        room.hold(slow, 1)
    assert (room.held, slow.held, slow.lost, quick.lost) == (90, 0, None, None)


def test_a_body_that_is_released_leaves_nothing_behind(room):
    for _ in range(3):
        body = Arriving(room, 100)
        room.release(body)
        room.release(body)
    assert room.held == 0
    Arriving(room, 100, arrived=True)
    with pytest.raises(OverloadedError):
        Arriving(room, 1)
    assert body.lost is None
