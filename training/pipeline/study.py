"""A study: the search for a recipe's best hyperparameters, in a folder that survives a kill.

The folder holds the search's journal, the first stage that all trials of a network share, the checkpoint of the trial
under way, and in the end ``winner.toml``. Trials run in this process, or in those of an executor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import RecipeError
from listwright.ranking.relative import KINDS
from listwright.training.cluster import side_by_side
from listwright.training.console.progress import Progress
from listwright.training.data.dataset import Splits
from listwright.training.data.load import announce
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import SettingsTrial
from listwright.training.job_folder import locked, remove_unused, store_facts
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.choice import better_first_stage
from listwright.training.pipeline.steps import load
from listwright.training.pipeline.workspace import digest_of
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.search import Objective, Rounds, SearchResult, Value
from listwright.training.second_stage.fit import NetworkTrial, search_network, with_values

WINNER = "winner.toml"

_FACTS, _OTHER = "study.json", "{folder} holds a study with other {name}: choose another --study, or delete it"

MOMENT_S = 1e-3
"""Seconds for a first stage where none are left: in these, only its first setting is tried."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The result of a study.

    Args:
        recipe: Recipe with the winning values; LightGBM's as ``settings``, to be kept by ``trials = 1``.
        searched: Winning values.
        title: Title of the searched ranker: ``LightGBM``, or that of the network.
        ndcg_at: Cutoff of the validation NDCG.
        result: Numbers of trials, and their values.
        first_stage_trials: Number of LightGBM's settings that were tried for the first stage below a network; None for
            others.
    """

    recipe: Recipe
    searched: dict[str, Value]
    title: str
    ndcg_at: int
    result: SearchResult
    first_stage_trials: int | None


@contextmanager
def lock_study(folder: Path, recipe: Recipe) -> Iterator[Path]:
    """Lock the folder of a study against others; ``state/`` in it is for :func:`tune`.

    Raises:
        RecipeError: if it cannot be made, is in use, or holds the study of another recipe.
    """
    in_use = f"a search in {folder} is running: wait for it, or choose another --study"
    with locked(folder, in_use, "--study"):
        try:
            store_facts(folder / _FACTS, {"recipe": recipe.model_dump(mode="json")}, _OTHER)
            state = folder / "state"
            state.mkdir(exist_ok=True)
            yield state
        finally:
            remove_unused(folder, [folder / "state"], [_FACTS, "lock"])


def run_study(
    recipe: Recipe,
    sources: Sequence[str],
    folder: Path,
    *,
    trials: int,
    device: str,
    on: str | None,
    jobs: int,
    budget: Budget,
    command: str,
    progress: Progress,
) -> tuple[Winner, str]:
    """Search in the folder of a study, and write the winner there; return it with its text.

    Args:
        recipe: Recipe whose own values are the first trial.
        sources: Values of ``--data``.
        folder: Folder of the study, whose finished trials are not repeated.
        trials: Number of trials in all, finished ones among them.
        device: Torch device of the networks.
        on: Value of ``--on``; None for this machine.
        jobs: Number of trials at a time.
        budget: Time of the search.
        command: Command that repeats the search, for the text.
        progress: Progress report.

    Raises:
        RecipeError: as :func:`lock_study` and :func:`tune`; also if the folder has a study of other data, or a worker
            was stopped from outside.
    """
    with lock_study(folder, recipe) as state:
        splits = load(recipe, sources, progress=progress)
        check_data(folder, splits)
        announce(recipe, splits, progress)
        with _trial_workers(recipe, sources, on, jobs) as workers:
            winner = tune(
                recipe, splits, state, trials=trials, device=device, progress=progress, workers=workers, budget=budget
            )
        text = fragment(winner, command)
        atomic_write(folder / WINNER, text)
    return winner, text


@contextmanager
def _trial_workers(recipe: Recipe, sources: Sequence[str], on: str | None, jobs: int) -> Iterator[TrialWorkers | None]:
    """Yield the processes of the trials; None for this one, where one trial runs at a time here."""
    if on is None and jobs == 1:
        yield None
        return
    try:
        with side_by_side(on, jobs, local_jobs=1) as (executor, at_a_time):
            yield TrialWorkers(executor, at_a_time, SplitsReader(recipe, tuple(sources)))
    except BrokenProcessPool as error:
        raise RecipeError(
            "a worker was stopped from outside, perhaps for lack of memory: finished trials are kept; the same command "
            "goes on"
        ) from error


def check_data(folder: Path, splits: Splits) -> None:
    """Raise RecipeError if the locked folder holds a study of other data."""
    store_facts(folder / _FACTS, {"data": digest_of(splits)}, _OTHER)


def tune(
    recipe: Recipe,
    splits: Splits,
    state: Path,
    *,
    trials: int,
    device: str,
    progress: Progress,
    workers: TrialWorkers | None = None,
    budget: Budget | None = None,
) -> Winner:
    """Search for the values that rank the validation queries best; test queries are never used.

    A recipe whose model is the first stage alone has LightGBM searched; any other its network, on the scores of one
    first stage that was itself tuned with as many trials.

    Args:
        recipe: Recipe whose own values are the first trial.
        splits: Splits under the schema that the bundle would have.
        state: Folder of finished work, which is not repeated.
        trials: Number of trials, those in the folder included.
        device: Torch device of the network.
        progress: Receiver of the progress.
        workers: Processes for the fits; None for this process.
        budget: Budget of time, half of it for a first stage below a network; None for no bound.

    Raises:
        RecipeError: if the recipe has nothing to tune, or no trial finishes.
    """
    study = _Study(recipe, splits, state, trials, progress, workers, budget or Budget())
    if isinstance(recipe.model, FirstStageAlone):
        return study.tune_lightgbm()
    return study.tune_network(recipe.model, device)


@dataclass(frozen=True)
class _Study:
    """A search, with the arguments of :func:`tune`."""

    recipe: Recipe
    splits: Splits
    state: Path
    trials: int
    progress: Progress
    workers: TrialWorkers | None
    budget: Budget

    def tune_lightgbm(self) -> Winner:
        spec = self.recipe.first_stage
        if not isinstance(spec, LambdaMart):
            raise RecipeError(
                f"recipe {self.recipe.name!r} has nothing to tune: its first stage is a given {spec.kind}, and it has "
                "no second one; name a network with --model qilcm"
            )
        search_spec = spec.model_copy(update={"trials": self.trials})
        search = self._search(
            f"LightGBM, NDCG@{spec.ndcg_at}",
            partial(lambdamart.search_settings, self.splits.train, self.splits.valid, search_spec, prune=True),
            self.state / "lightgbm.journal",
            lambda workers: SettingsTrial(workers.read, search_spec, self.recipe.seed),
        )
        recipe = config.changed(self.recipe, {"first_stage": _pinned(spec, search.values)})
        return Winner(recipe, search.values, "LightGBM", spec.ndcg_at, search, None)

    def tune_network(self, model: NetworkSpec, device: str) -> Winner:
        first, seed = self._first_stage(), self.recipe.seed
        search = self._search(
            f"{model.title}, NDCG@{model.ndcg_at}",
            partial(search_network, model, self.splits, first, trials=self.trials, state=self.state, device=device),
            self.state / f"{model.kind}.journal",
            lambda workers: NetworkTrial(model, workers.read, first, seed, self.state, device, workers.jobs),
        )
        changes: dict[str, object] = {"model": with_values(model, search.values)}
        tuned = None
        if isinstance(self.recipe.first_stage, LambdaMart):
            relative = KINDS if first.relative else "none"
            changes["first_stage"] = _pinned(self.recipe.first_stage, first.facts["params"], relative=relative)
            tuned = int(str(first.facts["trials"]))
        winner = config.changed(self.recipe, changes)
        return Winner(winner, search.values, model.title, model.ndcg_at, search, tuned)

    def _search(
        self,
        title: str,
        search: Callable[..., SearchResult],
        journal: Path,
        trial_on: Callable[[TrialWorkers], Objective],
    ) -> SearchResult:
        """Run the search here, or each trial on the workers."""
        task, workers = self.progress.begin(title, self.trials), self.workers
        rounds = None if workers is None else Rounds(workers.executor, workers.jobs, trial_on(workers))
        goes_on = partial(self.budget.goes_on, "trials")
        result = search(seed=self.recipe.seed, journal=journal, task=task, rounds=rounds, goes_on=goes_on)
        task.end(result.trials, f"best {result.value:.4f}")
        return result

    def _first_stage(self) -> FittedFirstStage:
        """Fit the first stage once for all trials, with as many trials of its own."""
        recipe, splits, budget, workers = self.recipe, self.splits, self.budget, self.workers
        spec = recipe.first_stage
        if not isinstance(spec, LambdaMart):
            return first_stage.fit(spec, splits, seed=recipe.seed, state=self.state)
        spec = spec.model_copy(update={"trials": self.trials})
        kinds = ("none", KINDS) if spec.relative == "auto" else (spec.relative,)  # auto: what a fit would take
        specs = [spec.model_copy(update={"relative": kind}) for kind in kinds]
        if workers is None:
            more: dict[str, Any] = {"seed": recipe.seed, "state": self.state, "progress": self.progress}
            if budget.bounded:
                more["goes_on"] = lambda name, done, pace: budget.goes_on(name, done, pace + budget.seconds / 2)
            fitted = [first_stage.fit(each, splits, **more) for each in specs]
        else:
            task = self.progress.begin("First stages", len(specs))
            turns = math.ceil(len(specs) / workers.jobs)
            minutes = max(MOMENT_S, budget.unspent() / 2 / turns) / 60 if budget.bounded else 0.0
            submit, read = workers.executor.submit, workers.read
            running = [submit(_fit_there, read, each, recipe.seed, self.state, minutes) for each in specs]
            fitted = [future.result() for future in running]
            task.end(len(specs))
        if len(fitted) == 1:
            return fitted[0]
        return better_first_stage(fitted[0], fitted[1], splits, spec.ndcg_at)[0]


def _fit_there(
    read: Callable[[], Splits], spec: LambdaMart, seed: int, state: Path, minutes: float
) -> FittedFirstStage:
    """Fit in another process, and try settings as long as there is time; finished work in ``state`` stays."""
    goes_on = Budget(minutes).goes_on if minutes else None
    return first_stage.fit(spec, read(), seed=seed, state=state, goes_on=goes_on)


def _pinned(spec: LambdaMart, settings: object, **more: object) -> LambdaMart:
    """Return the LightGBM settings that were found, without another search."""
    return LambdaMart.model_validate({**spec.model_dump(), "settings": settings, "trials": 1, **more})


def fragment(winner: Winner, command: str) -> str:
    """Return the winning values as TOML, to replace a recipe's ``[first_stage]`` and ``[model]``.

    Numbers that are the same as Listwright's defaults are left out, but for those that were searched.
    """
    search = winner.result
    own = "failed" if search.first_value is None else f"{search.first_value:.4f}"
    lines = [
        f"# {command}",
        f"# {winner.title}: validation NDCG@{winner.ndcg_at} {search.value:.4f}, the recipe's own values {own};",
        f"# {search.trials} trials, {search.pruned} of them ended early",
    ]
    if winner.first_stage_trials is not None:
        lines.append(f"# first stage: LightGBM, {winner.first_stage_trials} trials")
    recipe = winner.recipe
    if isinstance(recipe.first_stage, LambdaMart):
        values = recipe.first_stage.model_dump(exclude_defaults=True, exclude={"settings"})
        lines += _table("first_stage", {"kind": "lambdamart", **values})
        lines += _table("first_stage.settings", recipe.first_stage.settings.model_dump())
    if not isinstance(recipe.model, FirstStageAlone):
        values = recipe.model.model_dump(exclude_defaults=True, exclude_none=True)
        lines += _table("model", {"kind": recipe.model.kind, **values, **winner.searched})
    return "\n".join(lines) + "\n"


def _table(name: str, values: dict[str, object]) -> list[str]:
    """Return a TOML table; strings, numbers, booleans and lists of numbers are written as in JSON."""
    return ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {json.dumps(inner)}' for key, inner in value.items())} }}"
    return json.dumps(value)


@dataclass(frozen=True, slots=True)
class SplitsReader:
    """A picklable reader of a recipe's splits, which each process reads once."""

    recipe: Recipe
    sources: tuple[str, ...]

    def __call__(self) -> Splits:
        """Return the splits under the schema that the bundle would have."""
        return _read_splits(self)


@lru_cache(maxsize=1)
def _read_splits(reader: SplitsReader) -> Splits:
    return load(reader.recipe, reader.sources)


@dataclass(frozen=True, slots=True)
class TrialWorkers:
    """Other processes for the fits of a study.

    Args:
        executor: Executor of the trials.
        jobs: Number of trials at a time; the proposed values depend on it.
        read: Function that returns the splits; picklable, as a :class:`SplitsReader` is.
    """

    executor: Executor
    jobs: int
    read: Callable[[], Splits]
