"""Answers that say themselves how they may be cached: the server then says nothing of it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_CACHING = b"cache-control"


class OwnCaching:
    """ASGI application that takes the server's ``Cache-Control`` off an answer which has its own.

    Args:
        app: what it wraps.
        cycle: of the one request that it is made for.
    """

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app, self._cycle = app, cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and any(name == _CACHING for name, _ in message["headers"]):
                others = [header for header in self._cycle.default_headers if header[0] != _CACHING]
                self._cycle.default_headers = others
            await send(message)

        await self._app(scope, receive, answer)
