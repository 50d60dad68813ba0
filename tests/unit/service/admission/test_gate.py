"""The gate, with work that waits for a word; no clock but a counted one."""

import asyncio
import threading
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from listwright.service.admission.gate import Gate, watch_caller
from listwright.service.errors import NotReadyError, OverloadedError
from support.service.gates import Compute, Request, run
from support.waiting import PATIENCE_S

HOUR = 3600.0


class Bench:
    """A gate, and requests that work until they are told to end."""

    def __init__(self, **options):
        self.gate = Gate(**{"slots": 1, "places": 2, **options})
        self.compute = Compute(options.get("slots", 1))
        self.started, self.tasks, self.ends, self.deadlines = [], {}, {}, {}

    async def ask(self, name, *, seconds=HOUR, caller=None):
        """Let one more request come; afterwards it is in work, waits, or is refused."""
        caller = caller or asyncio.get_running_loop().create_future()
        self.ends[name] = threading.Event()

        def work(deadline):
            self.deadlines[name] = deadline
            self.started.append(name)
            assert self.ends[name].wait(PATIENCE_S)
            return name

        deadline = Deadline(perf_counter() + seconds)
        self.tasks[name] = asyncio.ensure_future(self.compute.run(self.gate, work, Request(deadline, lambda: caller)))
        for _ in range(3):
            await asyncio.sleep(0)
        return self.tasks[name]

    async def end(self, name):
        self.ends[name].set()
        assert await self.tasks[name] == name


@asynccontextmanager
async def bench(**options):
    bench = Bench(**options)
    yield bench
    for name, task in bench.tasks.items():
        bench.ends[name].set()
        await asyncio.gather(task, return_exceptions=True)
    assert (bench.gate.working, bench.gate.waiting) == (0, 0), "whatever happened, no slot is lost"


@run
async def test_first_come_first_served():
    async with bench(places=5) as b:
        for name in "abcd":
            await b.ask(name)
        assert (b.gate.working, b.gate.waiting) == (1, 3)
        for name in "abcd":
            await b.end(name)
        assert b.started == list("abcd")


@run
async def test_as_many_slots_as_said_work_at_once():
    async with bench(slots=2) as b:
        for name in "abc":
            await b.ask(name)
        assert (b.gate.working, b.gate.waiting) == (2, 1)
        await b.end("b")
        await b.end("c")
        assert not b.tasks["a"].done()


@run
async def test_one_more_than_may_wait_is_refused_at_once():
    async with bench(places=2) as b:
        for name in "abc":
            await b.ask(name)
        with pytest.raises(OverloadedError, match="1 requests are in work and 2 wait"):
            b.gate.check()
        with pytest.raises(OverloadedError):
            await (await b.ask("d"))
        await b.end("a")
        b.gate.check()
        assert not b.tasks["b"].done()


@run
async def test_with_no_places_only_the_slots_are_there():
    async with bench(places=0) as b:
        b.gate.check()
        await b.ask("a")
        with pytest.raises(OverloadedError):
            await (await b.ask("b"))


@run
async def test_who_has_gone_loses_the_place_and_is_not_worked_for():
    async with bench() as b:
        await b.ask("a")
        caller = asyncio.get_running_loop().create_future()
        waiting = await b.ask("b", caller=caller)
        await b.ask("c")
        caller.set_result(None)
        with pytest.raises(AbandonedError):
            await waiting
        assert b.gate.waiting == 1
        await b.end("a")
        await b.end("c")
        assert b.started == ["a", "c"]


@run
async def test_who_goes_when_its_turn_has_come_hands_it_on():
    caller, goes = asyncio.get_running_loop().create_future(), False

    def clock():
        if goes and not caller.done():
            caller.set_result(None)  # while the slot is given to b, which has not heard of it
        return 0.0

    async with bench(clock=clock) as b:
        await b.ask("a")
        waiting = await b.ask("b", caller=caller)
        await b.ask("c")
        goes = True
        await b.end("a")
        with pytest.raises(AbandonedError):
            await waiting
        await b.end("c")
        assert b.started == ["a", "c"]


@run
async def test_a_turn_that_does_not_come_before_the_deadline_is_refused():
    async with bench() as b:
        await b.ask("a")
        with pytest.raises(OverloadedError, match="its turn did not come in time"):
            await (await b.ask("b", seconds=0.01))
        assert b.gate.waiting == 0


@run
async def test_a_turn_that_would_come_too_late_is_not_waited_for():
    now = [0.0]
    async with bench(clock=lambda: now[0]) as b:
        await b.ask("a")
        now[0] = 5.0
        await b.end("a")
        await b.ask("b")
        with pytest.raises(OverloadedError, match="take until its deadline: ask again in 5 s"):
            await (await b.ask("c", seconds=4.9))
        waits = await b.ask("d", seconds=HOUR)
        assert not waits.done()


@run
async def test_retry_after_is_what_is_queued_times_what_it_takes():
    now = [0.0]
    async with bench(slots=2, places=3, clock=lambda: now[0]) as b:
        await b.ask("first")
        now[0] = 3.0
        await b.end("first")
        for name in "abcde":
            await b.ask(name)
        with pytest.raises(OverloadedError) as refused:
            b.gate.check()
        assert refused.value.retry_after_s == 8  # (2 in work + 3 in line) * 3 s / 2 slots, rounded up


@run
async def test_retry_after_is_at_least_a_second():
    async with bench(places=0) as b:
        await b.ask("a")
        with pytest.raises(OverloadedError) as refused:
            b.gate.check()
        assert refused.value.retry_after_s == 1


@run
async def test_a_stop_answers_whoever_waits_and_whoever_is_in_work():
    async with bench() as b:
        in_work = await b.ask("a")
        waiting = await b.ask("b")
        for task in (waiting, in_work):
            task.cancel()
            with pytest.raises(NotReadyError, match="stopped"):
                await task


@run
async def test_a_failure_of_the_work_is_its_own_and_frees_the_slot():
    gate, compute = Gate(1, 0), Compute(1)

    def fails(_deadline):
        raise ValueError("no oil")

    for _ in range(3):
        with pytest.raises(ValueError, match="no oil"):
            await compute.run(gate, fails, Request())
    assert gate.working == 0


@run
async def test_whoever_is_worked_for_in_a_thread_may_go():
    async with bench() as b:
        caller = asyncio.get_running_loop().create_future()
        await b.ask("a", caller=caller)
        assert not b.deadlines["a"].abandoned()
        caller.set_result(None)
        await asyncio.sleep(0)
        assert b.deadlines["a"].abandoned()


@run
async def test_listening_ends_with_the_answer():
    gone = asyncio.Event()
    with watch_caller(gone.wait) as caller:
        await asyncio.sleep(0)
        assert not caller.done()
        gone.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert caller.done()
    with watch_caller(asyncio.Event().wait) as caller:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert caller.cancelled()
