"""A gRPC server beside the HTTP server, on the same event loop: each call is one request of the application.

So a call meets the keys, the admission, the deadline, the counts and the log of a request over HTTP. Its message is
read when the application asks for the body: a call without a key, or one too many, is refused before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc
from starlette.types import ASGIApp, Message

from listwright.service import paths
from listwright.service.admission.body import Body, BodyBudget
from listwright.service.errors import SlowBodyError
from listwright.service.settings import Settings

MOST_ARRIVING = 32
"""Number of calls whose message is not complete yet. gRPC holds up to the largest body for each. Beyond this number the
oldest of these calls is refused, so that slow messages do not keep out quick ones."""

QUIET_S, LINGER_S, HOLD_S = 0.01, 1.0, 0.05
"""Seconds without a call after which the server stops, seconds after which it stops in any case, and seconds that calls
are held before. gRPC cancels calls that arrive while it stops, and callers do not repeat those. So the last calls are
held, and get UNAVAILABLE after the GOAWAY: a caller that waits for an answer sends nothing meanwhile."""

MOST_WATCHING = 100
"""Number of callers that may watch the server's health at a time, in addition to other calls."""

IDLE_S = 30.0
"""Seconds after which an idle connection is closed: at its limit gRPC refuses new ones."""

DETAIL_BYTES = 2000
"""Largest size of an error's text. gRPC sends it as a header, where each byte that is no ASCII takes three."""

_METADATA = frozenset((b"x-request-id", b"traceparent", b"server-timing", b"retry-after"))
"""Headers of an answer that a call gets as trailing metadata."""

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

_log = logging.getLogger("listwright.service")


class Call:
    """One call: ``receive`` and ``send`` of one ASGI call.

    Args:
        context: Context of the call in gRPC.
        arriving: Number of calls whose message has not arrived.
        settings: Settings of the process.
        stopping: Event that is set when the server stops.
    """

    def __init__(self, context: Any, arriving: BodyBudget, settings: Settings, stopping: asyncio.Event) -> None:
        self._context, self._arriving, self._settings, self._stopping = context, arriving, settings, stopping
        self._is_read = False
        self._message: bytes | None = None
        self._delivered, self._gone = False, asyncio.Event()
        self._status, self._headers, self._content = 500, list[tuple[bytes, bytes]](), b""

    async def run(self, app: ASGIApp, path: str) -> bytes:
        """Have the application answer; return its message, or end the call with its error.

        A caller that goes, by its deadline or otherwise, is ``http.disconnect`` to the application.
        """
        left_s, sent = self._context.time_remaining(), self._context.invocation_metadata() or ()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in sent if isinstance(value, str)],
            "state": {
                "arrived": time.perf_counter(),
                "left_ms": None if left_s is None else 1000.0 * left_s,
                "read_message": self.read,
                "stopping": self._stopping,
            },
        }
        answering = asyncio.ensure_future(app(scope, self.receive, self.send))
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:  # gRPC cancels a call whose caller has gone
            self._gone.set()
            await asyncio.wait([answering])
            raise
        except Exception:
            _log.exception("an exception left the application")
        metadata = tuple((name.decode(), value.decode()) for name, value in self._headers if name in _METADATA)
        if self._status != 200:
            detail = json.loads(self._content)["detail"] if self._content else "an unexpected error"
            code = CODES.get(self._status, grpc.StatusCode.INTERNAL)
            await self._context.abort(code, detail.encode()[:DETAIL_BYTES].decode(errors="ignore"), metadata)
        self._context.set_trailing_metadata(metadata)
        return self._content

    async def read(self) -> bytes | None:
        """Wait for the message of the call; return None if it ends without one.

        Raises:
            OverloadedError: if newer calls took its place, as it was slow to arrive.
            SlowBodyError: if it has not arrived within the settings' time.
        """
        if self._is_read:
            return self._message
        self._is_read, reader = True, asyncio.current_task()
        assert reader is not None
        place = Body(reader)
        self._arriving.hold(place, 1)
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000.0):
                content = await self._context.read()
        except TimeoutError as error:
            within = f"{self._settings.timeout_ms:g} ms (LISTWRIGHT_TIMEOUT_MS)"
            raise SlowBodyError(f"the message did not arrive within {within}") from error
        except asyncio.CancelledError as error:
            if place.lost is None:
                raise
            place.uncancel()
            raise place.lost from error
        finally:
            self._arriving.release(place)
        self._message = None if content is grpc.aio.EOF else content
        return self._message

    async def receive(self) -> Message:
        """Wait for the message; ``http.disconnect`` once the caller has gone."""
        if self._delivered:
            await self._gone.wait()
        else:
            self._delivered = True
            if (content := await self.read()) is not None:
                return {"type": "http.request", "body": content, "more_body": False}
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep an answer, which leaves when it is complete; each part of a streamed one is a message."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
        elif message.get("more_body"):
            try:
                await self._context.write(message["body"])
            except grpc.aio.InternalError:  # the caller has gone, and gRPC has not reported it yet
                self._gone.set()
        else:
            self._content += message.get("body", b"")


class GrpcServer:
    """The gRPC server of one process.

    Workers share its port by ``SO_REUSEPORT``: gRPC takes no socket that is open already. Bounds are those of HTTP: as
    many connections, as many calls at a time, no compression, and idle connections close after as long.

    Args:
        app: Application that answers.
        settings: Settings of the process.
        retry_after_s: Function that returns the seconds after which there may be room for a refused call.
    """

    port: int

    def __init__(self, app: ASGIApp, settings: Settings, retry_after_s: Callable[[], int]) -> None:
        self._app, self._settings = app, settings
        self._arriving = BodyBudget(MOST_ARRIVING, retry_after_s)
        self._active, self._watching = set[object](), set[object]()
        self._last, self._holds, self._stopping = 0.0, False, asyncio.Event()

    async def start(self) -> None:
        """Begin to answer, on the running event loop.

        Raises:
            RuntimeError: if the port cannot be bound.
        """
        settings = self._settings
        options = {
            "grpc.so_reuseport": 1,
            "grpc.http2.bdp_probe": 0,  # else calls whose message nobody reads yet would be sent megabytes of it
            "grpc.max_receive_message_length": settings.max_payload_bytes,
            "grpc.max_allowed_incoming_connections": settings.max_connections,
            "grpc.max_concurrent_streams": settings.max_connections,
            "grpc.server_handshake_timeout_ms": 5_000,
            "grpc.max_connection_idle_ms": round(1000.0 * min(settings.keep_alive_s, IDLE_S)),
            "grpc.http2.min_ping_interval_without_data_ms": 500,  # pings are cheap; proxies wait less than 5 min
            "grpc.keepalive_permit_without_calls": 1,
            "grpc.keepalive_time_ms": 60_000,  # else a caller that vanished would watch for hours
            "grpc.compression_enabled_algorithms_bitset": 1,  # none: a small message would become a large one
        }
        most = settings.max_connections + MOST_WATCHING
        self._server = grpc.aio.server(options=tuple(options.items()), maximum_concurrent_rpcs=most)
        for service, methods in ((paths.GRPC_SERVICE, paths.GRPC), (paths.GRPC_HEALTH_SERVICE, paths.GRPC_CHECKS)):
            handlers = {path.rpartition("/")[2]: self._handler(path) for path in methods}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        if settings.tls_cert is None or settings.tls_key is None:
            self.port = self._server.add_insecure_port(address)
        else:
            pair = (settings.tls_key.read_bytes(), settings.tls_cert.read_bytes())
            self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await self._server.start()

    async def stop(self, within_s: float) -> None:
        """Take no new calls (GOAWAY), and wait for those that are answered."""
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + LINGER_S and (self._active or now < self._last + QUIET_S):
            await asyncio.sleep(0.001)
        self._holds = True
        await asyncio.sleep(HOLD_S)
        stop = asyncio.create_task(self._server.stop(within_s))
        await asyncio.sleep(QUIET_S)
        self._stopping.set()
        await stop

    def _handler(self, path: str) -> Any:
        """Return the handler of a method: as of a stream of messages, of which none is read before it is asked for."""
        watches = path == paths.GRPC_WATCH
        calls = self._watching if watches else self._active

        async def answer(_: object, context: Any) -> bytes:
            if self._holds:
                await self._stopping.wait()
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the service stops: ask again")
            if len(self._watching) >= MOST_WATCHING and watches:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_WATCHING} callers watch: use Check")
            calls.add(context)
            try:
                return await Call(context, self._arriving, self._settings, self._stopping).run(self._app, path)
            finally:
                calls.remove(context)
                self._last = time.perf_counter()

        return (grpc.stream_stream_rpc_method_handler if watches else grpc.stream_unary_rpc_method_handler)(answer)
