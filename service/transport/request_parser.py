"""uvicorn's parsing of requests, within bounds: the bytes that arrive go to llhttp as they are."""

from __future__ import annotations

import http
import time
from abc import ABC, abstractmethod
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from listwright.service.transport import framing
from listwright.service.transport.framing import RefusedRequestError

MAX_PIPELINED = 64
"""Requests that wait in one connection for the one before: a packet may hold thousands."""


class RequestParser(HttpToolsProtocol, ABC):
    """Makes requests of what arrives in one connection.

    - Heads, trailers and chunks are bounded, see :mod:`listwright.service.transport.framing`; trailer fields are
    dropped. - An offer to upgrade is not taken (RFC 9110, section 7.8); the request is served. The parser stops there,
      without its body: another one reads on.
    - The application is told when the first byte of a request arrived: ``scope["state"]["arrived"]``.

    How packets divide the bytes changes nothing but which of two limits an oversized request meets first.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.in_head = self.in_body = False
        self._began = self._blank = 0
        self._head_bytes = self._fields = self._chunks = self._data_bytes = self._received = 0
        self._offered: bytes | None = None
        self._told = False

    def parse(self, data: bytes) -> None:
        """Parse what has arrived; requests begin as soon as their heads are complete.

        Raises:
            RefusedRequestError: if it is no request that can be served; nothing after it can be read.
        """
        began, in_head, in_body = self._began, self.in_head, self.in_body
        if not in_head and not in_body:
            self._count_blank(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, RefusedRequestError):  # raised by a callback of ours
                raise error.__context__ from None
            detail = "this is not HTTP/1.1, or its framing contradicts itself"
            raise RefusedRequestError(http.HTTPStatus.BAD_REQUEST, detail) from None
        more = self._began - began
        all_head = self.in_head and not in_body and more == (0 if in_head else 1)
        all_body = self.in_body and in_body and more == 0
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
                if self._offered is not None:
                    self._read_on(self._offered)

    def _read_on(self, head: bytes) -> None:
        """Have a new parser read the body of a request whose offer to upgrade stopped the old one.

        Args:
            head: of the same framing, which the new parser gets instead of the caller's; nothing else sees it.
        """
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._told = True
        self.parser.feed_data(head)
        self._told, self._offered = False, None

    def _check_received(self) -> None:
        """Bound what the parser does not tell of: an unfinished field, chunk extensions."""
        if self.in_head and self._received > framing.MAX_HEAD_BYTES:
            raise framing.too_large(f"{framing.MAX_HEAD_BYTES} bytes")
        allowed = framing.MAX_FRAMING_BYTES + framing.CHUNK_BYTES * self._chunks
        if self.in_body and self._received - self._data_bytes > allowed:
            raise framing.too_finely_cut()

    def on_message_begin(self) -> None:
        """Called by the parser with the first byte of a request."""
        if self._told:
            return
        self.in_head = True
        self._began += 1
        self._head_bytes = self._fields = self._chunks = self._data_bytes = self._received = self._blank = 0
        super().on_message_begin()
        self.scope["state"]["arrived"] = time.perf_counter()
        self.request_begins()

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        if not self._told:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser; also for trailer fields, which come after the head and are dropped."""
        if self._told:
            return
        self._fields += 1
        if self._fields > framing.MAX_FIELDS:
            raise framing.too_large(f"{framing.MAX_FIELDS} fields")
        self._count(len(name) + len(value))
        if self.in_head and name.lower() not in framing.UNREAD:
            super().on_header(name, value)

    def _count(self, head_bytes: int) -> None:
        self._head_bytes += head_bytes
        if self._head_bytes > framing.MAX_HEAD_BYTES:
            raise framing.too_large(f"{framing.MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._told:
            return
        version = self.parser.get_http_version()
        framing.check_head(self.parser.get_method(), version, self.headers)
        framing.check_target(self.url)
        if len(self.pipeline) >= MAX_PIPELINED:
            detail = f"{MAX_PIPELINED} requests wait in this connection already: send fewer before the first answer"
            raise RefusedRequestError(http.HTTPStatus.BAD_REQUEST, detail)
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110, section 10.1.1
        super().on_headers_complete()
        self._offered = framing.head_of_same_framing(self.headers) if self.parser.should_upgrade() else None
        self.in_head, self.in_body, self._fields, self._received = False, True, 0, 0

    def on_chunk_header(self) -> None:
        """Called by the parser."""
        self._chunks += 1
        if self._chunks > framing.MAX_CHUNKS:
            raise framing.too_finely_cut()

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._data_bytes += len(body)
        super().on_body(body)
        if self.cycle.response_complete:
            self.body_dropped(len(body))

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._offered is not None:  # its body has yet to come
            return
        self.in_body = False
        super().on_message_complete()
        self.request_ends()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        wrapped: Any = _Unread(app, cycle) if cycle.waiting_for_100_continue else app
        super()._start_asgi_task(cycle, wrapped)

    @abstractmethod
    def request_begins(self) -> None:
        """Called with the first byte of a request."""

    @abstractmethod
    def body_dropped(self, size: int) -> None:
        """Called with bytes of a body whose answer has been given already."""

    @abstractmethod
    def request_ends(self) -> None:
        """Called with its last byte."""


class _Unread:
    """An application whose answer ends the connection if it comes before the body was asked for.

    A caller that waits for ``100 Continue`` and gets a final answer may send the body nevertheless, or not: what comes
    next could be read as either (RFC 9110, section 10.1.1).
    """

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app, self._cycle = app, cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def closing(message: Message) -> None:
            if self._cycle.waiting_for_100_continue:
                self._cycle.keep_alive = False
            await send(message)

        await self._app(scope, receive, closing)
