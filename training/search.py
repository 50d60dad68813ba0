"""A resumable search: Optuna's TPE proposes, the median of earlier trials prunes, a journal stores.

What a trial is proposed depends on the seed and on the trials finished before it, and on nothing else. So a search that
was killed, or is given more trials later, ends as one that went through.

What may be tried is declared here once, for LightGBM and for the networks. A space always holds the values that the
recipe has already: where these lie outside, the range is widened to them. What changes which model is fitted, rather
than how (the ranking loss, the cutoff, a variant), is not searched.
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
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.recipe.model import DcmSpec, DlcmSpec, NetworkSpec, Qilcm2Spec, QilcmSpec

STARTUP_TRIALS = 5
"""Trials that are finished before the first one is pruned: a median of fewer is unreliable."""

Value = float | int | str | tuple[int, ...]
"""One hyperparameter, as the recipe has it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``; ``log`` spreads trials evenly over magnitudes, ``whole`` rounds."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def widened(self, value: Value) -> Range:
        """Return the range with ``value`` in it."""
        assert isinstance(value, float | int)
        return Range(min(self.low, value), max(self.high, value), self.log, self.whole)

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Value:
        """Propose a value for a trial."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Choice among a few values."""

    values: tuple[Value, ...]

    def widened(self, value: Value) -> OneOf:
        """Return the choice with ``value`` in it."""
        return self if value in self.values else OneOf((*self.values, value))

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Value:
        """Propose a value for a trial."""
        by_label = {stored(value): value for value in self.values}
        label = trial.suggest_categorical(name, list(by_label))
        assert label is not None
        return by_label[label]


Space = Mapping[str, Range | OneOf]

LAMBDAMART: Space = {
    "learning_rate": Range(0.01, 0.2, log=True),
    "num_leaves": Range(4, 128, log=True, whole=True),
    "min_data_in_leaf": Range(5, 200, log=True, whole=True),
    "lambdarank_truncation_level": Range(10, 100, log=True, whole=True),
    "feature_fraction": Range(0.3, 1.0),
    "bagging_fraction": Range(0.5, 1.0),
    "lambda_l2": Range(1e-3, 100.0, log=True),
    "cat_smooth": Range(10.0, 10_000.0, log=True),
}
"""LightGBM's own names. The number of trees is found by early stopping in every trial."""

NETWORK: Space = {
    "learning_rate": Range(2e-4, 5e-3, log=True),
    "batch_size": OneOf((20, 40, 80)),
    "encoder_width": OneOf((48, 100, 200)),
    "dropout": OneOf((0.0, 0.1, 0.2, 0.4)),
    "weight_decay": OneOf((0.0, 1e-5, 1e-4, 1e-3)),
}
"""Hyperparameters of all networks. The number of epochs is found by early stopping in every trial."""

HIDDEN: Space = {"hidden": OneOf(((64,), (256, 128), (512, 256)))}

CONFUSION: Space = {"confusion_weight": OneOf((0.0, 0.003, 0.01, 0.03, 0.1, 0.3))}

QILCM2: Space = {"seeds": OneOf((1, 2, 4, 8)), "input_noise": OneOf((0.0, 0.01, 0.02, 0.05))}

DLCM: Space = {"heads": OneOf((1, 3, 6))}

DCM: Space = {"state_width": OneOf((64, 128, 256))}


def space_of(spec: NetworkSpec) -> Space:
    """Return the search space of a network, the recipe's own values among it."""
    space = dict(NETWORK)
    match spec:
        case QilcmSpec():
            space |= HIDDEN if spec.variant in ("V2", "V3") else {**HIDDEN, **CONFUSION}
        case Qilcm2Spec():
            space |= {**HIDDEN, **QILCM2}
            if spec.context == "blocks":  # which pool nothing
                del space["seeds"]
        case DlcmSpec():
            space |= DLCM
        case DcmSpec():
            space |= DCM
        case _:
            space |= HIDDEN
    return widened(space, own_values(spec, space))


def own_values(spec: NetworkSpec, space: Space) -> dict[str, Value]:
    """Return the recipe's values of every hyperparameter of a space."""
    return {name: getattr(spec, name) for name in space}


def widened(space: Space, values: Mapping[str, Value]) -> Space:
    """Return a space with ``values`` in it."""
    return {name: part.widened(values[name]) for name, part in space.items()}


def stored(value: Value) -> float | int | str:
    """Return a value in the form of a study's journal: widths as ``256-128``."""
    return "-".join(map(str, value)) if isinstance(value, tuple) else value


Pruned = optuna.TrialPruned
"""Raised by ``report`` to end a trial, and by an objective that fails in its own way."""


class TimeOverError(Exception):
    """Error that ``report`` raises to end a trial at its current step, whose value then counts."""


StepReport = Callable[[int, float], None]
"""Callback with a step, counted from 1, and the held-out value after it; ends the trial if it is below the median."""

GoesOn = Callable[[int, float], bool]
"""Callback that decides whether to go on: from the finished steps, and the expected seconds of the next one."""

Objective = Callable[[int, dict[str, Value], StepReport], tuple[float, int]]
"""One trial: from the number of earlier trials, a value for every hyperparameter of the space, and a callback for its
progress, to the held-out value, higher is better, and a fact to store with it.
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Trials side by side: so many are proposed at a time, from all finished before, and recorded together.

    So what is proposed depends on ``size`` and on no clock; with 1 it is what a search without rounds proposes.

    Args:
        executor: Executor that runs them in other processes.
        size: Number of trials in a round.
        objective: Objective as for :func:`search`, which can be pickled.
    """

    executor: Executor
    size: int
    objective: Objective


class Outcome(NamedTuple):
    """The result of a trial that ran in another process.

    Args:
        value, fact: Value and fact of the objective; None where the trial was ended early.
        reports: Steps and held-out values of the trial.
    """

    value: float | None
    fact: int
    reports: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Args:
        values: Best values.
        value: Held-out value of the best.
        fact: Fact of the best trial, from the objective.
        first_value: Value of the first trial, which has the recipe's own values; None if that trial failed.
        trials, pruned: Numbers of finished trials, and of those among them that were ended early.
        first_seconds: Seconds that the first trial took, in whichever run.
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
) -> SearchResult:
    """Try settings and return the best.

    Args:
        space: Ranges of the hyperparameters; widened to ``first``.
        objective: Function that returns the value and a fact of a setting.
        first: Values of the first trial, so that the search never ends below it.
        trials: Number of trials, those of the journal included.
        seed: Seed of the proposals.
        journal: File of the finished trials; no other process may use it meanwhile.
        name: Name of the study in the journal.
        prune_after: Number of steps of a trial before it can be pruned; None prunes nothing.
        task: Task that gets every finished trial and the best value so far.
        rounds: Rounds of trials in other processes, with their own objective.
        goes_on: Function that is called before each trial but the first; False ends the search.

    Raises:
        RecipeError: if no trial finishes, or the value of one is no number.
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
        proposed = [_ask(study, space, seed, done + k) for k in range(min(rounds.size if rounds else 1, trials - done))]
        if rounds is None:
            trial, values = proposed[0]
            try:
                value, fact = objective(done, values, _reporter(trial, prunes=prune_after is not None))
            except Pruned:
                study.tell(trial, state=TrialState.PRUNED)
            else:
                _finish(study, trial, value, fact)
        else:
            _try_elsewhere(study, proposed, done, rounds, prune_after)
        best = max((trial.value for trial in _finished(study) if trial.value is not None), default=float("nan"))
        task.reach(done + len(proposed), f"best {best:.4f}")
    return _result(study, space)


def _ask(study: optuna.Study, space: Space, seed: int, number: int) -> tuple[optuna.Trial, dict[str, Value]]:
    # the same draws after a resume: an interrupted trial, which the journal calls a running one, counts for nothing
    study.sampler = optuna.samplers.TPESampler(seed=seed * 10_000 + number, constant_liar=False)
    trial = study.ask()
    return trial, {key: part.suggest(trial, key) for key, part in space.items()}


def _finish(study: optuna.Study, trial: optuna.Trial, value: float, fact: int) -> None:
    if math.isnan(value):  # optuna would not count the trial, and the search would have no end
        raise RecipeError(f"a trial's held-out value is {value}: look at labels and weights")
    trial.set_user_attr("fact", fact)
    study.tell(trial, value)


def _try_elsewhere(
    study: optuna.Study,
    proposed: Sequence[tuple[optuna.Trial, dict[str, Value]]],
    done: int,
    rounds: Rounds,
    prune_after: int | None,
) -> None:
    """Run a round and record it once the last is done: a search killed before repeats the round exactly."""
    before = [] if prune_after is None else _finished(study)
    running = [
        rounds.executor.submit(run_trial, rounds.objective, done + k, values, before, prune_after)
        for k, (_, values) in enumerate(proposed)
    ]
    outcomes = [future.result() for future in running]
    for (trial, _), outcome in zip(proposed, outcomes, strict=True):
        for step, value in outcome.reports:
            trial.report(value, step)
        if outcome.value is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            _finish(study, trial, outcome.value, outcome.fact)


def run_trial(
    objective: Objective,
    number: int,
    values: dict[str, Value],
    before: Sequence[optuna.trial.FrozenTrial],
    prune_after: int | None,
) -> Outcome:
    """Run one trial in a process that has no journal; the median is that of the trials ``before``."""
    study = _study(None, "one trial", prune_after)
    study.add_trials(before)
    trial = study.ask()
    report = _reporter(trial, prunes=prune_after is not None)
    value, fact = None, 0
    with suppress(Pruned):
        value, fact = objective(number, values, report)
    reports = study.trials[trial.number].intermediate_values
    return Outcome(value, fact, tuple(reports.items()))


def _result(study: optuna.Study, space: Space) -> SearchResult:
    finished = _finished(study)
    complete = [trial for trial in finished if trial.state == TrialState.COMPLETE]
    if not complete:
        raise RecipeError(f"none of {len(finished)} trials finished: lower learning_rate in the recipe")
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
    return SearchResult(values, best.value, int(best.user_attrs["fact"]), first, len(finished), pruned, seconds)


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
    """Remove what a kill in the middle of a write leaves: half a line, and the lock of its writer."""
    journal.with_name(journal.name + ".lock").unlink(missing_ok=True)
    if journal.exists():
        whole = journal.read_bytes().rfind(b"\n") + 1
        with journal.open("r+b") as file:
            file.truncate(whole)


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Return the finished trials, in the order of their beginnings; interrupted ones do not count."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _reporter(trial: optuna.Trial, *, prunes: bool) -> StepReport:
    def report(step: int, value: float) -> None:
        if prunes:
            trial.report(value, step)
            if trial.should_prune():
                raise Pruned

    return report
