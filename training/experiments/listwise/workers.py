"""Fits side by side: one process per core with one thread each, resumable, gone when their parent is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool

import polars as pl
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.training.bars import BAR, PACE, progress_bars
from listwright.training.cluster.executor import cores, side_by_side
from listwright.training.experiments.listwise.fits import Fit, measure
from listwright.training.experiments.store import Place, Store


def run_all(
    title: str,
    fits: Sequence[Fit],
    store: Store,
    jobs: int | None,
    console: Console,
    *,
    on: str | None = None,
    keep: bool = False,
) -> pl.DataFrame:
    """Every fit that is not done yet, ``jobs`` at a time, in processes or on Ray; then the results of all.

    Settings are searched once on the same data, before other seeds ask for them; a first stage is fitted once, before
    the methods that share it. With ``keep`` first stages stay, for methods that are asked for later.

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
            if todo:
                most = len(todo) if jobs is None else min(jobs, len(todo))
                with side_by_side(on, None if jobs is None else most, local_jobs=min(cores(), most)) as (
                    workers,
                    at_once,
                ):
                    for done in _in_order(todo, store, at_once, workers, keep=keep):
                        bar.update(task, description=f"{title}: {done.method}", advance=1)
        except BrokenProcessPool as error:
            raise RecipeError(
                "a worker was stopped from outside, perhaps for want of memory: finished fits are kept; the same "
                "command goes on, with --jobs N for fewer at a time"
            ) from error
        bar.update(task, description=title)
    if not keep:  # of fits that were done with it, nothing is there any more
        for place in {fit.place for fit in fits}:
            store.leave(place)
    return store.join([fit.name for fit in fits])


def _in_order(todo: Sequence[Fit], store: Store, jobs: int, workers: Executor, *, keep: bool) -> Iterator[Fit]:
    """Fits as they finish, started in their order but for those that wait for what others make."""
    makers = _makers(todo, store)
    left = Counter(fit.place for fit in todo)
    queue, running = list(todo), dict[Future[pl.DataFrame], Fit]()
    while queue or running:
        while len(running) < jobs and (ready := _next(queue, makers, left, store)) is not None:
            queue.remove(ready)
            running[workers.submit(measured, ready, store.place(ready.place))] = ready
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda one: one.exception() is not None):  # what is whole is kept first
            fit = running.pop(future)
            store.add(fit.name, future.result())
            makers = {made: maker for made, maker in makers.items() if maker != fit.name}
            left[fit.place] -= 1
            if left[fit.place] == 0 and not keep:
                store.leave(fit.place)
            yield fit


def _makers(todo: Sequence[Fit], store: Store) -> dict[str, str]:
    """Of each first stage and each search: the first fit that needs it, so that the number of jobs changes nothing."""
    makers: dict[str, str] = {}
    for fit in todo:
        for made in _shared(fit, store):
            makers.setdefault(made, fit.name)
    return makers


def _next(queue: Sequence[Fit], makers: Mapping[str, str], left: Mapping[str, int], store: Store) -> Fit | None:
    """The first fit of the queue that has what it shares with others, or is the one to make it."""
    for fit in queue:
        waits = any(makers.get(made, fit.name) != fit.name for made in _shared(fit, store))
        comes_last = fit.chooses and left[fit.place] > 1
        if not waits and not comes_last:
            return fit
    return None


def _shared(fit: Fit, store: Store) -> list[str]:
    """What a fit shares with others: the first stages of its place, and searches that are not done."""
    stages = [f"{fit.place}-{stage}" for stage in fit.first_stages]
    return stages + [search for search in fit.searches if not store.tuned(search)]


def measured(fit: Fit, place: Place) -> pl.DataFrame:
    """:func:`listwright.training.experiments.listwise.fits.measure`, whose errors say of which fit they are."""
    try:
        return measure(fit, place)
    except ListwrightError as error:  # of a class that any process can make again from its message
        raise RecipeError(f"{fit.name}: {error}") from None
