"""SIGTERM in the middle of an answer: a caller who was told to keep the connection may still use it."""

import asyncio
import logging
import re
import signal
import time

import pytest

from listwright.ranking import bundle
from listwright.service.app import create_app, server_of
from listwright.service.settings import Settings
from support.waiting import PATIENCE_S, until_async


@pytest.fixture
def root_logger():
    """The server makes the root logger and the signals its own."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield root
    for number, handler in signals.items():
        signal.signal(number, handler)
    root.level, root.handlers = level, handlers


class StoppedIn:
    """Middleware that has the process told to stop within the first answer, just before the message named.

    With ``waits`` the event loop has a turn in between, in which the stop begins.
    """

    def __init__(self, app, message, waits):
        self._app, self._message, self._waits = app, message, waits

    async def __call__(self, scope, receive, send):
        async def stopping(message):
            if message["type"] == self._message:
                self._message = None
                signal.raise_signal(signal.SIGTERM)
                if self._waits:
                    await asyncio.sleep(0.05)
            await send(message)

        await self._app(scope, receive, stopping)


async def answers(port):
    """To questions one after the other in one connection, until the caller is told that it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heads = []
    for _ in range(10):  # more than any of them takes
        writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        await reader.readexactly(int(re.search(r"content-length: (\d+)", heads[-1])[1]))
        if "connection: close" in heads[-1]:
            break
    writer.close()
    return heads


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("message", "waits", "count"),
    [
        ("http.response.start", False, 2),
        ("http.response.start", True, 1),  # nothing has been said yet: this answer can say it
        ("http.response.body", False, 2),
        ("http.response.body", True, 2),
    ],
)
@pytest.mark.usefixtures("root_logger")
def test_no_connection_closes_that_its_caller_was_not_told_of(bundle_folder, message, waits, count):
    settings = Settings(bundle=bundle_folder, port=0, log_level="critical", drain_s=0.2)
    app = create_app(settings, models=bundle.load(bundle_folder))
    app.add_middleware(StoppedIn, message=message, waits=waits)
    server = server_of(app)

    async def ask():
        serving = asyncio.create_task(server.serve())
        await until_async(lambda: server.started)
        heads = await answers(server.servers[0].sockets[0].getsockname()[1])
        await serving
        return heads

    heads = asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))
    assert all(head.startswith("HTTP/1.1 200 ") for head in heads)
    assert len(heads) == count


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_after_the_first_do_not_change_how_it_ends(serve, bundle_folder, workers, number):
    process = serve(bundle=bundle_folder, workers=workers).process
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.005)
    assert process.returncode == 0
