"""``python -m benchmarks.load.supervisor_variant``: the service, whose workers can be made to fail on purpose.

``SUPERVISOR=uvicorn`` or ``gunicorn`` in the environment puts theirs in the place of ours. The signal ``STALL`` stalls
the event loop of a worker. While the file ``$FAILING`` exists, every new worker is killed as if for memory. ``$STARTS``
gets a line for each worker that starts. Worker processes import this module too.
"""

# ruff: noqa: E402 - a worker is counted, and may fail, before it has loaded anything

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

FAILING, STARTS = "FAILING", "STARTS"

STALL = signal.SIGRTMIN
"""Signal to which none of the supervisors gives a meaning."""


def _stall(*_: object) -> None:
    time.sleep(3600)  # in the thread of the event loop; Python's global lock is free


def begin(server: object = None, worker: object = None) -> None:  # noqa: ARG001 - gunicorn counts them
    """Count a worker process that begins, and kill it if the variant says so."""
    signal.signal(STALL, _stall)
    with Path(os.environ[STARTS]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if Path(os.environ[FAILING]).exists():
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__mp_main__":
    begin()

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from listwright.ranking.errors import ListwrightError
from listwright.service.app import create_app
from listwright.service.bundles import loading
from listwright.service.commands import serve as command_line
from listwright.service.settings import Settings
from listwright.service.transport.server import FINISH_WITHIN_S, options


def app() -> FastAPI:
    """Build the application for uvicorn's supervisor; exit if the bundle is at fault."""
    settings = Settings()
    try:
        return create_app(settings, models=loading.start(settings))
    except ListwrightError:
        sys.exit(STARTUP_FAILURE)


def uvicorns(settings: Settings) -> int:
    """Run uvicorn's supervisor, with the options that the service gives to uvicorn."""
    config = uvicorn.Config(f"{__package__}.supervisor_variant:app", factory=True, workers=2, **options(settings))
    Multiprocess(config, sockets=[config.bind_socket()]).run()
    return 0


def gunicorns(settings: Settings) -> int:
    """Run gunicorn's supervisor and uvicorn's worker class for it, with the times of the service."""
    base = import_module("gunicorn.app.base")

    class Application(base.BaseApplication):  # type: ignore[misc, name-defined]
        def load_config(self) -> None:
            self.cfg.set("bind", f"{settings.host}:{settings.port}")
            self.cfg.set("workers", 2)
            self.cfg.set("worker_class", "uvicorn_worker.UvicornWorker")
            self.cfg.set("timeout", int(settings.hang_s))
            self.cfg.set("graceful_timeout", FINISH_WITHIN_S)
            self.cfg.set("loglevel", "critical")
            self.cfg.set("post_fork", begin)

        def load(self) -> FastAPI:
            return app()

    Application().run()
    return 0


RIVALS = {"uvicorn": uvicorns, "gunicorn": gunicorns}

if __name__ == "__main__":
    if (supervisor := os.environ["SUPERVISOR"]) in RIVALS:
        vars(command_line)["supervise"] = RIVALS[supervisor]
    sys.exit(command_line.main([]))
