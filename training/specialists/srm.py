"""SRM, the Specialized Rankers Model (Jagerman, Oosterhuis, de Rijke, 2017): K rankers, each for a group of queries.

The groups are found by EM (:mod:`listwright.training.specialists.em`) on the exact likelihood
(:mod:`listwright.training.losses.exact_plackett_luce`). EM finds one of many optima, so several starts are tried and
the most likely goes on.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError
from listwright.ranking.stages import FeatureWeight, Specialist
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Dataset
from listwright.training.data.shards.rows import Rows
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.second_stage.batching import Lists
from listwright.training.specialists.em import Component, Mixture, Step, log_likelihoods, responsibilities
from listwright.training.specialists.lists import BlockedLists, TrainingLists
from listwright.training.specialists.rankers import LinearRanker, NetworkRanker, SrmNetwork, Standardise

TOP_FEATURES = 5
"""Largest weights of a linear specialist that the bundle lists."""


@dataclass(frozen=True, slots=True)
class FittedSrm:
    """A fitted mixture.

    Args:
        module: Network with all specialists.
        spec: Mixture of the recipe.
        weights: ``(K,)`` pi.
        shares: ``(M, K)`` responsibilities of the M training queries that have two different labels.
        informative: ``(M,)`` numbers of these queries.
        steps: Iterations of the start that went on.
        converged: Whether the last of them changed next to nothing.
        starts: Penalised log-likelihood of each start after its trial run.
        rankers: Rankers after the last iteration.
    """

    module: SrmNetwork
    spec: SrmSpec
    weights: Float[np.ndarray, " K"]
    shares: Float[np.ndarray, "M K"]
    informative: Int[np.ndarray, " M"]
    steps: tuple[Step, ...]
    converged: bool
    starts: tuple[float, ...]
    rankers: tuple[Component, ...]

    def describe(self) -> tuple[Specialist, ...]:
        """Return weight, size and largest features of every specialist."""
        sizes = np.bincount(self.shares.argmax(axis=1), minlength=len(self.weights))
        return tuple(
            Specialist(weight=float(weight), queries=int(size), top_features=self._top_features(ranker))
            for weight, size, ranker in zip(self.weights, sizes, self.rankers, strict=True)
        )

    def renumbered(self, order: Int[np.ndarray, " K"]) -> FittedSrm:
        """Return the same mixture with its specialist ``order[k]`` as number k."""
        rankers = [self.rankers[k] for k in order]
        return replace(
            self,
            module=SrmNetwork(self.module.standardise, rankers).eval(),
            weights=self.weights[order],
            shares=self.shares[:, order],
            rankers=tuple(rankers),
        )

    def _top_features(self, ranker: Component) -> tuple[FeatureWeight, ...]:
        if not isinstance(ranker, LinearRanker):
            return ()
        w, names = ranker.w.numpy(), self.module.standardise.names
        largest = np.argsort(-np.abs(w), kind="stable")[:TOP_FEATURES]
        return tuple(FeatureWeight(feature=names[p], weight=float(w[p])) for p in largest if w[p] != 0.0)


def fit_srm(
    spec: SrmSpec,
    train: Dataset,
    train_scores: Float[np.ndarray, " R"] | None = None,
    *,
    seed: int,
    checkpoint: Path | None = None,
    task: Task = NO_TASK,
) -> FittedSrm:
    """Fit the mixture by EM.

    Args:
        spec: Mixture of the recipe.
        train: Training queries; those whose labels are all equal say nothing about any ranker and are left out. A
            query's weight is how often it occurred.
        train_scores: ``(R,)`` out-of-fold first-stage scores; needed for a cutoff or as an input.
        seed: Seed of every start.
        checkpoint: File that remembers every finished iteration; if it is there, EM goes on from it.
        task: Task that gets every iteration.

    Raises:
        DataError: if there are fewer queries with two different labels than specialists.
        ScoringError: if the penalised log-likelihood falls where it must not.
    """
    fitting = _Fitting(spec, train, train_scores, seed=seed, checkpoint=checkpoint, task=task)
    count = spec.restarts if spec.specialists > 1 else 1
    trial = min(spec.short_run, spec.max_iterations)
    mixtures = [fitting.mixture(number) for number in range(count)]
    for number, mixture in enumerate(mixtures):
        fitting.advance(mixture, number, count, trial)
    starts = [mixture.steps[min(trial, len(mixture.steps)) - 1].objective for mixture in mixtures]
    best = int(np.argmax(starts))
    fitting.advance(mixtures[best], best, count, spec.max_iterations)
    return fitting.finish(mixtures[best], starts=tuple(starts))


def check_enough(spec: SrmSpec, informative: int) -> None:
    """Raise DataError if there are fewer queries with two different labels than specialists."""
    if informative < spec.specialists:
        raise DataError(
            "training split",
            f"{informative} queries have two different labels, too few for {spec.specialists} "
            "specialists: give more queries, or lower specialists in the recipe",
        )


def lists_of(spec: SrmSpec, data: Dataset, scores: Float[np.ndarray, " R"] | None = None) -> Lists:
    """Return the candidates and inputs that the specialists score.

    Args:
        spec: Mixture of the recipe.
        data: Lists under the bundle's schema.
        scores: ``(R,)`` first-stage scores; needed for a cutoff or as an input.
    """
    if scores is None:
        if spec.cutoff is not None or spec.first_stage_score:
            raise ValueError("cutoff and first_stage_score need the first stage's scores")
        scores = np.zeros(data.rows)
    return Lists(data, scores, cutoff=spec.cutoff or int(data.lengths.max()), append_score=spec.first_stage_score)


class _Fitting:
    """The data of a fit in the form of EM, and its checkpoint."""

    def __init__(
        self,
        spec: SrmSpec,
        train: Dataset,
        train_scores: Float[np.ndarray, " R"] | None,
        *,
        seed: int,
        checkpoint: Path | None,
        task: Task,
    ) -> None:
        self._spec, self._seed, self._checkpoint, self._task = spec, seed, checkpoint, task
        lists = lists_of(spec, train, train_scores)
        labels = train.labels[lists.rows]
        low, high = (ends.reduceat(labels, lists.offsets[:-1]) for ends in (np.minimum, np.maximum))
        self._informative = np.flatnonzero(low < high)
        check_enough(spec, len(self._informative))
        self._standardise = Standardise(train.schema, lists.matrix, spec.transform)
        weights = train.query_weights
        self._counts = None if weights is None else torch.from_numpy(weights[self._informative])
        self._lists = self._padded(lists, labels)
        self._saved: dict[str, Any] = {}
        if checkpoint is not None and checkpoint.exists():
            self._saved = torch.load(checkpoint, weights_only=True)

    def _padded(self, lists: Lists, labels: Int[np.ndarray, " R"]) -> TrainingLists:
        """Return the informative lists; rows on disk are read block by block, in every pass of EM."""

        def inputs(rows: Int[Tensor, " M"]) -> Float[Tensor, "M P"]:
            dense: Tensor = self._standardise(torch.from_numpy(lists.matrix[rows.numpy()]))
            return dense.double()

        return BlockedLists(
            inputs,
            torch.from_numpy(labels.astype(np.float64)),
            torch.from_numpy(lists.offsets[:-1][self._informative]),
            torch.from_numpy(np.diff(lists.offsets)[self._informative]),
            top=self._spec.top,
            held=not isinstance(lists.matrix, Rows),
        ).padded_if_one_block()

    def mixture(self, number: int) -> Mixture:
        """Return the mixture of one start: from the checkpoint, or new."""
        saved = self._saved.get(str(number))
        if saved is None:
            rankers, shares = self._start(number)
            steps: list[Step] = []
        else:
            rankers, shares = self._rankers(np.random.default_rng(0)), saved["shares"]
            for ranker, state in zip(rankers, saved["rankers"], strict=True):
                ranker.restore(state)
            steps = [Step(**step) for step in saved["steps"]]
        seed = (self._seed, number)
        return Mixture(
            self._lists, rankers, shares, alpha=self._spec.alpha, counts=self._counts, seed=seed, steps=steps
        )

    def _start(self, number: int) -> tuple[list[Component], Tensor]:
        """Return initial rankers and responsibilities: even starts from random weights, odd ones from clusters."""
        rng = np.random.default_rng([self._seed, number, 0])
        rankers = self._rankers(rng)
        count = len(rankers)
        if number % 2 == 0:
            for ranker in rankers:
                ranker.forget(rng)
            uniform = torch.full((count,), 1.0 / count, dtype=torch.float64)
            return rankers, responsibilities(log_likelihoods(self._lists, rankers), uniform)[0]
        with warnings.catch_warnings():  # of fewer different lists than clusters: some then begin without any
            warnings.simplefilter("ignore", ConvergenceWarning)
            group = KMeans(count, n_init=1, random_state=int(rng.integers(2**31))).fit_predict(self._wishes())
        return rankers, nn.functional.one_hot(torch.from_numpy(group.astype(np.int64)), count).double()

    def _rankers(self, rng: np.random.Generator) -> list[Component]:
        spec, width = self._spec, self._standardise.width
        if spec.m_step == "adam" or spec.hidden:
            return [NetworkRanker(width, spec, rng) for _ in range(spec.specialists)]
        return [LinearRanker(width, spec.sigma, concave=spec.top is None) for _ in range(spec.specialists)]

    def _wishes(self) -> Float[np.ndarray, "M P"]:
        """Return each list's gradient at w = 0, as a direction: how it would change a new ranker."""
        wishes = []
        for _, block in self._lists.blocks():
            pull = block.likelihood(torch.zeros(len(block.x), dtype=torch.float64)).gradient
            weighed = block.x * pull[block.mask][:, None]
            of_list = torch.arange(len(block)).repeat_interleave(block.mask.sum(dim=1))
            nothing = torch.zeros(len(block), weighed.shape[1], dtype=torch.float64)
            wishes.append(nothing.index_add_(0, of_list, weighed))
        directions: Float[np.ndarray, "M P"] = nn.functional.normalize(torch.cat(wishes), dim=1).numpy()
        return directions

    def advance(self, mixture: Mixture, number: int, count: int, iterations: int) -> None:
        """Iterate, store every step, and report it."""

        for step in mixture.iterate(iterations):
            self._remember(mixture, number)
            shares = " ".join(f"{weight:.2f}" for weight in step.weights)
            start = f"start {number + 1} of {count}, log P {step.objective:.1f}, pi {shares}, H {step.entropy:.2f}"
            self._task.reach(step.number, start)
            self._task.measure(step.number, {f"log_posterior_start_{number + 1}": step.objective})

    def _remember(self, mixture: Mixture, number: int) -> None:
        if self._checkpoint is None:
            return
        self._saved[str(number)] = {
            "rankers": [ranker.state() for ranker in mixture.rankers],
            "shares": mixture.shares,
            "steps": [asdict(step) for step in mixture.steps],
        }
        with atomic_file(self._checkpoint) as file:  # an interruption leaves the iteration before
            torch.save(self._saved, file)

    def finish(self, mixture: Mixture, *, starts: tuple[float, ...]) -> FittedSrm:
        """Return the result of EM."""
        return FittedSrm(
            module=SrmNetwork(self._standardise, mixture.rankers).eval(),
            spec=self._spec,
            weights=mixture.weights.numpy(),
            shares=mixture.shares.numpy(),
            informative=self._informative,
            steps=tuple(mixture.steps),
            converged=mixture.converged,
            starts=starts,
            rankers=tuple(mixture.rankers),
        )
