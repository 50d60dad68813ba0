"""The paper's f_k: linear, with a Gaussian prior (Jagerman et al., 2017, eqs. (3), (5), (12) and (13))."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from listwright.training.specialists.lists import TrainingLists

LBFGS_ITERATIONS = 12
"""Per M-step: EM needs a better w, not the best, and the next E-step changes the question."""

NEGLIGIBLE = 1e-9
"""A list of a smaller responsibility is left out of the M-step: all of them together move the objective by less than
the quadrature does."""


class LinearRanker:
    """``f(d) = w . d``, fitted by L-BFGS.

    The weighted log-likelihood of the full event is concave and the prior strictly so: there is one optimum, and no
    step goes away from it. That of a top-m event is not concave: steps still go up, to some optimum.

    Args:
        width: P.
        sigma: standard deviation of the prior of each weight.
        concave: whether the event is the full one, so that EM may insist on ascent.
    """

    def __init__(self, width: int, sigma: float, *, concave: bool = True) -> None:
        self.w = torch.zeros(width, dtype=torch.float64)
        self.ascends = concave
        self._sigma = sigma

    def scores(self, x: Float[Tensor, "R P"]) -> Float[Tensor, " R"]:
        """``X w``."""
        return x @ self.w

    def penalty(self) -> float:
        """``||w||^2 / (2 sigma^2)``."""
        return float(self.w.square().sum()) / (2.0 * self._sigma**2)

    def forget(self, rng: np.random.Generator) -> None:
        """Weights from N(0, 0.3^2)."""
        self.w = torch.as_tensor(rng.normal(0.0, 0.3, len(self.w)))

    def state(self) -> dict[str, Tensor]:
        """``w``."""
        return {"w": self.w.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over ``w``."""
        self.w = state["w"].clone()

    def fit(self, lists: TrainingLists, weights: Float[Tensor, " N"], rng: np.random.Generator) -> None:  # noqa: ARG002
        """Up to :data:`LBFGS_ITERATIONS` steps towards the optimum of eq. (12)."""
        counted = (weights > NEGLIGIBLE).nonzero().flatten()
        if len(counted) == 0:
            self.w = torch.zeros_like(self.w)  # what the prior alone wants
            return
        if len(counted) < len(lists):
            lists, weights = lists.select(counted), weights[counted]

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._value(torch.from_numpy(w), lists, weights)
            return -value, -gradient.numpy()

        found = minimize(objective, self.w.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": LBFGS_ITERATIONS})
        self.w = torch.from_numpy(found.x)

    def _value(
        self, w: Float[Tensor, " P"], lists: TrainingLists, weights: Float[Tensor, " N"]
    ) -> tuple[float, Float[Tensor, " P"]]:
        """Weighted log-likelihood less the penalty, and its gradient."""
        value, gradient = torch.zeros((), dtype=w.dtype), torch.zeros_like(w)
        for at, block in lists.blocks():
            found = block.likelihood(block.x @ w)
            by_row = (weights[at, None] * found.gradient)[block.mask]
            value += weights[at] @ found.value
            gradient += block.x.T @ by_row
        return float(value - w.square().sum() / (2.0 * self._sigma**2)), gradient - w / self._sigma**2
