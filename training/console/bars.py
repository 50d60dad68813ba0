"""Progress bars on a terminal; elsewhere (CI, nohup, a container's log) a plain line from time to time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import rich.progress
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from listwright.ranking.errors import plain_text

LINE_S = 25.0
"""Seconds between two lines; at least one line appears every half minute."""

CHECK_S = 1.0
"""Seconds between two checks of the clock."""

PACE = 3600.0
"""Seconds of past steps that the time left is estimated from, where steps may take minutes."""

BAR = BarColumn(bar_width=12)
"""Width of a bar that fits the 80 columns of a plain terminal."""


Recorder = Callable[[str, int, float], None]
"""Callback with the name of a curve, a step from 1, and the value there."""


class Bars(rich.progress.Progress):
    """Progress of a run on the console: :class:`listwright.training.console.progress.Progress` with rich's bars.

    Without a terminal, a thread prints one plain line every :data:`LINE_S` seconds, flushed: time so far, stage, task,
    how much of it, time left. It does so too while nothing reports any progress. A run that is over before prints none.

    Args:
        columns: Columns of the bars.
        console: Console for the output.
        pace: Seconds of past steps from which the time left on a bar is estimated.
        clock: Function that returns the time in seconds.
        recorder: Function that is called with all measurements of tasks; None drops them.
    """

    def __init__(
        self,
        *columns: ProgressColumn,
        console: Console,
        pace: float,
        clock: Callable[[], float] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        # whether bars cannot be redrawn; forcing colour does not turn a file into a terminal
        self._plain = not console.is_jupyter and (not console.file.isatty() or console.is_dumb_terminal)
        self.recorder = recorder
        super().__init__(*columns, console=console, speed_estimate_period=PACE if self._plain else pace, get_time=clock)
        self._stage: tuple[str, float] | None = None
        self._latest: TaskID | None = None
        self._earlier: frozenset[TaskID] = frozenset()
        self._began = self._last_line = self.get_time()
        self._over = threading.Event()
        self._printer: threading.Thread | None = None

    def enter(self, stage: str) -> None:
        """Begin a stage of the run; see :meth:`listwright.training.console.progress.Progress.enter`."""
        self._stage, self._latest, self._earlier = (stage, self.get_time()), None, frozenset(self.task_ids)

    def begin(self, title: str, total: int | None = None, *, name: str = "") -> Bar:
        """Begin a task, shown as one bar; see :meth:`listwright.training.console.progress.Progress.begin`."""
        return Bar(self, title, total, name)

    def say(self, text: str, heading: str = "") -> None:
        """Print a line that stays; see :meth:`listwright.training.console.progress.Progress.say`."""
        self.console.print((f"[bold]{escape(heading)}[/]: " if heading else "") + escape(plain_text(text)))

    def remark(self, text: str) -> None:
        """Print a note; see :meth:`listwright.training.console.progress.Progress.remark`."""
        self.console.print(f"[yellow]Note:[/] {escape(plain_text(text))}")

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Update a task as rich does, and remember it as the one that plain lines report."""
        self._latest = task_id
        super().update(task_id, **changes)

    def start(self) -> None:
        """Show bars, or begin to print lines."""
        if not self._plain:
            super().start()
        elif not self.console.quiet and self._printer is None:
            self._began = self._last_line = self.get_time()
            self._over.clear()
            self._printer = threading.Thread(target=self._print_until_over, daemon=True)
            self._printer.start()

    def stop(self) -> None:
        """Leave the bars as they are at the end: without a terminal they are printed once, now."""
        if not self._plain:
            super().stop()
        elif self._printer is not None:
            self._over.set()
            self._printer.join()
            self._printer = None
            if self.tasks:
                self.console.print(self.get_renderable())

    def tell(self) -> None:
        """Print a line if one is due."""
        now = self.get_time()
        if now - self._last_line >= LINE_S:
            self._last_line = now
            self.console.out(self._line(now), highlight=False)

    def _print_until_over(self) -> None:
        while not self._over.wait(CHECK_S):
            self.tell()

    def _line(self, now: float) -> str:
        stage, task = self._stage, self._current()
        parts = [] if stage is None else [f"{stage[0]} ({_clock(now - stage[1])})"]
        if task is not None:
            parts.append(_describe(task))
        return f"{_clock(now - self._began)}  {': '.join(parts) or 'working'}"

    def _current(self) -> rich.progress.Task | None:
        """Return the task of this stage that was updated last, or else its first that is not finished."""
        open_ones = [task for task in self.tasks if not task.finished and task.id not in self._earlier]
        return next((task for task in open_ones if task.id == self._latest), next(iter(open_ones), None))


class Bar:
    """A task shown as one bar: :class:`listwright.training.console.progress.Task`."""

    def __init__(self, bars: Bars, title: str, total: int | None, name: str) -> None:
        self._bars, self._title, self._name = bars, title, name
        self._id = bars.add_task(escape(title), total=total)

    def reach(self, done: int, note: str | None = None) -> None:
        """Report the number of completed steps; see :meth:`listwright.training.console.progress.Task.reach`."""
        self._bars.update(self._id, completed=done, **self._described(note))

    def note(self, text: str) -> None:
        """Show a note behind the title; see :meth:`listwright.training.console.progress.Task.note`."""
        self._bars.update(self._id, **self._described(text))

    def measure(self, step: int, values: Mapping[str, float]) -> None:
        """Report measured values; see :meth:`listwright.training.console.progress.Task.measure`."""
        if self._bars.recorder is not None:
            for key, value in values.items():
                self._bars.recorder(f"{self._name}/{key}", step, value)

    def end(self, done: int, note: str | None = None) -> None:
        """Finish the task; see :meth:`listwright.training.console.progress.Task.end`."""
        self._bars.update(self._id, total=done, completed=done, **self._described(note))

    def _described(self, note: str | None) -> dict[str, str]:
        if note is None:
            return {}
        return {"description": escape(f"{self._title}, {note}" if note else self._title)}


def progress_bars(
    console: Console, *columns: ProgressColumn, pace: float = 30.0, recorder: Recorder | None = None
) -> Bars:
    """Create the progress display of a run: bars on a terminal, plain lines elsewhere.

    Args:
        console: Console for the output.
        columns: Columns in place of text, bar, count and time left.
        pace, recorder: Arguments of :class:`Bars`.
    """
    usual = (
        TextColumn("{task.description}"),
        BAR,
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    return Bars(*(columns or usual), console=console, pace=pace, recorder=recorder)


def elapsed_bars(console: Console) -> Bars:
    """Create the progress display of a run whose total is not known: text, count and elapsed time."""
    elapsed = rich.progress.TimeElapsedColumn()
    return progress_bars(console, TextColumn("{task.description}"), MofNCompleteColumn(), elapsed)


def _describe(task: rich.progress.Task) -> str:
    """Return a task's title, how much of it is done, and the expected time for the rest."""
    text = Text.from_markup(task.description, emoji=False).plain
    total = "" if task.total is None else f" of {task.total:,.0f}"
    left = "" if task.time_remaining is None else f", about {_clock(task.time_remaining)} left"
    return f"{text}, {task.completed:,.0f}{total}{left}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
