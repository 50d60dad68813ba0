"""The operator's own router: loaded by its name, and isolated from the requests that call it."""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections import deque
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from listwright.ranking.errors import ListwrightError, RoutingError
from listwright.ranking.router import Choice, Hook, Query

PASSED = "hook_passed"
"""Kind of the RoutingError that says "no opinion": the bundle's router decides, and nothing went wrong."""

MOST_SPECIALISTS = 100
"""Number of specialists that a bundle can hold; larger numbers of a hook are refused."""

LEAVE_WITHIN_S = 2.0
"""Seconds that a hook's own threads may take to end, once the service has stopped."""

_Answer = SimpleQueue[Choice | RoutingError]
_Jobs = SimpleQueue[tuple[Query, _Answer] | None]


class HookError(ListwrightError):
    """Error for a callable that cannot be a hook."""


def load(name: str) -> Hook:
    """Import the hook of a name.

    Args:
        name: ``module:callable``; the callable may be dotted.

    Raises:
        HookError: if the module cannot be imported, or holds no such callable, or that takes not just one argument, or
            is a coroutine function. The message names the remedy.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise HookError(
            f"{name!r}: importing {module_name!r} raised {type(error).__name__}: {error}; put the module's folder on "
            "PYTHONPATH and see that it imports"
        ) from error
    try:
        hook: Hook = attrgetter(attribute)(module)
    except AttributeError as error:
        raise HookError(f"{name!r}: {module_name!r} has no {attribute!r}: name a callable that it defines") from error
    if not callable(hook):
        raise HookError(f"{name!r} is a {type(hook).__name__}, which cannot be called: name a callable")
    if inspect.iscoroutinefunction(hook):
        raise HookError(f"{name!r} is a coroutine function: define it with def, not async def")
    with suppress(ValueError):  # some callables written in C have no signature
        try:
            inspect.signature(hook).bind(None)
        except TypeError as error:
            raise HookError(
                f"{name!r} cannot be called with a Query alone ({error}): let it take one argument"
            ) from error
    return hook


def exit_soon(code: int) -> None:
    """End this process after :data:`LEAVE_WITHIN_S`: Python itself would wait for all threads of a hook."""
    timer = threading.Timer(LEAVE_WITHIN_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


class IsolatedHook:
    """A hook whose errors and delays do not reach its callers. Threads may share it.

    Each call runs in one of a few threads of its own and is waited for as long as the budget. A call that hangs keeps
    its thread; when all of them are kept, further calls are refused at once, until one comes free. The threads are
    daemons: the process ends without waiting for them.

    A thread cannot be interrupted: a call that spins takes its share of the CPU, and one that
    never releases Python's global lock stops the process.

    Args:
        hook: Hook of the operator.
        budget_s: Seconds that a call is waited for.
        threads: Number of calls that can be under way, hung ones included.
    """

    def __init__(self, hook: Hook, *, budget_s: float, threads: int) -> None:
        self._hook, self._budget_s = hook, budget_s
        self._jobs: tuple[_Jobs, ...] = tuple(SimpleQueue() for _ in range(threads))
        self._idle = deque(self._jobs)  # append and pop are atomic
        for number, jobs in enumerate(self._jobs):
            threading.Thread(target=self._work, args=(jobs,), name=f"hook-{number}", daemon=True).start()

    def __call__(self, query: Query) -> Choice:
        """Call the hook within the budget.

        Raises:
            RoutingError: of kind ``hook_raised``, ``hook_timeout``, ``hook_invalid`` (it returned what is no decision)
                or ``hook_busy`` (all threads hang); :data:`PASSED` if it has no opinion.
        """
        try:
            jobs = self._idle.pop()
        except IndexError:
            raise RoutingError(
                "hook_busy", f"all {len(self._jobs)} threads of the hook are at work on earlier calls"
            ) from None
        answer: _Answer = SimpleQueue()
        jobs.put((query, answer))
        try:
            outcome = answer.get(timeout=self._budget_s)
        except Empty:
            raise RoutingError("hook_timeout", f"the hook took longer than {self._budget_s * 1000:g} ms") from None
        if isinstance(outcome, RoutingError):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the threads, each after its current call; does not wait."""
        for jobs in self._jobs:
            jobs.put(None)

    def _work(self, jobs: _Jobs) -> None:
        while self._turn(jobs):  # a function of its own: a waiting thread would keep the last list in memory
            continue

    def _turn(self, jobs: _Jobs) -> bool:
        job = jobs.get()
        if job is None:
            return False
        query, answer = job
        outcome = self._outcome(query)
        self._idle.append(jobs)  # before the answer: its caller may call again at once
        answer.put(outcome)
        return True

    def _outcome(self, query: Query) -> Choice | RoutingError:
        try:
            return _check_choice(self._hook(query))
        except _InvalidChoiceError as error:
            return RoutingError(error.kind, str(error))
        except BaseException as error:  # SystemExit and KeyboardInterrupt would end only this thread
            return RoutingError("hook_raised", f"the hook raised {type(error).__name__} at {_place(error)}")


class _InvalidChoiceError(RoutingError):
    """A refused choice, distinct from a RoutingError that the hook raises, whose kind could be anything."""


def _check_choice(choice: Any) -> Choice:
    """Check a hook's choice, and return it as plain numbers: NumPy's count as numbers, a truth value as none."""
    if choice is None:
        raise _InvalidChoiceError(PASSED, "the hook has no opinion")
    if not isinstance(choice, Choice):
        raise _InvalidChoiceError("hook_invalid", f"the hook returned a {type(choice).__name__}, not a Choice or None")
    specialist, confidence = choice.specialist, choice.confidence
    if specialist is not None:
        if isinstance(specialist, bool) or not isinstance(specialist, int | np.integer):
            kind = type(specialist).__name__
            raise _InvalidChoiceError("hook_invalid", f"the hook's specialist is a {kind}, not a whole number or None")
        if not 0 <= specialist < MOST_SPECIALISTS:
            raise _InvalidChoiceError("unknown_specialist", "the hook chose a specialist that no bundle has")
        specialist = int(specialist)
    if confidence is not None:
        if isinstance(confidence, bool) or not isinstance(confidence, int | float | np.integer | np.floating):
            kind = type(confidence).__name__
            raise _InvalidChoiceError("hook_invalid", f"the hook's confidence is a {kind}, not a number or None")
        if not 0.0 <= confidence <= 1.0:  # neither is NaN
            raise _InvalidChoiceError("hook_invalid", "the hook's confidence is no probability from 0 to 1")
        confidence = float(confidence)
    return Choice(specialist, confidence)


def _place(error: BaseException) -> str:
    """Return file and line of an error. Its message is left out: it may quote a feature value."""
    trace = error.__traceback__
    if trace is None:  # an exception may replace its own traceback
        return "unknown place"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
