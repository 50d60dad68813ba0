"""The gate where nothing blocks: who may wait how long, and work on the event loop itself."""

import asyncio
import threading

import pytest

from listwright.service.admission.gate import Gate
from listwright.service.errors import NotReadyError, OverloadedError
from listwright.service.pipeline import SMALL
from support.service.gates import Compute, Request, run
from support.waiting import PATIENCE_S


class Turns:
    """A gate without threads, whose turns take as long as they are told to."""

    def __init__(self, **options):
        self.now = 0.0
        self.gate, self.compute = Gate(1, 10, clock=lambda: self.now, **options), Compute(0)

    async def take(self, *seconds):
        """Some turns, one after the other."""
        for each_s in seconds:

            def work(_deadline, each_s=each_s):
                self.now += each_s

            await self.compute.run(self.gate, work, Request())

    async def ask(self, count):
        """How many of so many callers at once are let in."""
        work = asyncio.gather(
            *(self.compute.run(self.gate, lambda _: None, Request()) for _ in range(count)),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        waiting = self.gate.waiting
        assert self.gate.is_full == (waiting < count - 1)
        assert sum(isinstance(found, OverloadedError) for found in await work) == count - 1 - waiting
        return 1 + waiting


@run
async def test_no_more_may_wait_than_can_be_answered_in_time():
    turns = Turns(patience_s=0.13)
    await turns.take(*[0.02] * 3)
    assert await turns.ask(8) == 4, "the fourth is answered after at most 0.12 s, a fifth would be after 0.14"


@run
async def test_one_may_always_wait():
    turns = Turns(patience_s=0.0)
    await turns.take(1.0)
    assert await turns.ask(5) == 2


@run
async def test_before_anything_is_known_the_places_count():
    assert await Turns(patience_s=60.0).ask(20) == 11


@run
async def test_a_few_slow_turns_mean_nothing_half_of_them_do():
    turns = Turns(patience_s=0.13)
    await turns.take(*[0.02] * 5, *[0.04] * 3)
    assert await turns.ask(8) == 4, "the burst behind a stall is let in"
    await turns.take(*[0.02] * 4, *[0.04] * 4)
    assert await turns.ask(8) == 2
    await turns.take(*[0.02] * 5)
    assert await turns.ask(8) == 4, "the last eight count"


@run
async def test_a_turn_that_comes_later_than_was_expected_is_refused():
    gate, compute = Gate(1, 10, patience_s=0.05, clock=lambda: 0.0), Compute(1)
    end = threading.Event()
    begun = asyncio.ensure_future(compute.run(gate, lambda _: end.wait(PATIENCE_S), Request()))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError, match="its turn did not come in time"):
        await compute.run(gate, lambda _: None, Request())
    end.set()
    await begun
    assert (gate.working, gate.waiting) == (0, 0)


@run
async def test_a_turn_must_come_while_there_is_time_for_an_answer():
    turns, loop, waits = Turns(patience_s=1.0), asyncio.get_running_loop(), []
    await turns.take(*[0.1] * 3)
    call_later = loop.call_later
    loop.call_later = lambda delay_s, *call: (waits.append(delay_s), call_later(delay_s, *call))[1]
    assert await turns.ask(2) == 2
    assert waits == [pytest.approx(0.8)], "two turns before patience ends"


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("size", [SMALL, SMALL + 1])
def test_small_bodies_need_no_thread_where_there_are_none(threads, size):
    async def ask():
        return await Compute(threads).run(Gate(1, 0), lambda _deadline: threading.current_thread(), Request(held=size))

    assert (asyncio.run(ask()) is threading.current_thread()) == (threads == 0 and size == SMALL)


@run
async def test_without_threads_others_take_places_before_the_loop_is_busy():
    gate, compute, seen = Gate(1, 1), Compute(0), []

    def work(_deadline):
        seen.append((gate.working, gate.waiting))
        return len(seen)

    found = await asyncio.gather(*(compute.run(gate, work, Request()) for _ in range(3)), return_exceptions=True)
    assert found[:2] == [1, 2]
    assert isinstance(found[2], OverloadedError)
    assert seen == [(1, 1), (1, 0)]
    assert (gate.working, gate.waiting) == (0, 0)


@run
async def test_without_threads_a_failure_or_a_stop_frees_the_slot():
    gate, compute = Gate(1, 0), Compute(0)

    def fails(_deadline):
        raise ValueError("no oil")

    with pytest.raises(ValueError, match="no oil"):
        await compute.run(gate, fails, Request())
    task = asyncio.ensure_future(compute.run(gate, fails, Request()))
    await asyncio.sleep(0)
    assert gate.working == 1
    task.cancel()
    with pytest.raises(NotReadyError, match="stopped"):
        await task
    assert gate.working == 0
