"""The socket to the process of a shadow: the event loop goes on whatever the other end does."""

import asyncio
import multiprocessing
import pickle
import socket

import numpy as np
import pytest

from listwright.service.experiments import shadow_process
from listwright.service.experiments.shadow_link import MOST_AT_ONCE, ShadowLink
from listwright.service.experiments.shadow_process import LENGTH, Found, Question

LONG = Question("bundle", "auto", np.ones((2000, 136), dtype=np.float32), {}, True, np.arange(2000), 1.0)
"""Longer than the buffers of a socket."""


SHORT = LONG._replace(features=LONG.features[:10])


def found(candidates):
    return Found(tuple(range(candidates)), "ok", 0.001, (1.0, 1.0, 1.0), 0.001)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def link(ours):
    return ShadowLink(multiprocessing.get_context("spawn").Process(), ours)


def answer(theirs, taken):
    """Read one question and answer it, as the process does."""
    with theirs.makefile("rb") as questions:
        taken.append(pickle.load(questions))
    written = pickle.dumps(found(200_000))
    assert len(written) > 2 * MOST_AT_ONCE, "else it comes at once"
    theirs.sendall(LENGTH.pack(len(written)) + written)


def test_the_loop_goes_on_while_a_long_question_waits(ends):
    ours, theirs = ends
    taken = []

    async def scenario():
        asking = asyncio.create_task(link(ours).ask(LONG))
        turns = 0
        while turns < 100:  # nobody reads: a send that blocks would end here
            await asyncio.sleep(0)
            turns += 1
        assert not asking.done()
        await asyncio.to_thread(answer, theirs, taken)
        return await asking

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == found(200_000)
    np.testing.assert_array_equal(taken[0].features, LONG.features)


@pytest.mark.parametrize("sent", [b"", LENGTH.pack(1000)[:2], LENGTH.pack(1000) + b"half"])
def test_an_end_amid_an_answer_is_an_error(ends, sent):
    ours, theirs = ends

    async def scenario():
        asking = asyncio.create_task(link(ours).ask(SHORT))
        await asyncio.sleep(0)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        await asking

    with pytest.raises(EOFError):
        asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_process_ends_with_its_worker_even_amid_a_question(ends, monkeypatch, share):
    monkeypatch.setattr(shadow_process, "_step_back", lambda: None)
    monkeypatch.setattr(shadow_process.signal, "signal", lambda *_: None)
    ours, theirs = ends
    written = pickle.dumps(SHORT)
    ours.sendall(written[: int(share * len(written))])
    ours.close()
    assert shadow_process.run(theirs) is None
