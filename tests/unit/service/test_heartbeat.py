"""Beats of an event loop, and looks for them, over a real pipe."""

import asyncio
import fcntl
import os
import select
from multiprocessing import Pipe

import pytest

from listwright.service.supervisor import CHECKS, HeartbeatMonitor, HeartbeatSender


@pytest.fixture
def pipes():
    felt, beats = Pipe(duplex=False)
    with felt, beats:
        yield felt, beats


def beat(beats, times=1):
    """As an event loop does that turns as often."""

    async def turn():
        heart = HeartbeatSender(beats, 3600.0)
        for _ in range(times):
            heart.beat()

    asyncio.run(turn())


def test_silence_is_said_once_after_so_many_looks(pipes):
    heartbeat = HeartbeatMonitor(pipes[0])
    assert [heartbeat.stops() for _ in range(CHECKS + 5)] == [False] * (CHECKS - 1) + [True] + [False] * 5


def test_one_beat_in_between_is_enough(pipes):
    heartbeat = HeartbeatMonitor(pipes[0])
    for _ in range(3):
        assert not any(heartbeat.stops() for _ in range(CHECKS - 1))
        beat(pipes[1])
    assert not heartbeat.stops()


def test_what_beat_long_ago_does_not_count_for_later(pipes):
    """A supervisor that was stopped finds many beats at once."""
    heartbeat = HeartbeatMonitor(pipes[0])
    beat(pipes[1], times=1000)
    assert [heartbeat.stops() for _ in range(CHECKS + 1)] == [False] * CHECKS + [True]


def beats_on(beats):
    """An event loop of fifty turns, and how often it beat."""

    class Counting(HeartbeatSender):
        count = 0

        def beat(self):
            self.count += 1
            super().beat()

    async def turn():
        heart = Counting(beats, 0.0)
        heart.beat()
        for _ in range(50):
            await asyncio.sleep(0)
        return heart

    return asyncio.run(turn()).count  # the loop turns a few times more as it ends


def test_nobody_who_looks_holds_up_nobody(pipes):
    felt, beats = pipes
    most = fcntl.fcntl(beats, fcntl.F_GETPIPE_SZ)
    beat(beats, times=most + 1)
    assert not select.select([], [beats], [], 0)[1], "the pipe is full"
    assert beats_on(beats) > 10
    assert len(os.read(felt.fileno(), 2 * most)) == most, "what did not go in is lost"
    felt.close()
    assert beats_on(beats) > 10, "the supervisor is gone"


def test_a_loop_that_turns_beats_on(pipes):
    felt, beats = pipes
    count = beats_on(beats)
    assert len(os.read(felt.fileno(), 2**16)) == count > 10
