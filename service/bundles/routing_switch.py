"""The operator's switch that turns routing off while the service runs: a file that is there, or is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from listwright.ranking.router import Hook
from listwright.service.settings import PREFIX, Settings

LOOK_S = 0.05
"""Seconds between two looks at the file."""

STALE_S = 1.0
"""Seconds after which a look counts as failed."""

_FILE = f"the file of {PREFIX}ROUTING_OFF_FILE"


class RoutingSwitch:
    """Switch that turns hook and router off.

    A daemon thread looks for the file: a file system that hangs holds that thread, and no request.

    Args:
        settings: Settings that name the file.
        clock: Clock in seconds.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._fixed = None if settings.routing else f"{PREFIX}ROUTING is false"
        self._file, self._clock = settings.routing_off_file, clock
        self._looked: tuple[float, str | None] = (-STALE_S, None)
        self._first, self._end = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin to look, and wait for the first look, but not for long."""
        if self._file is not None:
            threading.Thread(target=self._look_on, args=(self._file,), name="routing switch", daemon=True).start()
            self._first.wait(STALE_S)

    def stop(self) -> None:
        """Stop looking."""
        self._end.set()

    def off(self) -> str | None:
        """Return why routing is off at this moment; None if it is on.

        Convention: a file that cannot be looked for counts as there; the generalist answers well enough.
        """
        if self._fixed is not None or self._file is None:
            return self._fixed
        at, reason = self._looked
        if self._clock() - at > STALE_S:
            return f"{_FILE} cannot be looked for: its file system does not answer"
        return reason

    def _look_on(self, file: Path) -> None:
        while not self._end.is_set():
            reason = look(file)
            self._looked = (self._clock(), reason)
            self._first.set()
            self._end.wait(LOOK_S)


@dataclass(slots=True)
class RoutingPolicy:
    """Routing of requests that name no ranker.

    Args:
        switch: Switch that turns hook and router off.
        hook: Hook of the operator, once it is loaded; None: there is none.
    """

    switch: RoutingSwitch
    hook: Hook | None = None


def look(file: Path, what: str = _FILE) -> str | None:
    """Return why the file, as it is now, turns something off, by default routing; None if it does not."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{what} cannot be looked for: {error.strerror}"
    return f"{what} exists"
