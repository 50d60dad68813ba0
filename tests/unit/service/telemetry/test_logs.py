"""Lines leave by a thread of their own: nobody waits for whoever should read them."""

import json
import logging
import os
import select
import sys
import threading
import warnings

import pytest

from listwright.service.telemetry import logs
from listwright.service.telemetry.logs import LineHandler, LineWriter
from support.waiting import PATIENCE_S

PIPE = 2**16
"""Bytes that a pipe holds."""


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def writer(writing, most=8):
    return LineWriter(writing, lambda count: f"dropped {count}", most)


def read_until(reading, wanted):
    """All that comes until a line that begins so."""
    found = b""
    while not any(line.startswith(wanted) for line in found.split(b"\n")[:-1]):
        ready, _, _ = select.select([reading], [], [], PATIENCE_S)
        assert ready, "waited in vain"
        part = os.read(reading, PIPE)
        assert part, "it was closed before"
        found += part
    return found.decode().splitlines()


def test_lines_arrive_in_their_order(pipe):
    reading, writing = pipe
    lines = writer(writing)
    for number in range(5):
        lines.put(f"line {number} é")
    assert read_until(reading, b"line 4") == [f"line {number} é" for number in range(5)]


def test_nobody_waits_where_nobody_reads_and_the_count_comes_with_the_next_reader(pipe):
    reading, writing = pipe
    lines = writer(writing)
    line = "x" * (PIPE // 4)
    for _ in range(100):  # four fill the pipe, one is being written, eight wait; the thread may not have begun yet
        lines.put(line)
    assert 100 - 13 <= lines.dropped <= 100 - 8
    lines.close()  # nor does the end wait for ever
    dropped = lines.dropped
    found = read_until(reading, b"dropped")
    assert found == [line] * (100 - dropped) + [f"dropped {dropped}"]


def test_whoever_reads_may_go(pipe):
    reading, writing = pipe
    os.close(reading)
    lines = writer(writing)
    for _ in range(3):
        lines.put("unread")
    lines.close()
    assert lines.dropped >= 3, "and perhaps the line that would have said so"


def test_a_file_that_others_made_non_blocking_is_waited_for(pipe):
    reading, writing = pipe
    os.set_blocking(writing, False)
    lines = writer(writing)
    for _ in range(6):
        lines.put("y" * (PIPE // 4))
    lines.put("last")
    assert read_until(reading, b"last") == ["y" * (PIPE // 4)] * 6 + ["last"]


@pytest.fixture
def configured(monkeypatch, pipe):
    """Everything of this process writes to a pipe."""
    root = logging.getLogger()
    level, handlers, loggers = root.level, root.handlers[:], (sys.unraisablehook, threading.excepthook)
    monkeypatch.setattr(logs, "_writer", writer(pipe[1], 100))
    logs.configure("info")
    yield pipe[0]
    logging.captureWarnings(capture=False)
    sys.unraisablehook, threading.excepthook = loggers
    root.level, root.handlers = level, handlers


def test_whatever_python_would_print_is_a_line(configured):
    """A thread that dies, an error that nobody can catch, a warning."""
    thread = threading.Thread(target=lambda: 1 / 0, name="lost")
    thread.start()
    thread.join()

    class Careless:
        def __del__(self):
            raise ValueError("in the end")

    Careless()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("take care", stacklevel=1)
    logs.say("done")
    *lines, last = read_until(configured, b"done")
    assert last == "done"
    messages = [json.loads(line)["message"] for line in lines]
    assert "thread lost ended with an error" in messages
    assert any("Careless.__del__" in message for message in messages)
    assert any("take care" in message for message in messages)
    assert any("ZeroDivisionError" in json.loads(line).get("exception", "") for line in lines)


def test_a_record_that_cannot_be_written_raises_nothing(configured, monkeypatch, capsys):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("x").error("%d", "no number")
    logging.getLogger("x").error("fine")
    assert any("fine" in line for line in read_until(configured, b"{"))


def test_a_handler_hands_over_and_no_more(pipe):
    lines = writer(pipe[1])
    handler = LineHandler(lines)
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "hello", (), None))
    assert read_until(pipe[0], b"hello") == ["hello"]
