"""Ray as an executor of the standard library, so that whoever submits work need not know where it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from typing import Any

from listwright.ranking.errors import RecipeError
from listwright.training.cluster.connection import connected, no_room, room_seconds
from listwright.training.cluster.origin import call, here, packed
from listwright.training.cluster.processes import pool

RETRIES = 5
"""How often a task begins again whose node or process is lost."""

_LOOK_S = 0.5


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def side_by_side(on: str | None, jobs: int | None, *, local_jobs: int) -> Iterator[tuple[Executor, int]]:
    """An executor, and how many pieces of work it is given at a time.

    Args:
        on: as ``--on`` says it; None for processes of this machine.
        jobs: as ``--jobs`` says it; None for ``local_jobs`` here, and for all cores of a cluster.
        local_jobs: how many are worth while here.

    Raises:
        RecipeError: see :func:`listwright.training.cluster.connection.connected`.
    """
    if on is None:
        with pool(jobs or local_jobs) as processes:
            yield processes, jobs or local_jobs
        return
    with connected(on, jobs) as (ray, cores):
        executor = RayExecutor(ray)
        try:
            yield executor, jobs or cores
        finally:
            executor.shutdown(cancel_futures=True)


class RayExecutor(Executor):
    """One task of one core per piece of work. Work that was lost with its node runs again.

    All work is given up once the cluster has been without any core for :func:`room_seconds`.

    Args:
        ray: the module, connected.
    """

    def __init__(self, ray: Any) -> None:
        self._ray, self._room_s, self._origin = ray, room_seconds(), here()
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(call)
        self._running: dict[Any, Future[Any]] = {}
        self._change = threading.Condition()
        self._over = False
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As the standard library's; functions and arguments are pickled."""
        assert not kwargs, "work for a cluster has positional arguments"
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._change:
            if self._over:
                raise RuntimeError("this executor is shut down")
            self._running[self._task.remote(self._origin, packed(fn, *args))] = future
            self._change.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop collecting; what still runs is ended in the middle if ``cancel_futures``."""
        with self._change:
            self._over = True
            self._change.notify()
        if wait:
            self._collector.join()
        if cancel_futures:
            for task in self._running:
                with suppress(self._ray.exceptions.RayError, ConnectionError):  # what ended the work is told already
                    self._ray.cancel(task, force=True)

    def _collect(self) -> None:
        """Hand over results as they come, until the executor is shut down."""
        last_core = time.monotonic()
        while True:
            with self._change:
                while not self._running and not self._over:
                    self._change.wait()
                    last_core = time.monotonic()
                if self._over:
                    return
                waiting = list(self._running)
            try:
                done, _ = self._ray.wait(waiting, timeout=_LOOK_S)
                for task in done:
                    self._hand_over(task)
                if done or self._ray.cluster_resources().get("CPU", 0) >= 1:
                    last_core = time.monotonic()
                elif time.monotonic() - last_core > self._room_s:
                    raise no_room(self._ray, self._room_s)
            except Exception as error:  # whoever waits for a future must hear of whatever ends this thread
                self._fail_all(error)
                return

    def _hand_over(self, task: Any) -> None:
        try:
            result = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            self._take(task).set_exception(error.cause)
        except self._ray.exceptions.RayError as error:
            said = str(error).strip().splitlines()[0]
            self._take(task).set_exception(
                RecipeError(f"a task was lost {RETRIES + 1} times, perhaps for want of memory: {said}")
            )
        else:
            self._take(task).set_result(result)

    def _take(self, task: Any) -> Future[Any]:
        with self._change:
            return self._running.pop(task)

    def _fail_all(self, error: Exception) -> None:
        with self._change:
            for future in self._running.values():
                future.set_exception(error)
            self._running.clear()
            self._over = True
