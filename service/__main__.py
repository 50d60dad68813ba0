"""``python -m service``: serve a bundle over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from pydantic import ValidationError

from ranking import bundle
from ranking.errors import ListwrightError
from service import hook
from service.app import create_app
from service.connection import Connection
from service.settings import PREFIX, Settings, describe

FINISH_WITHIN_S = 25
"""What is still unanswered this long after the last moment of draining is dropped: before Kubernetes kills at 30."""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 after a clean stop, 1 for a refused bundle, 2 for a wrong setting, 3 for a taken address."""
    parser = argparse.ArgumentParser(
        prog="python -m service",
        description="Serve a bundle: POST /rerank, GET /readyz /livez /info /metrics.",
        epilog=f"settings, from the environment:\n{describe()}\n\nexample:\n"
        f"  {PREFIX}BUNDLE=models/demo/1 {PREFIX}PORT=8000 python -m service",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    try:
        settings = Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        for fault in error.errors():
            name = PREFIX + str(fault["loc"][0]).upper()
            hint = "set it, e.g. to models/demo/1" if fault["type"] == "missing" else f"it is {fault['input']!r}"
            print(f"error: {name}: {fault['msg']} ({hint}); see python -m service --help", file=sys.stderr)
        return 2
    if settings.hook is not None:
        try:
            hook.load(settings.hook)
        except hook.HookError as error:
            print(f"error: {PREFIX}HOOK: {error}; see python -m service --help", file=sys.stderr)
            return 2
    try:
        loaded = bundle.load(settings.bundle)
    except ListwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if settings.workers > 1:
        del loaded  # each worker loads its own copy; this one only told early whether it is good
        uvicorn.run("service.app:create_app", factory=True, workers=settings.workers, **_options(settings))
        return 0
    app = create_app(settings, loaded=loaded)
    server = DrainingServer(uvicorn.Config(app, **_options(settings)), app.state.draining.set, settings.drain_s)
    server.run()
    if settings.hook is not None:
        hook.leave(0)
    return 0


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "http": partial(Connection, patience_s=settings.timeout_ms / 1000.0),
        "ws": "none",
        "host": settings.host,
        "port": settings.port,
        "log_level": settings.log_level,
        "log_config": _log_config(settings.log_level),
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": FINISH_WITHIN_S,
    }


def _log_config(level: str) -> dict[str, Any]:
    """Every logger, uvicorn's too, writes JSON lines to stderr."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "service.telemetry.JsonLines"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
    }


class DrainingServer(uvicorn.Server):
    """uvicorn that, on SIGTERM, says so in ``/readyz``, keeps serving for a while, and exits with 0.

    Args:
        config: uvicorn's.
        announce: turns ``/readyz`` to 503.
        drain_s: how long to keep serving; a second signal ends the wait.
    """

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], drain_s: float) -> None:
        super().__init__(config)
        self._announce, self._drain_s = announce, drain_s
        self._draining = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn for SIGINT and SIGTERM; unlike its own method, this ends the process as a success."""
        if sig == signal.SIGTERM and self.started and self._drain_s > 0 and not self._draining:
            self._draining = True
            self._announce()
            asyncio.get_running_loop().call_later(self._drain_s, self.handle_exit, sig, frame)
        else:
            self.force_exit = sig == signal.SIGINT and self.should_exit  # a second Ctrl-C does not wait
            self.should_exit = True


if __name__ == "__main__":
    sys.exit(main())
