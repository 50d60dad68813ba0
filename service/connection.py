"""uvicorn's HTTP/1.1 connection, with bounded heads, plain manners towards half-closing callers, and our own errors."""

from __future__ import annotations

import http
import json
import re
import uuid
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.schemas import Problem

MAX_HEAD_BYTES = 64 * 2**10
"""Of a request line with its headers, once more than one packet of them has arrived."""

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class Connection(HttpToolsProtocol):
    """One connection.

    - An ``Upgrade`` (Java's HttpClient offers h2c with every first request) is left out before parsing: the server may
      ignore it (RFC 9110, section 7.8), but the parser would take the body for another protocol.
    - A head above :data:`MAX_HEAD_BYTES` gets 431: it would be kept, and searched again with every packet.
    - A caller that closes its own side after asking gets its answer.
    - What is no HTTP gets a problem body like every other error.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_head = self._in_body = False
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with whatever has arrived."""
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
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._in_body = False
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection until the answer is sent."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def is_at_work(self) -> bool:
        """Whether a request has begun whose answer has not ended."""
        return self.cycle is not None and not self.cycle.response_complete

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        """Called by uvicorn for what the parser refuses."""
        self._refuse(http.HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1, or its framing contradicts itself")

    def _refuse(self, status: http.HTTPStatus, detail: str) -> None:
        self._in_head = False
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
            "connection: close",
        )
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()
