"""An f_k that is any differentiable network, by the paper's own M-step (Jagerman et al., 2017, sections 4.3 and 5)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from listwright.training.networks.encoder import mlp
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.specialists.lists import TrainingLists

BETAS, EPSILON = (0.9, 0.999), 1e-7
"""Of Adam, as the paper states them."""


class NetworkRanker:
    """A linear ranker or an MLP over dense inputs, fitted by Adam on batches of lists.

    A batch's likelihood is scaled by N / batch: the prior counts once per pass over the data, not once per batch.
    Nothing guarantees that a pass raises the objective.

    Args:
        width: P.
        spec: ``hidden``, ``sigma``, ``batch_size``, ``learning_rate``, ``epochs``.
        rng: of the first weights; an MLP cannot leave 0.
    """

    ascends = False

    def __init__(self, width: int, spec: SrmSpec, rng: np.random.Generator) -> None:
        self.network: nn.Module = mlp(width, spec.hidden).double()
        self._spec = spec
        self.forget(rng)

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam(
            self.network.parameters(), lr=self._spec.learning_rate, betas=BETAS, eps=EPSILON, foreach=False
        )

    def scores(self, x: Float[Tensor, "R P"]) -> Float[Tensor, " R"]:
        """f_k of every row."""
        with torch.no_grad():
            found: Tensor = self.network(x)[..., 0]
        return found

    def penalty(self) -> float:
        """``||w||^2 / (2 sigma^2)`` over the weights; biases are free."""
        with torch.no_grad():
            return float(self._penalty())

    def _penalty(self) -> Tensor:
        squares = [parameter.square().sum() for parameter in self.network.parameters() if parameter.ndim > 1]
        return torch.stack(squares).sum() / (2.0 * self._spec.sigma**2)

    def forget(self, rng: np.random.Generator) -> None:
        """Weights from N(0, 0.3^2) for one layer, scaled by the width of what comes in for more; biases 0."""
        with torch.no_grad():
            for parameter in self.network.parameters():
                spread = 0.0 if parameter.ndim == 1 else 0.3 if not self._spec.hidden else parameter.shape[1] ** -0.5
                parameter.copy_(torch.as_tensor(rng.normal(0.0, 1.0, tuple(parameter.shape)) * spread))
        self._optimizer = self._adam()

    def state(self) -> dict[str, Tensor]:
        """Weights, and Adam's running moments, under flat names."""
        found = {f"network.{name}": value.clone() for name, value in self.network.state_dict().items()}
        for n, moments in self._optimizer.state_dict()["state"].items():
            found |= {f"adam.{n}.{name}": value.clone() for name, value in moments.items()}
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over weights and moments."""
        network = {name[len("network.") :]: value for name, value in state.items() if name.startswith("network.")}
        self.network.load_state_dict(network)
        self._optimizer = self._adam()
        saved = self._optimizer.state_dict()
        for name, value in state.items():
            if name.startswith("adam."):
                _, n, moment = name.split(".")
                saved["state"].setdefault(int(n), {})[moment] = value.clone()
        self._optimizer.load_state_dict(saved)

    def fit(self, lists: TrainingLists, weights: Float[Tensor, " N"], rng: np.random.Generator) -> None:
        """``epochs`` passes over the lists, ``batch_size`` of them at a time."""
        for _ in range(self._spec.epochs):
            order = torch.from_numpy(rng.permutation(len(lists)))
            for picked in torch.split(order, self._spec.batch_size):
                batch = lists.batch(picked)
                self._optimizer.zero_grad()
                scores: Tensor = self.network(batch.x)[..., 0]
                pull = (weights[picked, None] * batch.likelihood(scores.detach()).gradient)[batch.mask]
                scale = len(lists) / len(picked)
                loss = self._penalty() - scale * (scores @ pull)  # its gradient is that of eq. (12)
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
