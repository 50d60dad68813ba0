"""An HTTP/1.1 connection: parsing by httptools (llhttp), bounds, deadlines, and one ASGI call for each request.

uvicorn takes :class:`Connection` by ``Config(http=...)``. RFC 9110 and RFC 9112 are HTTP and HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from listwright.service import problems
from listwright.service.transport import framing
from listwright.service.transport.connection_limit import PATIENCE_S, ConnectionLimit
from listwright.service.transport.framing import RefusedRequestError

HEADERS = (("x-content-type-options", "nosniff"), ("cache-control", "no-store"))
"""Headers of every answer. It may repeat a caller's text, which is no HTML, and is not meant for caches.
Files of the page have a ``Cache-Control`` of their own, which takes the place of this one."""

MAX_PIPELINED = 64
"""Requests that wait in one connection for the one before: a packet may hold thousands."""

MAX_UNREAD_BYTES = 64 * 2**10
"""Bytes of a body that wait for the application before the connection reads no more."""

DROPPED_PAUSE_S = 0.02
"""Pause in reading a body of which more than :data:`LINGER_BYTES` came after its answer: dropping takes time."""

PROBE_S = 0.1
"""Seconds between two probes whether a caller that has closed its side is still connected."""

GRACE_S = 10.0
"""Seconds from the end of the keep-alive time until an idle connection is closed. A request in between is answered,
with ``Connection: close``."""

LINGER_S, LINGER_BYTES = 1.0, 2**20
"""Seconds and bytes in which data after a refusal is still read and dropped: an early close could destroy the
refusal on its way (RFC 9112, section 9.6)."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
_NOT_IN_NAME = re.compile(rb"[\x00-\x20\x7f()<>@,;:\[\]={}\\\"]")
_NOT_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_log = logging.getLogger("listwright.service")


class Exchange:
    """A request and its answer: ``receive`` and ``send`` of one ASGI call.

    Args:
        connection: Connection that the request arrived on.
        scope: ASGI scope of the request.
        keep_alive: True if the connection may stay open after the answer.
        awaits_continue: True if the caller sends the body only after ``100 Continue``.
    """

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool, awaits_continue: bool) -> None:
        self.scope, self.keep_alive, self.awaits_continue = scope, keep_alive, awaits_continue
        self.body, self.more_body = bytearray(), True
        self.disconnected = self.response_started = self.response_complete = False
        self.changed = asyncio.Event()
        """Set when there is more of the body, when the answer is complete, and when the caller has gone."""
        self._connection = connection
        self._chunked, self._remaining = False, 0

    async def run(self, app: ASGIApp) -> None:
        """Call the application; an answer that it does not begin is a 500, one that it does not end is cut off."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException:
            _log.exception("an exception left the application")
        else:
            if self.response_complete or self.disconnected:
                return
            _log.error("the application returned before its answer was complete")
        if self.response_started:
            self._connection.transport.close()
        else:
            await self.send(
                {
                    "type": "http.response.start",
                    "status": 500,
                    "headers": [(b"content-length", b"0"), (b"connection", b"close")],
                }
            )
            await self.send({"type": "http.response.body"})

    async def receive(self) -> Message:
        """Wait for more of the body; ``http.disconnect`` once the answer is complete or the caller has gone."""
        if self.awaits_continue and not self._connection.transport.is_closing():
            self._connection.transport.write(_CONTINUE)
            self.awaits_continue = False
        if not self.disconnected and not self.response_complete:
            self._connection.resume_reading()
            await self.changed.wait()
            self.changed.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Write the head of the answer or a part of its body, once the caller has taken most of what came before."""
        await self._connection.writable.wait()
        if self.disconnected:
            return
        if not self.response_started:
            self._write_head(message["status"], message.get("headers", ()))
        elif self.response_complete:
            raise RuntimeError("the answer is complete")
        else:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))

    def _write_head(self, status: int, headers: Any) -> None:
        self.response_started = True
        if self.awaits_continue:
            # The caller may send the body nevertheless, or not: what comes next could be read as either
            # (RFC 9110, section 10.1.1).
            self.awaits_continue, self.keep_alive = False, False
        fields = [(name.lower(), value) for name, value in headers]
        own = {name for name, _ in fields}
        lines = [_STATUS_LINES[status]]
        closing = sized = False
        for name, value in (*(field for field in self._connection.default_headers if field[0] not in own), *fields):
            if _NOT_IN_NAME.search(name) or _NOT_IN_VALUE.search(value):
                raise RuntimeError(f"the header {name!r} cannot be sent")
            if name == b"content-length":
                self._remaining, sized = int(value), True
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive, closing = False, True
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive and not closing:
            lines.append(b"connection: close\r\n")
        if not sized and self.scope["method"] != "HEAD" and status not in (204, 304):
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._connection.transport.write(b"".join(lines))

    def _write_body(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self._remaining = 0
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._connection.transport.write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._remaining -= len(body)
            if self._remaining < 0:
                raise RuntimeError("the body is longer than its Content-Length")
            self._connection.transport.write(body)
        if more:
            return
        if self._remaining:
            raise RuntimeError("the body is shorter than its Content-Length")
        self.response_complete = True
        self.changed.set()
        self._connection.response_complete(self)


class Connection(asyncio.Protocol):
    """One connection; the event loop calls what :class:`asyncio.Protocol` has, the parser what begins with ``on_``.

    - What cannot be read is refused with a problem body, after the answers to the requests before it. Heads, trailers
      and chunks are bounded, see :mod:`listwright.service.transport.framing`; trailer fields are dropped. How packets
      divide the bytes changes nothing but which of two limits an oversized request meets first.
    - An offer to upgrade is not taken (RFC 9110, section 7.8); the request is served. llhttp stops there without the
      body, which another parser reads.
    - The application finds in ``scope["state"]["arrived"]`` when the first byte of a request arrived
      (``time.perf_counter``).
    - A caller that closes its own side after asking gets its answer, unless it turns out to have gone altogether.
    - When the connection ends, the request at work gets ``http.disconnect``, and none that waits begins.
    - A head that takes too long gets 408. A body that takes too long gets the same from the application, or is cut off
      if it was answered before its end; so is a caller that does not take its answer.
    - An idle connection is closed some time after its keep-alive time; see :data:`GRACE_S`.
    - Beyond the most connections that are served, a new one gets 503, or the answer to its probe, and is closed.

    Args:
        config: Configuration of the server, with the application.
        server_state: State of the server: its connections, tasks and default headers.
        app_state: State of the application's lifespan; each request's scope has a copy.
        patience_s: Seconds that a request may take to arrive, and an answer to leave.
        keep_alive_s: Seconds that a connection may be idle, also before its first request.
        limit: Limit of the connections of the process.
        refused: Function that is called with the status of each refusal that no application has seen.
    """

    transport: asyncio.Transport
    parser: httptools.HttpRequestParser

    def __init__(
        self,
        *,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        patience_s: float,
        keep_alive_s: float,
        limit: ConnectionLimit,
        refused: Callable[[http.HTTPStatus], None],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app: ASGIApp = config.loaded_app
        self._server_state, self._app_state = server_state, app_state
        self._loop = _loop or asyncio.get_running_loop()
        self.patience_s, self._keep_alive_s, self._limit, self._refused = patience_s, keep_alive_s, limit, refused
        self._is_admitted = self._last = False
        self.writable = asyncio.Event()
        """Cleared while the caller takes its answer slower than it is written."""
        self.writable.set()
        self._reading = True
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._probe_timer: asyncio.TimerHandle | None = None
        self._newest: Exchange | None = None
        self._current: Exchange | None = None
        self.pipeline: deque[Exchange] = deque()
        """Requests that wait for the current one, the oldest first."""
        self._refusal: bytes | None = None
        self._dropped = 0
        self._in_head = self._in_body = False
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._arrived = 0.0
        self._begun = self._blank = 0
        self._head_bytes = self._fields = self._chunks = self._data_bytes = self._received = 0
        self._upgrade_head: bytes | None = None
        self._replaying = False
        self._new_parser()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # The event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        """Enter the limit on connections, and wait for the first request."""
        self.transport = transport
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # typed as a union of uvicorn's own
        tls = transport.get_extra_info("sslcontext") is not None
        self._half_closes = not tls  # TLS has no half-closed connections
        self._addresses = {
            "scheme": "https" if tls else "http",
            "server": _address(transport, "sockname"),
            "client": _address(transport, "peername"),
        }
        self._is_admitted = self._limit.enter(self)
        if not self._is_admitted:
            self.patience_s = min(self.patience_s, PATIENCE_S)
        self._enter_idle()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Stop everything that belongs to the connection."""
        self._server_state.connections.discard(self)
        for timer in (self._read_timer, self._write_timer, self._idle_timer, self._probe_timer):
            if timer is not None:
                timer.cancel()
        self._notify_disconnect()
        self._limit.leave(self)
        self.writable.set()
        self._newest = self._current = None
        del self.parser

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; requests begin as soon as their heads are complete."""
        if self._refusal is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.abort()
            return
        try:
            self._parse(data)
        except RefusedRequestError as error:
            self._refuse(error.status, error.detail)

    def eof_received(self) -> bool:
        """Return whether to keep the connection until the answer is sent."""
        if self.unsent:
            self._start_write_timeout()
        if self._refusal is not None:
            return False
        if self._in_head or self._in_body:
            if self._half_closes:
                self._refuse(http.HTTPStatus.BAD_REQUEST, "the request ended before it was complete")
            return self._half_closes
        newest = self._newest
        if newest is None or newest.response_complete:
            return False
        newest.keep_alive = False
        if not self._half_closes:
            return False
        if newest.scope["http_version"] == "1.1":  # HTTP/1.0 has no interim answers
            self._probe_timer = self._loop.call_later(PROBE_S, self._probe)
        return True

    def pause_writing(self) -> None:
        """Pause answers: the caller reads more slowly than they are written."""
        self._start_write_timeout()
        self.writable.clear()

    def resume_writing(self) -> None:
        """Resume answers: most bytes have been sent."""
        self._start_write_timeout()
        self.writable.set()

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless requests wait behind the current one."""
        if not self._reading and not self.pipeline:
            self._reading = True
            self.transport.resume_reading()

    # The server

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer; the server renews them each second, and adds ``Connection: close`` in the end."""
        return self._server_state.default_headers

    @property
    def unsent(self) -> bool:
        """Whether bytes are waiting to be sent."""
        return bool(self.transport.get_write_buffer_size())

    def shutdown(self) -> None:
        """Close the connection when the process ends: at once if it is idle, else after its last answer."""
        if self._newest is None or self._newest.response_complete:
            self._close()
        else:
            self._newest.keep_alive = False
            if self.unsent:
                self._start_write_timeout()

    def close_idle(self) -> None:
        """Close an idle connection; unsent bytes are lost."""
        if self.unsent:
            self.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        """End it at once; unsent bytes are lost."""
        self._notify_disconnect()
        self.transport.abort()

    # The parser

    def _parse(self, data: bytes) -> None:
        """Parse what has arrived; raise RefusedRequestError if it cannot be served: nothing after it can be read."""
        begun, in_head, in_body = self._begun, self._in_head, self._in_body
        if not in_head and not in_body:
            self._count_blank(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, RefusedRequestError):  # raised by a callback of ours
                raise error.__context__ from None
            detail = "this is not HTTP/1.1, or its framing contradicts itself"
            raise RefusedRequestError(http.HTTPStatus.BAD_REQUEST, detail) from None
        more = self._begun - begun
        all_head = self._in_head and not in_body and more == (0 if in_head else 1)
        all_body = self._in_body and in_body and more == 0
        if all_head or all_body:
            self._received += len(data)
            self._check_received()

    def _count_blank(self, data: bytes) -> None:
        """Bound the empty lines before a request, which the parser passes over (RFC 9112, section 2.2)."""
        self._blank += len(data) - len(data.lstrip(b"\r\n"))
        if self._blank > framing.MAX_BLANK_BYTES:
            raise RefusedRequestError(http.HTTPStatus.BAD_REQUEST, "there are only empty lines: send a request")

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stopped:
                data = data[stopped.args[0] :]
                if self._upgrade_head is not None:
                    # A new parser reads the body, after a head of the same framing that nothing else sees.
                    self._new_parser()
                    self._replaying = True
                    self.parser.feed_data(self._upgrade_head)
                    self._replaying, self._upgrade_head = False, None

    def _check_received(self) -> None:
        """Bound what the parser does not report: an unfinished field, chunk extensions."""
        if self._in_head and self._received > framing.MAX_HEAD_BYTES:
            raise framing.too_large(f"{framing.MAX_HEAD_BYTES} bytes")
        allowed = framing.MAX_FRAMING_BYTES + framing.CHUNK_BYTES * self._chunks
        if self._in_body and self._received - self._data_bytes > allowed:
            raise framing.too_finely_cut()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > framing.MAX_HEAD_BYTES:
            raise framing.too_large(f"{framing.MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Start a request with its first byte, and the time in which it has to arrive."""
        if self._replaying:
            return
        self._in_head = True
        self._begun += 1
        self._head_bytes = self._fields = self._chunks = self._data_bytes = self._received = self._blank = 0
        self._url, self._headers = b"", []
        self._arrived = time.perf_counter()
        self._stop_idle()
        self._dropped = 0
        self._last = self._limit.mark_busy(self) > self._keep_alive_s
        self._start_read_timeout()

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        if not self._replaying:
            self._count_head(len(url))
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field of the head; count one of the trailer, which comes after it, and drop it."""
        if self._replaying:
            return
        self._fields += 1
        if self._fields > framing.MAX_FIELDS:
            raise framing.too_large(f"{framing.MAX_FIELDS} fields")
        self._count_head(len(name) + len(value))
        if self._in_head and (lowered := name.lower()) not in framing.UNREAD:
            self._headers.append((lowered, value))

    def on_headers_complete(self) -> None:
        """Check the head, and begin the request or let it wait."""
        if self._replaying:
            return
        version, method = self.parser.get_http_version(), self.parser.get_method()
        framing.check_head(method, version, self._headers)
        framing.check_target(self._url)
        if len(self.pipeline) >= MAX_PIPELINED:
            detail = f"{MAX_PIPELINED} requests wait in this connection already: send fewer before the first answer"
            raise RefusedRequestError(http.HTTPStatus.BAD_REQUEST, detail)
        url = httptools.parse_url(self._url)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "path": urllib.parse.unquote(url.path.decode("ascii")),
            "raw_path": url.path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "state": {**self._app_state, "arrived": self._arrived},
            **self._addresses,
        }
        awaits_continue = any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers)
        exchange = Exchange(
            self,
            scope,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            awaits_continue=awaits_continue and version == "1.1",  # RFC 9110, section 10.1.1
        )
        self._upgrade_head = framing.head_of_same_framing(self._headers) if self.parser.should_upgrade() else None
        self._in_head, self._in_body, self._fields, self._received = False, True, 0, 0
        self._newest = exchange
        if self._has_pending_response():
            self.pause_reading()
            self.pipeline.append(exchange)
        else:
            self._begin(exchange)

    def on_chunk_header(self) -> None:
        """Count a chunk of the body."""
        self._chunks += 1
        if self._chunks > framing.MAX_CHUNKS:
            raise framing.too_finely_cut()

    def on_body(self, body: bytes) -> None:
        """Hand a part of the body over, or drop it if it comes after the answer."""
        self._data_bytes += len(body)
        exchange = self._newest
        assert exchange is not None
        if exchange.response_complete:
            self._dropped += len(body)
            if self._dropped > LINGER_BYTES and self._reading:
                self.pause_reading()
                self._loop.call_later(DROPPED_PAUSE_S, self.resume_reading)
            return
        exchange.body += body
        if len(exchange.body) > MAX_UNREAD_BYTES:
            self.pause_reading()
        exchange.changed.set()

    def on_message_complete(self) -> None:
        """End a request with its last byte."""
        if self._upgrade_head is not None:  # its body has yet to come
            return
        exchange = self._newest
        assert exchange is not None
        self._in_body = False
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if exchange.response_complete:  # it was refused before
            self._enter_idle()
        else:
            exchange.more_body = False
            exchange.changed.set()

    # Requests and their answers

    def _begin(self, exchange: Exchange) -> None:
        self._current, app = exchange, self._app
        if not self._is_admitted:
            app = self._limit.app_for(exchange.scope["path"], app)
        if not self._is_admitted or self._last:
            exchange.keep_alive = False
        task = self._loop.create_task(exchange.run(app))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def response_complete(self, exchange: Exchange) -> None:
        """Continue after an answer: with the next request, with a pending refusal, or idle."""
        self._server_state.total_requests += 1
        if not exchange.keep_alive:
            self.transport.close()
        elif not self.transport.is_closing():
            self.resume_reading()
            if self.pipeline:
                self._begin(self.pipeline.popleft())
        if self.unsent:
            self._start_write_timeout()
        if self.transport.is_closing() or self._has_pending_response():
            return
        if self._refusal is not None:
            self._send_last(self._refusal)
        elif not self._in_head and not self._in_body:
            self._enter_idle()

    def _has_pending_response(self) -> bool:
        return self._current is not None and not self._current.response_complete

    def _notify_disconnect(self) -> None:
        """Send ``http.disconnect`` to the current request; no other begins."""
        self.pipeline.clear()
        if self._current is not None:
            self._current.disconnected = True
            self._current.awaits_continue = False  # nothing more is written for it
            self._current.changed.set()

    def _refuse(self, status: http.HTTPStatus, detail: str) -> None:
        """Read no more; send the refusal after the answers to earlier requests, and close."""
        method_known = self._in_body or (self._in_head and self._url)
        self._refusal = _refusal(status, detail, with_body=not (method_known and self.parser.get_method() == b"HEAD"))
        self._refused(status)
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._stop_idle()
        faulty = self._newest if self._in_body else None  # of a head nothing has begun yet
        self._in_head = self._in_body = False
        if faulty is not None and faulty is self._current:
            self._notify_disconnect()
            if faulty.response_started:
                self._close()
                return
        elif faulty is not None:
            self.pipeline.pop()
        if faulty is self._current or not self._has_pending_response():
            self._send_last(self._refusal)

    def _send_last(self, answer: bytes) -> None:
        self.transport.write(answer)
        if self._is_admitted and self.transport.can_write_eof():
            self.transport.write_eof()
            self._write_timer = self._loop.call_later(LINGER_S, self.abort)
        else:
            self._close()

    def _close(self) -> None:
        """Close it once everything is sent, within a time limit."""
        self.transport.close()
        if self.unsent:
            self._start_write_timeout()

    # Time limits

    def _enter_idle(self) -> None:
        """Wait for the next request: nothing is at work and nothing arrives."""
        self._stop_idle()
        if self._is_admitted:
            self._limit.mark_idle(self)
        wait_s = self._keep_alive_s + GRACE_S if self._is_admitted else self.patience_s
        self._idle_timer = self._loop.call_later(wait_s, self.close_idle)

    def _stop_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _start_read_timeout(self) -> None:
        """Start to wait for a request, from its first byte to its last."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = self._loop.call_later(self.patience_s, self._read_timed_out)

    def _read_timed_out(self) -> None:
        self._read_timer = None
        if self._has_pending_response():
            self._start_read_timeout()  # the application has the same deadline, and answers
        elif self._in_head:
            detail = f"the request's head did not arrive within {self.patience_s:g} s"
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, detail)
        else:
            self._close()

    def _start_write_timeout(self) -> None:
        """Start to wait for the caller to take its answer: the system itself would wait without end."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._write_timer = self._loop.call_later(self.patience_s, self._write_timed_out)

    def _write_timed_out(self) -> None:
        if self.unsent:
            self.abort()

    def _probe(self) -> None:
        """Probe a caller that has closed its side with a 100, which clients ignore: one that has gone sends a reset."""
        if self.transport.is_closing():
            return
        if self._current is not None and not self._current.response_started:
            self.transport.write(_CONTINUE)
        self._probe_timer = self._loop.call_later(PROBE_S, self._probe)


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """Return host and port of a side of the connection."""
    address = transport.get_extra_info(name)
    return None if address is None else (str(address[0]), int(address[1]))


def _refusal(status: http.HTTPStatus, detail: str, *, with_body: bool) -> bytes:
    """Return a whole refusal as bytes; only its head in answer to HEAD."""
    request_id = uuid.uuid4().hex
    body = problems.encode(status, "malformed-http", detail, request_id)
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"content-type: {problems.MEDIA_TYPE}",
        f"content-length: {len(body)}",
        f"x-request-id: {request_id}",
        *(f"{name}: {value}" for name, value in HEADERS),
        "connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if with_body else b"")
