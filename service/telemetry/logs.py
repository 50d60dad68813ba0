"""Logs: one JSON object per line on stderr, from every logger. No request waits for a line to be read."""

from __future__ import annotations

import atexit
import logging
import logging.config
import math
import os
import queue
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

import lightgbm
from structlog.processors import EventRenamer, JSONRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, WrappedLogger

MOST_LINES = 4096
"""Lines that wait to be written; later ones are dropped and counted."""

LEAVE_WITHIN_S = 1.0
"""Seconds that the end of the process waits for the last lines to be written."""

STDERR = 2

_log = logging.getLogger("listwright.logs")


class Repeats:
    """Counts of what keeps happening, each due for a line of the log at most once in a while. Threads may share it.

    Args:
        every_s: Seconds between two lines about the same.
        clock: Clock in seconds.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock, self._lock = every_s, clock, threading.Lock()
        self._counts, self._logged_at = Counter[str](), dict[str, float]()

    def note(self, what: str = "", count: int = 1) -> int:
        """Count; return the number since the last line about the same if the next one is due, else 0."""
        with self._lock:
            self._counts[what] += count
            if (now := self._clock()) - self._logged_at.get(what, -math.inf) < self._every_s:
                return 0
            self._logged_at[what] = now
            return self._counts.pop(what)


class LineWriter:
    """Writer of lines with its own thread: logging never waits, even if the other end of a pipe is not read.

    Args:
        descriptor: Descriptor of the open file.
        notice: Function that makes the line about dropped lines, once all that waited are written.
        most: Number of lines that may wait.
    """

    def __init__(self, descriptor: int, notice: Callable[[int], str], most: int = MOST_LINES) -> None:
        self.dropped = 0
        self._descriptor, self._notice = descriptor, notice
        self._lines: queue.Queue[bytes | None] = queue.Queue(most)
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Queue a line, or drop it and count."""
        try:
            self._lines.put_nowait(line.encode("utf-8", "backslashreplace") + b"\n")
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write the remaining lines, within a time limit."""
        try:
            self._lines.put(None, timeout=LEAVE_WITHIN_S)
        except queue.Full:
            return
        self._thread.join(LEAVE_WITHIN_S)

    def _write(self) -> None:
        reported = 0
        line: bytes | None = b""
        while line is not None:
            line = self._lines.get()
            if line is not None:
                self._write_all(line)
            if self.dropped != reported and (line is None or self._lines.empty()):
                count, reported = self.dropped - reported, self.dropped
                self._write_all(self._notice(count).encode() + b"\n")

    def _write_all(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:  # another process that shares the file has made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError:  # it has no reader any more
                self.dropped += 1
                return


class LineHandler(logging.Handler):
    """Handler that queues each record as a line."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Format and queue a record (logging's hook)."""
        try:
            self._writer.put(self.format(record))
        except Exception:
            self.handleError(record)


_writer: LineWriter | None = None


def configure(level: str) -> None:
    """Have every logger of this process write JSON lines to stderr, also warnings and uncaught errors.

    Args:
        level: Least severe level that is written.
    """
    global _writer  # noqa: PLW0603 - a process has one stderr
    if _writer is None:
        _writer = LineWriter(STDERR, _notice)
        atexit.register(close)
    handler = {"()": LineHandler, "writer": _writer, "formatter": "json"}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": json_lines}},
            "handlers": {"stderr": handler},
            "root": {"handlers": ["stderr"], "level": level.upper()},
        }
    )
    logging.captureWarnings(capture=True)
    lightgbm.register_logger(logging.getLogger("lightgbm"))  # it would print
    threading.excepthook = _thread_died
    sys.unraisablehook = _unraisable


def say(line: str) -> None:
    """Write a line as it is, through the writer of the loggers."""
    if _writer is None:
        print(line, file=sys.stderr)
    else:
        _writer.put(line)


def close() -> None:
    """Write the last lines. A process that :mod:`multiprocessing` started must call it itself."""
    if _writer is not None:
        _writer.close()


def dropped() -> int:
    """Return the number of dropped lines of this process."""
    return 0 if _writer is None else _writer.dropped


def _notice(count: int) -> str:
    message = f"{count} log lines were dropped: they came faster than they were read"
    return json_lines().format(_log.makeRecord(_log.name, logging.WARNING, __file__, 0, message, (), None))


def _thread_died(died: threading.ExceptHookArgs) -> None:
    name = "a thread" if died.thread is None else f"thread {died.thread.name}"
    assert died.exc_value is not None
    _log.error("%s ended with an error", name, exc_info=died.exc_value)


def _unraisable(fault: sys.UnraisableHookArgs) -> None:
    _log.error("%s %r", fault.err_msg or "an error was ignored in", fault.object, exc_info=fault.exc_value)


def json_lines() -> logging.Formatter:
    """Return a formatter of records as JSON, with their ``facts`` as fields; none of them holds a feature value."""
    return ProcessorFormatter(
        foreign_pre_chain=[_fields, format_exc_info],
        processors=[ProcessorFormatter.remove_processors_meta, EventRenamer("message"), JSONRenderer()],
    )


def _fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = cast(logging.LogRecord, event["_record"])
    return {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "pid": record.process,
        **event,
        **getattr(record, "facts", {}),
    }
