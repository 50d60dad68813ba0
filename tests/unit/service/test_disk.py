"""Calls that may hang hold a thread, and nothing else."""

import asyncio
import threading

import pytest

from listwright.ranking.remote import wait_for
from listwright.service.disk import Disk, locked
from support.waiting import PATIENCE_S, until_async


@pytest.fixture
def let_go():
    event = threading.Event()
    yield event
    event.set()


def test_what_a_call_returns_or_raises_comes_back():
    def broken():
        raise KeyError("x")

    async def scenario():
        one = Disk("it")
        assert await one.run(lambda: 7, 10.0) == 7
        with pytest.raises(KeyError):
            await one.run(broken, 10.0)
        assert not one.hangs

    asyncio.run(scenario())
    assert wait_for(lambda: 7) == 7
    with pytest.raises(KeyError):
        wait_for(broken)


def test_a_call_that_hangs_is_given_up_and_no_other_begins_meanwhile(let_go):
    began = []

    def hang():
        began.append(threading.current_thread())
        let_go.wait(PATIENCE_S)

    async def scenario():
        one = Disk("the share")
        with pytest.raises(OSError, match=r"the share does not answer within 0\.05 s"):
            await one.run(hang, 0.05)
        assert one.hangs
        with pytest.raises(OSError, match="the share still does not answer"):
            await one.run(hang, 0.05)
        assert len(began) == 1
        assert began[0].daemon, "or the process would wait for it at its end"
        let_go.set()
        began[0].join()
        assert not one.hangs
        assert await one.run(lambda: 7, 10.0) == 7

    asyncio.run(scenario())


def test_who_is_cancelled_leaves_the_call_behind(let_go):
    async def scenario():
        one, began = Disk("it"), threading.Event()
        task = asyncio.create_task(one.run(lambda: (began.set(), let_go.wait(PATIENCE_S)), PATIENCE_S))
        await until_async(began.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return one.hangs

    assert asyncio.run(scenario())


def test_a_time_out_of_the_call_itself_is_its_own():
    def late():
        raise TimeoutError("of the call")

    async def scenario():
        with pytest.raises(TimeoutError, match="of the call"):
            await Disk("it").run(late, 10.0)

    asyncio.run(scenario())


def test_a_file_that_cannot_be_opened_is_logged_and_one_that_is_gone_is_not(tmp_path, caplog):
    link = tmp_path / "link"
    with locked(link) as descriptor:
        assert descriptor is None
    assert not caplog.records
    link.symlink_to(__file__)
    with locked(link) as descriptor:
        assert descriptor is None
    assert [str(link) in record.getMessage() for record in caplog.records] == [True]
