"""Offline scoring of a file or a folder. Nothing large is imported here: workers load while the command does."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack

from listwright.ranking.errors import RecipeError
from listwright.ranking.threads import cores
from listwright.training.cluster import side_by_side
from listwright.training.console.progress import SILENT, Progress
from listwright.training.scoring.job import Job, ScoreResult, check_output


def score(
    job: Job, *, jobs: int | None = None, on: str | None = None, resume: bool = False, progress: Progress = SILENT
) -> ScoreResult:
    """Rank every list of a file or a folder, ``jobs`` parts at a time; write the rows in order with the added columns.

    Where is up to ``on``, which :func:`listwright.training.cluster.side_by_side` reads; without ``jobs`` all
    cores are used.

    Raises:
        RecipeError: if ``out`` exists, or its format is not known; if an interrupted job is there and ``resume`` is
            False, or another one is; if a worker is stopped from outside.
        DataError: if the disk is full, or the data changed meanwhile.
        ListwrightError: see :func:`listwright.training.scoring.frames.batches`,
            :func:`listwright.training.scoring.run.parts` and :func:`listwright.training.scoring.worker.rank_rows`.
            Parts that are done stay.
    """
    check_output(job)
    if on is not None:
        from listwright.training.scoring.run import inputs  # noqa: PLC0415 - as below

        inputs(job)  # wrong paths and names raise before a cluster is waited for
    try:
        with ExitStack() as until_scored:
            workers, at_a_time = until_scored.enter_context(side_by_side(on, jobs, local_jobs=cores()))
            for _ in range(at_a_time if on is None else 0):
                workers.submit(_prepare, str(job.bundle))
            from listwright.training.scoring.run import run  # noqa: PLC0415 - a second, as the workers' imports

            # the nodes of a cluster share the folder of the parts, and perhaps not the data
            return run(job, workers, at_a_time, until_scored, workers_read=on is None, resume=resume, progress=progress)
    except BrokenProcessPool as error:
        raise RecipeError("a worker was stopped from outside before its first part: give the command again") from error


def _prepare(bundle: str) -> None:
    """Import and load in a worker what the parts need. An error is raised by the first part, too."""
    from listwright.training.scoring.worker import load_bundle  # noqa: PLC0415 - whoever pickles this need not import it

    load_bundle(bundle)
