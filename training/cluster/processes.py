"""Worker processes with one thread each, which are gone when their parent is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess

ONE_THREAD = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
"""Of a process: they share the cores, and figures repeat to the bit. Libraries read it when they are imported."""

KEPT_PAGES = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:10000"}
"""For the allocator of polars: the memory of one piece of work serves the next, and does not go back in between."""


class _Worker(SpawnProcess):
    """Has one thread: it is started with these variables, and its parent goes on without them."""

    def start(self) -> None:
        kept = {name: value for name, value in KEPT_PAGES.items() if name not in os.environ}
        with _inherited(ONE_THREAD | kept):
            super().start()


class _Workers(SpawnContext):
    """Processes that are started anew: a fork would copy torch's threads in whatever state they are."""

    Process = _Worker


@contextmanager
def pool(jobs: int) -> Iterator[Executor]:
    """Worker processes that stop at once when this one fails, is interrupted, or is killed."""
    context = _Workers()
    # a pipe, and no event: who is killed while it waits for one takes the lock along that is needed to set it
    heard, held = context.Pipe(duplex=False)
    workers = ProcessPoolExecutor(jobs, mp_context=context, initializer=_obey, initargs=(heard,))
    try:
        yield workers
    except BaseException:
        held.close()
        raise
    finally:
        workers.shutdown(cancel_futures=True)
        held.close()
        heard.close()


@contextmanager
def _inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _obey(parent: Connection) -> None:
    """Ctrl-C is the parent's to hear; the end of its pipe, or its own, ends this process in mid-fit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: Connection) -> None:
    with suppress(EOFError, OSError):
        parent.recv()
    os._exit(1)
