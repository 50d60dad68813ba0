"""uvicorn's HTTP/1.1 connection, with bounded heads, plain manners towards half-closing callers, and our own errors."""

from __future__ import annotations

import asyncio
import http
import json
import re
import time
import uuid
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.crowd import PATIENCE_S, Crowd
from service.schemas import Problem

MAX_PIPELINED = 64
"""Requests that wait in one connection for the one before: a packet may hold thousands."""

MAX_HEAD_BYTES = 64 * 2**10
"""Of a request line with its headers, once more than one packet of them has arrived."""

HEADERS = (("x-content-type-options", "nosniff"), ("cache-control", "no-store"))
"""On every answer: it may repeat a caller's words, which are no HTML, and is meant for that caller, not for caches."""

ASK_S = 0.1
"""Between two questions to a caller that has closed its side."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class _Flow(FlowControl):
    """Reads no more while requests wait behind the one at work: uvicorn would take some in with every answer."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """One connection.

    - An ``Upgrade`` (Java's HttpClient offers h2c with every first request) is left out before parsing: the server may
      ignore it (RFC 9110, section 7.8), but the parser would take the body for another protocol.
    - A head above :data:`MAX_HEAD_BYTES` gets 431: it would be kept, and searched again with every packet.
    - A caller that closes its own side after asking gets its answer, unless it turns out to have gone altogether.
    - What is no HTTP gets a problem body like every other error.
    - Requests that are sent before the answer to the one before wait, a few of them: more end the connection.
    - When the connection ends, whichever request is at work is told, not only the one that came last.
    - The application is told when the first byte of a request arrived: ``scope["state"]["arrived"]``.
    - A head that takes too long gets 408. A body that takes too long gets the same from the application, or is cut off
      if it was answered before its end; so is a caller that does not take its answer.
    - Beyond the most connections that are served, a newcomer gets 503, or the answer to its probe, and has to go.

    Args:
        patience_s: how long a request may take to arrive, and an answer to leave.
        crowd: all connections of the process.
    """

    def __init__(self, *arguments: Any, patience_s: float, crowd: Crowd, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience_s, self._crowd, self._served = patience_s, crowd, True
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._in_head = self._in_body = False
        self._head_bytes = 0
        self._at_work: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._served = self._crowd.enter()
        if not self._served:
            self._patience_s = min(self._patience_s, PATIENCE_S)
            if self._crowd.overflows:
                transport.abort()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        for timer in (self._arriving, self._leaving, self._asking):
            if timer is not None:
                timer.cancel()
        self._leave()
        self._crowd.leave(served=self._served)
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._at_work = cycle
        if not self._served:
            cycle.keep_alive = False
            app = self._crowd.answering(cycle.scope["path"], app)
        super()._start_asgi_task(cycle, app)

    def _leave(self) -> None:
        """Tell whoever is at work that nobody listens any more; nobody else begins."""
        self.pipeline.clear()
        if self._at_work is not None:
            self._at_work.disconnected = True
            self._at_work.message_event.set()

    def _abort(self) -> None:
        self._leave()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with whatever has arrived."""
        if self._arriving is None:
            self._expect()
        if not self._in_body:
            end = data.find(b"\r\n\r\n")
            offer = _UPGRADE.search(data, 0, end if end >= 0 else len(data))
            if offer:
                data = data[: offer.start()] + data[offer.end() :]
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                too_large = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(too_large, f"the request's head is over {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._in_head, self._head_bytes = True, 0
        self._expect()
        super().on_message_begin()
        self.scope["state"]["arrived"] = time.perf_counter()

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head, self._in_body = False, True
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise ValueError("too many requests at once")  # ends the parsing of this packet, and the connection

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._in_body = False
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Called by the event loop when the caller takes its answer slower than it is written."""
        self._leaving = self.loop.call_later(self._patience_s, self._abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop when most of it has left."""
        if self._leaving is not None:
            self._leaving.cancel()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Called by uvicorn some seconds after an answer. What has not left by then never will."""
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            super().timeout_keep_alive_handler()

    def _expect(self) -> None:
        """Start to wait for a request, from its first byte to its last."""
        if self._arriving is not None:
            self._arriving.cancel()
        self._arriving = self.loop.call_later(self._patience_s, self._lose_patience)

    def _lose_patience(self) -> None:
        self._arriving = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect()  # the application has the same deadline, and answers
        elif self._in_head:
            detail = f"the request's head did not arrive within {self._patience_s:g} s"
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, detail)
        else:
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection until the answer is sent."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        if self.transport.get_extra_info("sslcontext") is not None:
            return False  # TLS knows no half-closed connections
        if cycle.scope["http_version"] == "1.1":  # before it there were no answers on the way
            self._asking = self.loop.call_later(ASK_S, self._ask)
        return True

    def _ask(self) -> None:
        """Find out whether a caller that has closed its side still listens: one that has gone answers with a reset.

        Every caller reads over a 100 that it did not ask for (RFC 9110, section 15.2). The first brings the reset, the
        next meets it, and the connection is lost.
        """
        if self.transport.is_closing():
            return
        if self._at_work is not None and not self._at_work.response_started:
            self.transport.write(_CONTINUE)
        self._asking = self.loop.call_later(ASK_S, self._ask)

    def owes_an_answer(self) -> bool:
        """Whether a request has begun whose answer has not: its head can still say that the connection closes."""
        return self.cycle is not None and not self.cycle.response_started

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        """Called by uvicorn for what the parser refuses."""
        self._refuse(http.HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1, or its framing contradicts itself")

    def _refuse(self, status: http.HTTPStatus, detail: str) -> None:
        self._in_head = False
        self._leave()
        request_id = uuid.uuid4().hex
        problem = Problem(
            type="urn:listwright:malformed-http",
            title=status.phrase,
            status=status,
            detail=detail,
            request_id=request_id,
        )
        body = json.dumps(problem.model_dump(exclude_defaults=True) | {"errors": []}).encode()
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "content-type: application/problem+json",
            f"content-length: {len(body)}",
            f"x-request-id: {request_id}",
            *(f"{name}: {value}" for name, value in HEADERS),
            "connection: close",
        )
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()
