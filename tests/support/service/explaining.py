"""Processes in the place of the one that explains: each misbehaves in its own way. A process is started with them by name."""

import os
import time
from pathlib import Path

from listwright.ranking.errors import AbandonedError
from listwright.service.explaining import explain_process


def held(pipe, hook):
    """Works on its task until it is told to stop."""
    pipe.send(None)
    while True:
        if pipe.recv() is not None:
            while not pipe.poll(0.05):
                pass
            pipe.send(AbandonedError("stopped"))


def deaf(pipe, hook):
    """Does not even heed that."""
    pipe.send(None)
    time.sleep(3600)


def slow_to_start(pipe, hook):
    time.sleep(3600)


def dying(pipe, hook):
    """Ends in the middle of its task."""
    pipe.send(None)
    pipe.recv()
    os._exit(3)


def crashing(pipe, hook):
    """Meets an error that nobody had in mind."""
    pipe.send(None)
    while pipe.recv() is not None:
        pipe.send(explain_process.Crashed("Traceback: inner secret"))


def soon_idle(pipe, hook):
    """The real one, which ends once it has had nothing to do for a moment."""
    explain_process.IDLE_S = 0.1
    explain_process.run(pipe, hook)


def leaving_once(pipe, hook):
    """Ends itself as the first task is on its way; the next one of its kind stays."""
    gone = Path(hook)
    if gone.exists():
        explain_process.run(pipe, None)
    pipe.send(None)
    pipe.recv()
    gone.touch()
