"""``python -m benchmarks.load.transport_variant``: the service with one part of its transport replaced by the plain
way.

``TRANSPORT`` in the environment names it; worker processes import this module too, and so replace the same part.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from listwright.service.admission.gate import EarlyRefusal
from listwright.service.commands.serve import main
from listwright.service.transport import server
from listwright.service.transport.server import BACKLOG, FairAccept

_options = server.options


def plain(protocol: Any) -> None:
    """Use uvicorn's own connection in the place of ours."""

    class Plain(protocol):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            for ours in ("patience_s", "keep_alive_s", "limit", "refused"):
                del options[ours]
            super().__init__(**options)

    vars(server)["Connection"] = Plain


def httptools() -> None:
    """Use uvicorn's connection over the parser that ours has."""
    plain(HttpToolsProtocol)


def h11() -> None:
    """Use uvicorn's connection over a parser in Python."""
    plain(H11Protocol)


def limit_concurrency() -> None:
    """Use uvicorn's limit in the place of ours."""
    plain(HttpToolsProtocol)
    server.options = lambda settings: _options(settings) | {"limit_concurrency": settings.max_connections}


def plain_accept() -> None:
    """Take whatever waits at the port at once, as asyncio does."""

    def readable(self: FairAccept) -> None:
        with suppress(BlockingIOError):
            for _ in range(BACKLOG):
                self._take_one()

    FairAccept._readable = readable  # type: ignore[method-assign]


def no_shedding() -> None:
    """Send a refusal for lack of room all the way that an answer goes."""
    EarlyRefusal.refuses = lambda *_: False  # type: ignore[method-assign]


VARIANTS = {variant.__name__: variant for variant in (httptools, h11, limit_concurrency, plain_accept, no_shedding)}

if (variant := os.environ.get("TRANSPORT", "ours")) != "ours":
    VARIANTS[variant]()

if __name__ == "__main__":
    sys.exit(main([]))
