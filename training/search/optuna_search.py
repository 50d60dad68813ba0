"""A resumable search: Optuna's TPE proposes, the median of earlier trials prunes, a journal remembers.

What a trial is proposed depends on the seed and on the trials finished before it, and on nothing else. So a search that
was killed, or is given more trials later, ends as one that went through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

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


Objective = Callable[[int, dict[str, Value], StepReport], tuple[float, int]]
"""One trial: from the number of trials finished before it, a value for every hyperparameter of the space, and what is
to be told the progress, to the held-out value, higher is better, and a fact to remember with it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Args:
        values: the best.
        value: held-out, of the best.
        fact: what the objective said with it.
        first_value: of the first trial, the values that the recipe had; None if that trial failed.
        trials, pruned: finished ones, and how many of them were ended early.
    """

    values: dict[str, Value]
    value: float
    fact: int
    first_value: float | None
    trials: int
    pruned: int


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

    Raises:
        RecipeError: if no trial got to its end, or one is worth no number.
    """
    space = widened(space, first)
    study = _study(journal, name, prune_after)
    if all(trial.state == TrialState.RUNNING for trial in study.trials):  # an interrupted first trial is begun again
        study.enqueue_trial({key: stored(value) for key, value in first.items()})
    while (done := len(_finished(study))) < trials:
        study.sampler = optuna.samplers.TPESampler(seed=seed * 10_000 + done)  # the same draws after a resume
        trial = study.ask()
        values = {key: part.suggest(trial, key) for key, part in space.items()}
        try:
            value, fact = objective(done, values, _reporter(trial, prunes=prune_after is not None))
        except Pruned:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            if math.isnan(value):  # optuna would not count the trial, and this loop would have no end
                raise RecipeError(f"a trial's held-out value is {value}: look at labels and weights")
            trial.set_user_attr("fact", fact)
            study.tell(trial, value)
        best = max((trial.value for trial in _finished(study) if trial.value is not None), default=float("nan"))
        task.reach(done + 1, f"best {best:.4f}")
    return _found(study, space)


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
    return Found(values, best.value, int(best.user_attrs["fact"]), first, len(finished), pruned)


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
