"""Beats of an event loop, and looks for them, over a real pipe."""

import asyncio
import os
from multiprocessing import Pipe

import pytest

from listwright.service.workers.heartbeat import LOOKS, HeartbeatMonitor, HeartbeatSender


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
    assert [heartbeat.stops() for _ in range(LOOKS + 5)] == [False] * (LOOKS - 1) + [True] + [False] * 5


def test_one_beat_in_between_is_enough(pipes):
    heartbeat = HeartbeatMonitor(pipes[0])
    for _ in range(3):
        assert not any(heartbeat.stops() for _ in range(LOOKS - 1))
        beat(pipes[1])
    assert not heartbeat.stops()


def test_what_beat_long_ago_does_not_count_for_later(pipes):
    """A supervisor that was stopped finds many beats at once."""
    heartbeat = HeartbeatMonitor(pipes[0])
    beat(pipes[1], times=1000)
    assert [heartbeat.stops() for _ in range(LOOKS + 1)] == [False] * LOOKS + [True]


def test_nobody_who_looks_holds_up_nobody(pipes):
    beat(pipes[1], times=2**16 + 1)
    pipes[0].close()
    beat(pipes[1])


def test_a_loop_that_turns_beats_on(pipes):
    felt, beats = pipes

    async def turn():
        HeartbeatSender(beats, 0.0).beat()
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(turn())
    assert len(os.read(felt.fileno(), 2**16)) > 10
