"""EM for a mixture of K Plackett-Luce rankers (Jagerman, Oosterhuis, de Rijke, 2017, equations (4) to (12)).

Works on dense inputs; :mod:`listwright.training.specialists.srm` makes them from features. Lists whose labels are all
equal say nothing about any ranker and are left out by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from listwright.ranking.errors import ScoringError
from listwright.training.specialists.lists import TrainingLists

SMALLEST_SHARE = 1e-3
"""Mixture weight below which a component has lost its queries and is reset."""

QUADRATURE = 1e-6
"""Error of one label group's integral at 32 nodes (``docs/exact-plackett-luce.md``)."""

RESEEDS = 2
"""Most resets of a component: one that keeps losing its queries is not needed."""

SETTLING = 3
"""Iterations before the end of a run in which no component is reset, as it could not converge."""

CONVERGED = 1e-6
"""Relative change of the objective below which EM stops."""


@runtime_checkable
class Component(Protocol):
    """Protocol of a mixture's component: it scores rows and is fitted to weighted lists."""

    ascends: bool
    """Whether :meth:`fit` never lowers its objective, so that EM can check it."""

    def scores(self, x: Float[Tensor, "R P"]) -> Float[Tensor, " R"]:
        """Return f_k of every row."""
        ...

    def penalty(self) -> float:
        """Return ``||w||^2 / (2 sigma^2)``, the negative log-prior but for its constant."""
        ...

    def fit(self, lists: TrainingLists, weights: Float[Tensor, " N"], rng: np.random.Generator) -> None:
        """Raise ``sum_n T_n log P_n - penalty``, eq. (12)."""
        ...

    def forget(self, rng: np.random.Generator) -> None:
        """Reset to random weights."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the weights for :meth:`restore`."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Set weights."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The state after one iteration.

    Args:
        number: Number of the iteration, from 1.
        objective: Penalised log-likelihood of all lists.
        weights: ``(K,)`` pi.
        entropy: Mean entropy of the responsibilities, in nats; log K where nothing is known, 0 where all is decided.
        reseeded: Components that started anew in this iteration.
    """

    number: int
    objective: float
    weights: tuple[float, ...]
    entropy: float
    reseeded: tuple[int, ...] = ()


def responsibilities(
    log_p: Float[Tensor, "N K"], weights: Float[Tensor, " K"]
) -> tuple[Float[Tensor, "N K"], Float[Tensor, " N"]]:
    """Compute the E-step, eq. (10), in logarithms: T, and each list's log-likelihood under the mixture."""
    joint = log_p + torch.log(weights)
    total = torch.logsumexp(joint, dim=1)
    return torch.exp(joint - total[:, None]), total


def mixture_weights(shares: Float[Tensor, "N K"], alpha: float) -> Float[Tensor, " K"]:
    """Compute the M-step for pi, eq. (11)."""
    counts = alpha - 1.0 + shares.sum(dim=0)
    return counts / counts.sum()


def log_likelihoods(lists: TrainingLists, rankers: Sequence[Component]) -> Float[Tensor, "N K"]:
    """Return ``log P(Omega_n | w_k)`` of every list under every ranker."""
    blocks = [
        torch.stack([block.likelihood(ranker.scores(block.x)).value for ranker in rankers], dim=1)
        for _, block in lists.blocks()
    ]
    return torch.cat(blocks)


class Mixture:
    """K rankers and their weights during EM.

    Args:
        lists: Training lists.
        rankers: K rankers, changed in place.
        shares: ``(N, K)`` responsibilities to begin with.
        alpha: Parameter of the Dirichlet prior, eq. (4).
        counts: ``(N,)`` number of times that each list was seen, 0 or more; None for once each.
        seed: Seed that every iteration draws from together with its own number, so that a resumed run repeats it.
        steps: Iterations that are done already.
    """

    def __init__(
        self,
        lists: TrainingLists,
        rankers: list[Component],
        shares: Float[Tensor, "N K"],
        *,
        alpha: float,
        counts: Float[Tensor, " N"] | None = None,
        seed: tuple[int, ...],
        steps: Sequence[Step] = (),
    ) -> None:
        self.lists, self.rankers, self.shares = lists, rankers, shares
        self.steps = list(steps)
        self._counts = torch.ones_like(shares[:, 0]) if counts is None else counts
        self.weights = mixture_weights(self._expected_counts, alpha)
        if self.steps:
            self.weights = torch.tensor(self.steps[-1].weights, dtype=shares.dtype)
        self._alpha, self._seed = alpha, seed

    @property
    def objective(self) -> float:
        """The penalised log-likelihood reached so far."""
        return self.steps[-1].objective if self.steps else -float("inf")

    @property
    def converged(self) -> bool:
        """Whether the last iteration changed next to nothing."""
        if len(self.steps) < 2 or self.steps[-1].reseeded:
            return False
        before, now = self.steps[-2].objective, self.steps[-1].objective
        return abs(now - before) <= CONVERGED * abs(before)

    @property
    def _expected_counts(self) -> Float[Tensor, "N K"]:
        """Expected number of times that each component ranked each list."""
        return self._counts[:, None] * self.shares

    def iterate(self, iterations: int) -> Iterator[Step]:
        """Yield steps until converged, or until ``iterations`` are done in all.

        Raises:
            ScoringError: if the objective falls although nothing allows it to.
        """
        while len(self.steps) < iterations and not self.converged:
            yield self._iterate(may_reseed=len(self.steps) + SETTLING < iterations)

    def _iterate(self, *, may_reseed: bool) -> Step:
        reseeded = self._lost() if may_reseed else ()
        rng = np.random.default_rng([*self._seed, len(self.steps)])
        for k, ranker in enumerate(self.rankers):
            if k in reseeded:
                ranker.forget(rng)
            else:
                ranker.fit(self.lists, self._expected_counts[:, k], rng)
        if reseeded:
            self.weights = torch.full_like(self.weights, 1.0 / len(self.weights))
        else:
            self.weights = mixture_weights(self._expected_counts, self._alpha)
        self.shares, total = responsibilities(log_likelihoods(self.lists, self.rankers), self.weights)
        prior = torch.xlogy(self._alpha - 1.0, self.weights).sum() - sum(ranker.penalty() for ranker in self.rankers)
        step = Step(
            number=len(self.steps) + 1,
            objective=float((self._counts * total).sum() + prior),
            weights=tuple(self.weights.tolist()),
            entropy=float(torch.special.entr(self.shares).sum(dim=1).mean()),
            reseeded=reseeded,
        )
        self._check(step)
        self.steps.append(step)
        return step

    def _lost(self) -> tuple[int, ...]:
        """Return the components without queries that may be reset."""
        begun = [k for step in self.steps for k in step.reseeded]
        weights = self.weights.tolist()
        return tuple(k for k, weight in enumerate(weights) if weight < SMALLEST_SHARE and begun.count(k) < RESEEDS)

    def _check(self, step: Step) -> None:
        """Raise an error if the objective has decreased by more than the quadrature's error."""
        tolerance = QUADRATURE * self.lists.group_count * max(1.0, float(self._counts.max()))
        ascends = all(ranker.ascends for ranker in self.rankers) and not step.reseeded
        if ascends and not step.objective >= self.objective - tolerance:  # NaN is no ascent either
            raise ScoringError(
                f"EM iteration {step.number}: the penalised log-likelihood fell from {self.objective:.6f} to "
                f"{step.objective:.6f}: a bug, or features that overflow; please report it"
            )
