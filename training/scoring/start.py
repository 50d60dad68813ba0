"""Offline scoring from its start: the workers begin to import and load while the command does."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack

from listwright.ranking.errors import RecipeError
from listwright.training.cluster.executor import cores, side_by_side
from listwright.training.progress import SILENT, Progress
from listwright.training.scoring.job import Job, Scored, check_output


def score(
    job: Job, *, jobs: int | None = None, on: str | None = None, resume: bool = False, progress: Progress = SILENT
) -> Scored:
    """Rank every list of a file or a folder, ``jobs`` parts at a time; write the rows in order with the added columns.

    Where is up to ``on``, which :func:`listwright.training.cluster.executor.side_by_side` reads; without ``jobs`` all
    cores are used.

    Raises:
        RecipeError: if ``out`` exists, or its format is not known; if an interrupted job is there and ``resume`` is
            False, or another one is; if a worker is stopped from outside.
        DataError: if the disk is full, or the data changed meanwhile.
        ListwrightError: see :func:`listwright.training.scoring.frames.batches`,
            :func:`listwright.training.scoring.parts.parts` and :func:`listwright.training.scoring.rank.ranked`. Parts
            that are done stay.
    """
    check_output(job)
    if on is not None:
        _check_inputs(job)
    try:
        return _scored(job, jobs, on, resume=resume, progress=progress)
    except BrokenProcessPool as error:
        raise RecipeError("a worker was stopped from outside before its first part: give the command again") from error


def _scored(job: Job, jobs: int | None, on: str | None, *, resume: bool, progress: Progress) -> Scored:
    with ExitStack() as until_scored:
        workers, at_a_time = until_scored.enter_context(side_by_side(on, jobs, local_jobs=cores()))
        if on is None:
            for _ in range(at_a_time):
                workers.submit(_prepare, str(job.bundle))
        from listwright.training.scoring.run import run  # noqa: PLC0415 - takes a second, as the workers' imports do

        # the nodes of a cluster share the folder of the parts, and perhaps not the data
        return run(job, workers, at_a_time, until_scored, workers_read=on is None, resume=resume, progress=progress)


def _check_inputs(job: Job) -> None:
    """A wrong name is told before a cluster is waited for."""
    from listwright.training.scoring.run import inputs  # noqa: PLC0415 - as in _scored

    inputs(job)


def _prepare(bundle: str) -> None:
    """In a worker: import and load what the parts need. An error is that of the first part, too."""
    from listwright.training.scoring.worker import loaded  # noqa: PLC0415 - whoever pickles this need not import it

    loaded(bundle)
