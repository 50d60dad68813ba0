"""How long the steps of a run take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from listwright.training.progress import SILENT, Progress


@dataclass
class Stopwatch:
    """Wall-clock seconds by step.

    Args:
        progress: told the name of every step that begins.
    """

    progress: Progress = SILENT
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        self.progress.enter(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
