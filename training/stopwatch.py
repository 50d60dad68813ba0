"""How long the steps of a run take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    """Wall-clock seconds by step.

    Args:
        on_step: told the name of every step that begins.
    """

    on_step: Callable[[str], None] = lambda _name: None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        self.on_step(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
