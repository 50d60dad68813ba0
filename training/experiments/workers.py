"""Fits side by side: one process per core with one thread each, resumable, gone when their parent is."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ranking.errors import ListwrightError, RecipeError
from training.experiments.fits import Fit, measure
from training.experiments.store import Store
from training.progress import BAR, PACE, progress_bars


def run_all(title: str, fits: Sequence[Fit], store: Store, jobs: int, console: Console) -> pl.DataFrame:
    """Every fit that is not done yet, ``jobs`` at a time; then the results of all.

    LambdaMART's settings are found once on the same data, before other seeds ask for them; the first stage of a group
    is fitted once, before the methods that share it.

    Raises:
        RecipeError: if a worker was stopped from outside; what is finished is kept.
        ListwrightError: of the first fit that failed.
    """
    todo = [fit for fit in fits if not store.has(fit.name)]
    columns = (
        TextColumn("{task.description}"),
        BAR,
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with progress_bars(console, *columns, pace=PACE) as bar:
        task = bar.add_task(title, total=len(fits), completed=len(fits) - len(todo))
        try:
            with pool(min(jobs, max(1, len(todo)))) as workers:  # processes start with the first fit, if there is one
                for done in _in_order(todo, store, jobs, workers):
                    bar.update(task, description=f"{title}: {done.method}", advance=1)
        except BrokenProcessPool as error:
            raise RecipeError(
                "a worker was stopped from outside, perhaps for want of memory: finished fits are kept; the same "
                "command goes on, with --jobs N for fewer at a time"
            ) from error
        bar.update(task, description=title)
    return store.join([fit.name for fit in fits])


def _in_order(todo: Sequence[Fit], store: Store, jobs: int, workers: Executor) -> Iterator[Fit]:
    """Fits as they finish, started in their order but for those that wait for their group's first stage."""
    waiting = {fit.group for fit in todo if fit.is_first_stage}
    left = Counter(fit.group for fit in todo)
    queue, running = list(todo), dict[Future[pl.DataFrame], Fit]()
    while queue or running:
        while len(running) < jobs and (fit := _next(queue, waiting, running.values(), store)) is not None:
            queue.remove(fit)
            running[workers.submit(measured, fit, store.state(fit.group), store.tuned(fit.data))] = fit
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda one: one.exception() is not None):  # what is whole is kept first
            fit = running.pop(future)
            store.add(fit.name, future.result())
            if fit.is_first_stage:
                waiting.remove(fit.group)
            left[fit.group] -= 1
            if left[fit.group] == 0:
                shutil.rmtree(store.state(fit.group))
            yield fit


def _next(queue: Sequence[Fit], waiting: Container[str], running: Iterable[Fit], store: Store) -> Fit | None:
    """The first fit of the queue that has what it shares with others, or is the one to make it."""
    in_search = {fit.data for fit in running if not store.tuned(fit.data).exists()}
    ready = (fit.data not in in_search if fit.is_first_stage else fit.group not in waiting for fit in queue)
    return next((fit for fit, can_start in zip(queue, ready, strict=True) if can_start), None)


def measured(fit: Fit, state: Path, tuned: Path) -> pl.DataFrame:
    """:func:`training.experiments.fits.measure`, whose errors say of which fit they are."""
    try:
        return measure(fit, state, tuned)
    except ListwrightError as error:  # of a class that any process can make again from its message
        raise RecipeError(f"{fit.name}: {error}") from None


@contextmanager
def pool(jobs: int) -> Iterator[Executor]:
    """Worker processes that stop at once when this one fails, is interrupted, or is killed."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in whatever state they are
    # a pipe, and no event: who is killed while it waits for one takes the lock along that is needed to set it
    heard, held = context.Pipe(duplex=False)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # the processes share the cores, and figures repeat to the bit
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
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _obey(parent: Connection) -> None:
    """Ctrl-C is the parent's to hear; the end of its pipe, or its own, ends this process in mid-fit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: Connection) -> None:
    with suppress(EOFError, OSError):
        parent.recv()
    os._exit(1)
