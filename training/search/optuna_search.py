"""A resumable search: Optuna's TPE proposes, the median of earlier trials prunes, a journal remembers.

What a trial is proposed depends on the seed and on the trials finished before it, and on nothing else. So a search that
was killed, or is given more trials later, ends as one that went through.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.pruners import MedianPruner
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from listwright.ranking.errors import RecipeError
from listwright.training.progress import NO_TASK, Task
from listwright.training.search.space import Space, Value, stored, widened

STARTUP_TRIALS = 5
"""Trials that are finished before the first one is pruned: a median of fewer says little."""

Pruned = optuna.TrialPruned
"""Raised by ``report`` to end a trial, and by an objective that fails in its own way."""

StepReport = Callable[[int, float], None]
"""Told a step, counted from 1, and the held-out value after it; ends the trial if it is below the median."""


GoesOn = Callable[[int, float], bool]
"""Asked whether a work goes on: steps that are done, and seconds that the next one takes about."""

Objective = Callable[[int, dict[str, Value], StepReport], tuple[float, int]]
"""One trial: from the number of trials finished before it, a value for every hyperparameter of the space, and what is
to be told the progress, to the held-out value, higher is better, and a fact to remember with it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Trials side by side: as many are proposed at a time, from what was finished before, and told together.

    So what is proposed depends on ``size`` and on no clock; with 1 it is what a search without rounds proposes.

    Args:
        executor: runs them in other processes.
        size: trials of a round.
        objective: as of :func:`search`, and can be pickled.
    """

    executor: Executor
    size: int
    objective: Objective


class Outcome(NamedTuple):
    """What came of a trial that ran elsewhere.

    Args:
        value, fact: of the objective; None where the trial was ended early.
        reports: steps and held-out values that it told.
    """

    value: float | None
    fact: int
    reports: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Args:
        values: the best.
        value: held-out, of the best.
        fact: what the objective said with it.
        first_value: of the first trial, the values that the recipe had; None if that trial failed.
        trials, pruned: finished ones, and how many of them were ended early.
        first_seconds: that the first trial took, whenever that was.
    """

    values: dict[str, Value]
    value: float
    fact: int
    first_value: float | None
    trials: int
    pruned: int
    first_seconds: float = field(default=0.0, compare=False)


def search(
    space: Space,
    objective: Objective,
    *,
    first: Mapping[str, Value],
    trials: int,
    seed: int,
    journal: Path | None = None,
    name: str = "study",
    prune_after: int | None = None,
    task: Task = NO_TASK,
    rounds: Rounds | None = None,
    goes_on: GoesOn | None = None,
) -> Found:
    """Try settings and keep the best.

    Args:
        space: of the hyperparameters; widened to ``first``.
        objective: what a setting is worth.
        first: the first trial, so that the search never ends below it.
        trials: in all, those of the journal included.
        seed: of the proposals.
        journal: file that remembers finished trials; nobody else may use it meanwhile.
        name: of the study in the journal.
        prune_after: steps of a trial before it can be pruned; None prunes nothing.
        task: told every finished trial and the best value so far.
        rounds: runs trials elsewhere, with its own objective.
        goes_on: asked before each trial but the first; False ends the search.

    Raises:
        RecipeError: if no trial got to its end, or one is worth no number.
    """
    space = widened(space, first)
    study = _study(journal, name, prune_after)
    if all(trial.state == TrialState.RUNNING for trial in study.trials):  # an interrupted first trial is begun again
        study.enqueue_trial({key: stored(value) for key, value in first.items()})
    began, before = time.monotonic(), len(_finished(study))
    while (done := len(_finished(study))) < trials:
        pace = (time.monotonic() - began) / max(1, done - before) * (rounds.size if rounds else 1)
        if done and goes_on is not None and not goes_on(done, pace):
            break
        asked = [_ask(study, space, seed, done + k) for k in range(min(rounds.size if rounds else 1, trials - done))]
        if rounds is None:
            _try(study, *asked[0], done, objective, prunes=prune_after is not None)
        else:
            _try_elsewhere(study, asked, done, rounds, prune_after)
        best = max((trial.value for trial in _finished(study) if trial.value is not None), default=float("nan"))
        task.reach(done + len(asked), f"best {best:.4f}")
    return _found(study, space)


def _ask(study: optuna.Study, space: Space, seed: int, number: int) -> tuple[optuna.Trial, dict[str, Value]]:
    study.sampler = optuna.samplers.TPESampler(seed=seed * 10_000 + number)  # the same draws after a resume
    trial = study.ask()
    return trial, {key: part.suggest(trial, key) for key, part in space.items()}


def _try(
    study: optuna.Study,
    trial: optuna.Trial,
    values: dict[str, Value],
    number: int,
    objective: Objective,
    *,
    prunes: bool,
) -> None:
    try:
        value, fact = objective(number, values, _reporter(trial, prunes=prunes))
    except Pruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        _tell(study, trial, value, fact)


def _tell(study: optuna.Study, trial: optuna.Trial, value: float, fact: int) -> None:
    if math.isnan(value):  # optuna would not count the trial, and the search would have no end
        raise RecipeError(f"a trial's held-out value is {value}: look at labels and weights")
    trial.set_user_attr("fact", fact)
    study.tell(trial, value)


def _try_elsewhere(
    study: optuna.Study,
    asked: Sequence[tuple[optuna.Trial, dict[str, Value]]],
    done: int,
    rounds: Rounds,
    prune_after: int | None,
) -> None:
    """All of a round are told once the last is done: a search killed before repeats the round as it was."""
    before = [] if prune_after is None else _finished(study)
    running = [
        rounds.executor.submit(run_trial, rounds.objective, done + k, values, before, prune_after)
        for k, (_, values) in enumerate(asked)
    ]
    outcomes = [future.result() for future in running]
    for (trial, _), outcome in zip(asked, outcomes, strict=True):
        for step, value in outcome.reports:
            trial.report(value, step)
        if outcome.value is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            _tell(study, trial, outcome.value, outcome.fact)


def run_trial(
    objective: Objective,
    number: int,
    values: dict[str, Value],
    before: Sequence[optuna.trial.FrozenTrial],
    prune_after: int | None,
) -> Outcome:
    """One trial in a process that has no journal; the median is that of the trials ``before``."""
    study = _study(None, "one trial", prune_after)
    study.add_trials(before)
    trial = study.ask()
    report = _reporter(trial, prunes=prune_after is not None)
    value, fact = None, 0
    with suppress(Pruned):
        value, fact = objective(number, values, report)
    reports = study.trials[trial.number].intermediate_values
    return Outcome(value, fact, tuple(reports.items()))


def _found(study: optuna.Study, space: Space) -> Found:
    finished = _finished(study)
    complete = [trial for trial in finished if trial.state == TrialState.COMPLETE]
    if not complete:
        raise RecipeError(f"none of {len(finished)} trials got to its end: lower learning_rate in the recipe")
    best = study.best_trial
    # asked again of a trial whose values are fixed, a space gives them back as the recipe has them
    fixed = optuna.trial.FixedTrial(best.params)
    values = {key: part.suggest(fixed, key) for key, part in space.items()}
    first = finished[0].value if finished[0].state == TrialState.COMPLETE else None
    assert best.value is not None
    pruned = len(finished) - len(complete)
    took = finished[0].duration
    assert took is not None
    seconds = took.total_seconds()
    return Found(values, best.value, int(best.user_attrs["fact"]), first, len(finished), pruned, seconds)


def _study(journal: Path | None, name: str, prune_after: int | None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if journal is not None:
        _mend(journal)
        storage = JournalStorage(JournalFileBackend(str(journal)))
    pruner = MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=prune_after or 0)
    return optuna.create_study(
        direction="maximize", storage=storage, study_name=name, load_if_exists=True, pruner=pruner
    )


def _mend(journal: Path) -> None:
    """Drop what a kill in the middle of a write leaves: half a line, and the lock of who wrote it."""
    journal.with_name(journal.name + ".lock").unlink(missing_ok=True)
    if journal.exists():
        whole = journal.read_bytes().rfind(b"\n") + 1
        with journal.open("r+b") as file:
            file.truncate(whole)


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials that came to an end, in the order of their beginnings; interrupted ones count for nothing."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _reporter(trial: optuna.Trial, *, prunes: bool) -> StepReport:
    def report(step: int, value: float) -> None:
        if prunes:
            trial.report(value, step)
            if trial.should_prune():
                raise Pruned

    return report
