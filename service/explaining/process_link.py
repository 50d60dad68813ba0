"""The worker's end of the pipe to the process that explains."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from listwright.service.child_process import ended
from listwright.service.errors import ExplanationFailedError, NotReadyError, UnexplainedError
from listwright.service.explaining.explain_process import Crashed, ExplainedList, ExplainTask, Reply, run

LOOK_S = 0.02
"""Between two looks at whether the caller is still there."""

GRACE_S = 0.5
"""After the deadline, for an answer that is on its way."""

STOP_S = 2.0
"""What a process that was told to stop may take; then it is killed."""

START_S = 120.0
"""What a process may take to start; then another one is."""

TOO_LATE = "the deadline passed before any part of the explanation was there"

_spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have
_log = logging.getLogger("listwright.explanations")


class ProcessLink:
    """Asks the process, which it starts for the first question, and anew once it has ended.

    One thread asks; any other may call :meth:`kill` and :meth:`close`.

    Args:
        hook: ``module:callable`` of the operator, or None.
    """

    def __init__(self, hook: str | None) -> None:
        self._hook = hook
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready, self._ends_start_at = False, 0.0
        self._end = threading.Event()

    def ask(self, task: ExplainTask, deadline: Deadline, *, again: bool = True) -> ExplainedList:
        """What the process makes of a task.

        Args:
            task: what to explain.
            deadline: of the answer.
            again: whether another process is asked if this one has ended of its own accord.

        Raises:
            AbandonedError: if the caller goes meanwhile; the work has stopped.
            UnexplainedError: if the deadline passes before there is any answer, or a stage failed.
            ExplanationFailedError: if the process ends.
            NotReadyError: if the service stops.
            ListwrightError: that the process found in its way.
        """
        if self._end.is_set():
            raise NotReadyError("the service is stopping")
        if deadline.left_s < -GRACE_S:  # the one before was late to stop
            raise UnexplainedError(TOO_LATE)
        try:
            reply = self._asked(task, deadline)
        except (EOFError, OSError) as error:
            code = self._forget_process()
            if self._end.is_set():
                raise NotReadyError("the service stopped before the explanation was ready") from error
            if code == 0 and again:  # it had been idle for long, and ended as the task was on its way
                return self.ask(task, deadline, again=False)
            _log.error("the process that explains ended with code %s", code)
            raise ExplanationFailedError(f"the process that explains ended with code {code}: ask again") from error
        if isinstance(reply, Crashed):
            _log.error("an explanation failed: %s", reply.trace)
            raise ExplanationFailedError("the explanation failed; the service's log says why")
        if isinstance(reply, Exception):
            raise reply
        return reply

    def kill(self) -> None:
        """End the process at once; who waits for it gets an error, and the next question another process."""
        with suppress(AttributeError, ValueError):  # there is none, or it has just been closed
            self._process.kill()  # type: ignore[union-attr]

    def close(self) -> None:
        """End the process for good. Not while :meth:`ask` is expected to succeed."""
        self._end.set()
        self.kill()

    def _asked(self, task: ExplainTask, deadline: Deadline) -> Reply:
        pipe = self._pipe or self._started()
        if not self._ready:  # what is sent to a process that does not read yet would fill the pipe, and block
            self._await(pipe, deadline)
            pipe.recv()
            self._ready = True
        pipe.send(task)
        try:
            self._await(pipe, deadline)
        except (AbandonedError, UnexplainedError):
            self._stop(pipe)
            raise
        reply: Reply = pipe.recv()
        return reply

    def _started(self) -> Connection:
        pipe, theirs = _spawn.Pipe()
        process = _spawn.Process(target=run, args=(theirs, self._hook), name="explain", daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe, self._ready = process, pipe, False
        self._ends_start_at = time.perf_counter() + START_S
        if self._end.is_set():
            process.kill()
        return pipe

    def _await(self, pipe: Connection, deadline: Deadline) -> None:
        """Return once something has come.

        Raises:
            AbandonedError: if the caller goes.
            UnexplainedError: if the deadline passes.
        """
        until = deadline.at + GRACE_S
        while not pipe.poll(LOOK_S):
            deadline.check_awaited()
            now = time.perf_counter()
            if not self._ready and now > self._ends_start_at:
                self.kill()
                raise EOFError
            if now > until:
                raise UnexplainedError(TOO_LATE)

    def _stop(self, pipe: Connection) -> None:
        """Let the process end its work; kill it if it does not."""
        pipe.send(None)
        if pipe.poll(STOP_S):
            pipe.recv()
        else:
            self.kill()
            self._forget_process()

    def _forget_process(self) -> int | None:
        """End the process, if there is one; its exit code."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        return None if process is None else ended(process)
