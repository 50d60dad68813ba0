"""One HTTP/1.1 connection: deadlines for what arrives and what leaves, refusals in their turn."""

from __future__ import annotations

import asyncio
import http
import uuid
from collections.abc import Callable, Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from listwright.service import paths, problems
from listwright.service.transport.connection_limit import PATIENCE_S, ConnectionLimit
from listwright.service.transport.framing import RefusedRequestError
from listwright.service.transport.own_caching import OwnCaching
from listwright.service.transport.unsent_answers import UnsentAnswers

HEADERS = (("x-content-type-options", "nosniff"), ("cache-control", "no-store"))
"""On every answer: it may repeat a caller's words, which are no HTML, and is meant for that caller, not for caches.
Files of the page say otherwise, see :class:`OwnCaching`."""

DROPPED_PAUSE_S = 0.02
"""Between two looks at a body of which more than :data:`LINGER_BYTES` came after its answer: dropping takes time."""

ASK_S = 0.1
"""Between two questions to a caller that has closed its side."""

GRACE_S = 10.0
"""From the end of the keep-alive time until an idle connection is closed. A request that comes meanwhile is answered,
and its answer says that the connection closes."""

LINGER_S, LINGER_BYTES = 1.0, 2**20
"""After a refusal, so much of what still arrives is read and dropped, in so much time: an early close could destroy the
refusal on its way (RFC 9112, section 9.6)."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Flow(FlowControl):
    """Reads no more while requests wait behind the one at work: uvicorn would take some in with every answer."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class Connection(UnsentAnswers):
    """One connection.

    - What cannot be read is refused with a problem body, after the answers to the requests before it.
    - A caller that closes its own side after asking gets its answer, unless it turns out to have gone altogether.
    - When the connection ends, whichever request is at work is told, not only the one that came last.
    - A head that takes too long gets 408. A body that takes too long gets the same from the application, or is cut off
      if it was answered before its end; so is a caller that does not take its answer.
    - An idle connection is closed some time after its keep-alive time; see :data:`GRACE_S`.
    - Beyond the most connections that are served, a new one gets 503, or the answer to its probe, and is closed.

    Args:
        patience_s: how long a request may take to arrive, and an answer to leave.
        keep_alive_s: how long a connection may be idle, before its first request too.
        limit: on the connections of the process.
        refused: called with the status of each refusal that no application has seen.
    """

    def __init__(
        self,
        *arguments: Any,
        patience_s: float,
        keep_alive_s: float,
        limit: ConnectionLimit,
        refused: Callable[[http.HTTPStatus], None],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._refused = refused
        self.patience_s, self._keep_alive_s, self._limit = patience_s, keep_alive_s, limit
        self._served = self._last = False
        self._arriving: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._at_work: RequestResponseCycle | None = None
        self._refusal: bytes | None = None
        self._dropped = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._served = self._limit.enter(self)
        if not self._served:
            self.patience_s = min(self.patience_s, PATIENCE_S)
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        for timer in (self._arriving, self._leaving, self._asking):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        self._leave()
        self._limit.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with the bytes that have arrived."""
        if self._refusal is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.cut()
            return
        try:
            self.parse(data)
        except RefusedRequestError as error:
            self._refuse(error.status, error.detail)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection until the answer is sent."""
        stays = self.transport.get_extra_info("sslcontext") is None  # TLS knows no half-closed connections
        cycle = self.cycle
        if self.sends:
            self._expect_to_leave()
        if self._refusal is not None:
            return False
        if self.in_head or self.in_body:
            if stays:
                self._refuse(http.HTTPStatus.BAD_REQUEST, "the request ended before it was complete")
            return stays
        if cycle is None or cycle.response_complete:
            return False
        cycle.keep_alive = False
        if not stays:
            return False
        if cycle.scope["http_version"] == "1.1":  # before it there were no answers on the way
            self._asking = self.loop.call_later(ASK_S, self._ask)
        return True

    def request_begins(self) -> None:
        """Called by the parser with the first byte of a request."""
        self._unset_keepalive_if_required()
        self._dropped = 0
        self._last = self._limit.wake(self) > self._keep_alive_s
        self._expect()

    def request_ends(self) -> None:
        """Called by the parser with its last byte."""
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        if self.cycle.response_complete:  # it was refused before
            self._rest()

    def body_dropped(self, size: int) -> None:
        """Called by the parser with bytes of a body that was answered before its end."""
        self._dropped += size
        if self._dropped > LINGER_BYTES and not self.flow.read_paused:
            self.flow.pause_reading()
            self.loop.call_later(DROPPED_PAUSE_S, self.flow.resume_reading)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._at_work = cycle
        if cycle.scope["path"].startswith(paths.UI_PAGE):
            app = OwnCaching(app, cycle)
        if not self._served:
            app = self._limit.answering(cycle.scope["path"], app)
        if not self._served or self._last:
            cycle.keep_alive = False
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Called by uvicorn."""
        super().on_response_complete()
        if self.sends:
            self._expect_to_leave()
        if self.transport.is_closing() or self._owing():
            return
        if self._refusal is not None:
            self._send_last(self._refusal)
        elif self.in_head or self.in_body:
            self._unset_keepalive_if_required()
        else:
            self._rest()

    def _owing(self) -> bool:
        """Whether a request is at work, or waits."""
        return self._at_work is not None and not self._at_work.response_complete

    def owes_an_answer(self) -> bool:
        """Whether a request has begun whose answer has not: its head can still say that the connection closes."""
        return self.cycle is not None and not self.cycle.response_started

    def _leave(self) -> None:
        """Tell the request at work that its caller has gone; no other begins."""
        self.pipeline.clear()
        if self._at_work is not None:
            self._at_work.disconnected = True
            self._at_work.waiting_for_100_continue = False  # nothing more is written for it
            self._at_work.message_event.set()

    def _rest(self) -> None:
        """Nothing is at work and nothing arrives: wait for the next request."""
        self._unset_keepalive_if_required()
        if self._served:
            self._limit.rest(self)
        wait_s = self._keep_alive_s + GRACE_S if self._served else self.patience_s
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. What has not left by then never will."""
        if self.sends:
            self.cut()
        else:
            super().timeout_keep_alive_handler()

    def _expect(self) -> None:
        """Start to wait for a request, from its first byte to its last."""
        if self._arriving is not None:
            self._arriving.cancel()
        self._arriving = self.loop.call_later(self.patience_s, self._time_out)

    def _time_out(self) -> None:
        self._arriving = None
        if self._owing():
            self._expect()  # the application has the same deadline, and answers
        elif self.in_head:
            detail = f"the request's head did not arrive within {self.patience_s:g} s"
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, detail)
        else:
            self._close()

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

    def _refuse(self, status: http.HTTPStatus, detail: str) -> None:
        """Read no more; answer so once the requests before it have their answers, and close."""
        begun = self.in_body or (self.in_head and self.url)
        self._refusal = _answer(status, detail, with_body=not (begun and self.parser.get_method() == b"HEAD"))
        self._refused(status)
        if self._arriving is not None:
            self._arriving.cancel()
        self._unset_keepalive_if_required()
        faulty = self.cycle if self.in_body else None  # of a head nothing has begun yet
        self.in_head = self.in_body = False
        if faulty is not None and faulty is self._at_work:
            started = faulty.response_started
            self._leave()
            if started:
                self._close()
                return
        elif faulty is not None:
            self.pipeline.popleft()  # the youngest
        if faulty is self._at_work or not self._owing():
            self._send_last(self._refusal)

    def _send_last(self, answer: bytes) -> None:
        self.transport.write(answer)
        if self._served and self.transport.can_write_eof():
            self.transport.write_eof()
            self._leaving = self.loop.call_later(LINGER_S, self.cut)
        else:
            self._close()


def _answer(status: http.HTTPStatus, detail: str, *, with_body: bool) -> bytes:
    """A whole refusal, as it travels; only its head in answer to HEAD."""
    request_id = uuid.uuid4().hex
    body = problems.encoded(status, "malformed-http", detail, request_id)
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"content-type: {problems.MEDIA_TYPE}",
        f"content-length: {len(body)}",
        f"x-request-id: {request_id}",
        *(f"{name}: {value}" for name, value in HEADERS),
        "connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if with_body else b"")
