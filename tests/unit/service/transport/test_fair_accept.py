"""Connections off a shared port: each process gets its part. Two objects here stand for two processes."""

import asyncio
import errno
import logging
import socket

import pytest

from listwright.service.transport import server
from listwright.service.transport.server import AT_ONCE_BEYOND, FairAccept
from support.waiting import PATIENCE_S, until_async


class Process:
    """What a worker has of the port."""

    def __init__(self, port, most=800):
        self.taken = []
        self.port = port.dup()  # an event loop wants another number for each of them
        self.fair_accept = FairAccept(self.port, self.take, lambda: len(self.taken), most)

    async def take(self, accepted):
        self.taken.append(accepted)

    def close(self):
        self.fair_accept.close()
        for connection in (self.port, *self.taken):
            connection.close()


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as port:
        yield port


def connected(port, count):
    return [socket.create_connection(port.getsockname()) for _ in range(count)]


def end(*parts):
    for part in parts:
        part.close()


@pytest.mark.parametrize("count", [2, 4, 6])
@pytest.mark.parametrize("at_once", [True, False])
def test_each_process_gets_its_part(port, count, at_once):
    async def share():
        processes = [Process(port), Process(port)]
        callers = connected(port, count) if at_once else []
        for process in processes:
            process.fair_accept.open()
        for number in range(len(callers), count):
            callers += connected(port, 1)
            await until_async(lambda wanted=number + 1: sum(len(process.taken) for process in processes) == wanted)
        await until_async(lambda: sum(len(process.taken) for process in processes) == count)
        end(*processes, *callers)
        return [len(process.taken) for process in processes]

    assert asyncio.run(asyncio.wait_for(share(), PATIENCE_S)) == [count // 2, count // 2]


def test_alone_it_takes_them_all(port):
    async def take():
        process = Process(port)
        process.fair_accept.open()
        callers = connected(port, 10)
        await until_async(lambda: len(process.taken) == 10)
        end(process, *callers)

    asyncio.run(asyncio.wait_for(take(), PATIENCE_S))


@pytest.mark.nightly
def test_once_closed_it_takes_no_more(port):
    async def take():
        process = Process(port)
        process.fair_accept.open()
        callers = connected(port, 2)
        await until_async(lambda: len(process.taken) == 1, pause_s=0)
        process.fair_accept.close()  # while it lets others go first
        await asyncio.sleep(5 * server.PAUSE_S)
        end(process, *callers)
        return len(process.taken)

    assert asyncio.run(asyncio.wait_for(take(), PATIENCE_S)) == 1


def test_a_connection_that_fails_to_begin_is_not_the_end(port, caplog):
    async def take():
        process = Process(port)
        refused = []

        async def take_second(accepted):
            if not refused:
                refused.append(accepted)
                raise ConnectionResetError("gone before the handshake")
            await process.take(accepted)

        stile = FairAccept(port, take_second, lambda: len(process.taken), 800)
        stile.open()
        callers = connected(port, 2)
        await until_async(lambda: len(process.taken) == 1)
        end(stile, process, *callers, *refused)

    with caplog.at_level(logging.DEBUG, "listwright.connections"):
        asyncio.run(asyncio.wait_for(take(), PATIENCE_S))
    assert "gone before the handshake" in caplog.text


class Exhausted(socket.socket):
    """A port of a system that has no file left, once."""

    left = 1

    def dup(self):
        return self

    def accept(self):
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_files_it_waits_for_some(port, caplog, monkeypatch):
    monkeypatch.setattr(server, "EXHAUSTED_S", 0.001)

    async def take():
        process = Process(Exhausted(fileno=port.dup().detach()))
        process.fair_accept.open()
        callers = connected(port, 1)
        await until_async(lambda: process.taken)
        end(process, *callers)

    asyncio.run(asyncio.wait_for(take(), PATIENCE_S))
    assert "Too many open files" in caplog.text


@pytest.mark.parametrize("count", [300])
def test_a_rush_is_taken_in_ever_more_at_once(port, count, monkeypatch):
    """Else a stranger that connects 1,500 times a second fills the queue of the port, and probes wait in it."""
    monkeypatch.setattr(server, "CALM_S", 60.0)  # however busy the machine is
    looks = []

    async def rush():
        process = Process(port)
        looked = process.fair_accept._accept
        process.fair_accept._accept = lambda: (looks.append(len(process.taken)), looked())
        process.fair_accept.open()
        callers = connected(port, count)
        await until_async(lambda: len(process.taken) == count)
        end(process, *callers)

    asyncio.run(asyncio.wait_for(rush(), PATIENCE_S))
    assert len(looks) < 25, "one at a time would take 300"
    assert looks[:8] == list(range(8)), "a few are shared out evenly"


@pytest.mark.nightly
def test_calm_begins_anew_when_nobody_waits(port):
    async def calm():
        process = Process(port)
        process.fair_accept.open()
        callers = []
        for number in range(30):
            callers += connected(port, 1)
            await until_async(lambda number=number: len(process.taken) > number)
            await asyncio.sleep(server.CALM_S)
        rush = process.fair_accept._rush
        end(process, *callers)
        return rush

    assert asyncio.run(asyncio.wait_for(calm(), PATIENCE_S)) <= 1


@pytest.mark.parametrize("most", [AT_ONCE_BEYOND, AT_ONCE_BEYOND + 5])
def test_those_that_are_longest_entering_make_room(port, most):
    """A TLS handshake waits for its caller: whoever is silent takes an open file, and is no connection yet."""
    entered, cut = [], []

    async def take(accepted):
        entered.append(accepted)
        try:
            await asyncio.Event().wait()
        finally:
            accepted.close()
            cut.append(accepted)

    async def rush():
        fair_accept = FairAccept(port, take, lambda: 0, most)
        fair_accept.open()
        callers = connected(port, most + 7)
        await until_async(lambda: len(entered) == most + 7)
        await until_async(lambda: len(cut) == 7)
        fair_accept.close()
        end(*callers)
        return cut == entered[:7]

    assert asyncio.run(asyncio.wait_for(rush(), PATIENCE_S))
