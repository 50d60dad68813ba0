"""The protocol for reporting progress, and seconds by step; :mod:`listwright.training.console.bars` draws it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@runtime_checkable
class Task(Protocol):
    """One piece of work, which is counted in steps."""

    def reach(self, done: int, note: str | None = None) -> None:
        """Report the number of completed steps.

        Args:
            done: Number of steps since the beginning of the task.
            note: Text behind the task's title from now on; None keeps the present one.
        """

    def note(self, text: str) -> None:
        """Show the current activity behind the title."""

    def measure(self, step: int, values: Mapping[str, float]) -> None:
        """Report measured values by name, the points of curves at a step; a tracked fit logs them."""

    def end(self, done: int, note: str | None = None) -> None:
        """Finish the task with so many steps, whatever total it began with."""


@runtime_checkable
class Progress(Protocol):
    """Protocol for reporting a run's stages and tasks."""

    def enter(self, stage: str) -> None:
        """Begin a stage of the run; unfinished tasks of earlier ones are no longer reported."""

    def begin(self, title: str, total: int | None = None, *, name: str = "") -> Task:
        """Begin a task.

        Args:
            title: Title as plain text.
            total: Number of steps; None if it is not known yet.
            name: Name of the ranker, a prefix of the names of values that the task measures.
        """

    def say(self, text: str, heading: str = "") -> None:
        """Print a line that stays, behind a heading if it has one."""

    def remark(self, text: str) -> None:
        """Print a note that needs attention."""


class _Silent:
    """Progress that is not reported."""

    def reach(self, done: int, note: str | None = None) -> None: ...

    def note(self, text: str) -> None: ...

    def measure(self, step: int, values: Mapping[str, float]) -> None: ...

    def end(self, done: int, note: str | None = None) -> None: ...

    def enter(self, stage: str) -> None: ...

    def begin(self, title: str, total: int | None = None, *, name: str = "") -> Task:  # noqa: ARG002
        return self

    def say(self, text: str, heading: str = "") -> None: ...

    def remark(self, text: str) -> None: ...


SILENT: Progress = _Silent()
"""Progress that is not reported."""

NO_TASK: Task = _Silent()
"""A task that is not reported."""


@dataclass
class Stopwatch:
    """Wall-clock seconds by step.

    Args:
        progress: Report of the name of every step that begins.
    """

    progress: Progress = SILENT
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the seconds of one step."""
        self.progress.enter(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def format_count(number: int, noun: str, of: int | None = None) -> str:
    """Format a number with its noun: ``1 fold``, ``12 of 20 settings``."""
    total = number if of is None else of
    return f"{number}{f' of {of}' if total > number else ''} {noun}{'' if total == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Format seconds for display: ``0.4 s``, ``42 s``, ``2:10 min``, ``1:05 h``."""
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60) if seconds >= 6000 else seconds / 60
    if seconds >= 6000:
        return f"{int(minutes) // 60}:{int(minutes) % 60:02} h"
    return f"{int(minutes)}:{int(seconds) % 60:02} min"
