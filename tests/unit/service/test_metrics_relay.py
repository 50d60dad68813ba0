"""Messages between a supervisor and its workers, over a real pipe: neither waits for the other to read."""

import asyncio
from multiprocessing import Pipe

import pytest

from listwright.service import supervisor
from listwright.service.supervisor import MOST_UNREAD, MetricsRelay, Outbox, Samples, ScrapeRequest
from listwright.service.telemetry.metrics import Telemetry


async def nothing_to_keep(_):
    raise AssertionError("nobody asks for it")


LARGE = Samples((b"x" * 10_000,))


@pytest.fixture
def pipes():
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs


def test_messages_to_a_worker_that_reads_arrive_in_their_order(pipes):
    outbox = Outbox(pipes[0])
    sent = [Samples((b"%d" % number,)) for number in range(10)]
    for message in sent:
        outbox.put(message)
    assert [pipes[1].recv() for _ in sent] == sent
    outbox.close()


@pytest.mark.nightly
def test_nobody_waits_for_a_worker_that_hangs(pipes, monkeypatch):
    monkeypatch.setattr(supervisor, "WITHIN_S", 0.05)
    outbox = Outbox(pipes[0])
    for _ in range(1000):
        outbox.put(LARGE)
    outbox.close()
    found = 0
    while pipes[1].poll(0.2):
        pipes[1].recv()
        found += 1
    assert MOST_UNREAD <= found < 100, "the last ones were dropped"


def test_a_worker_that_has_ended_is_no_error(pipes):
    outbox = Outbox(pipes[0])
    pipes[1].close()
    for _ in range(3):
        outbox.put(LARGE)
    outbox.close()


def test_a_supervisor_that_hangs_is_asked_a_few_times_only(pipes, monkeypatch):
    """A scrape then gets what this worker counts."""
    monkeypatch.setattr(supervisor, "WITHIN_S", 0.001)

    async def scrape():
        of_this_worker = MetricsRelay(pipes[0], Telemetry(), nothing_to_keep)
        return [await of_this_worker.text() for _ in range(MOST_UNREAD + 5)]

    assert all(b"listwright_candidates" in text for text in asyncio.run(scrape()))
    asked = 0
    while pipes[1].poll():
        assert pipes[1].recv() == ScrapeRequest()
        asked += 1
    assert asked == MOST_UNREAD
