"""Rankers of a mixture, and all of them as one torch module from raw features, which is exported.

The paper's f_k is linear with a Gaussian prior (Jagerman et al., 2017, eqs. (3), (5), (12) and (13)); any other
differentiable network learns by the paper's own M-step (sections 4.3 and 5). Their inputs are z-scores.
"""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor, nn

from listwright.ranking.compiled.linear import PackedLinear
from listwright.ranking.features import FeatureSchema
from listwright.training.data.shards.rows import Features, columns
from listwright.training.networks.qilcm import mlp
from listwright.training.networks.ranker import CLIP_QUANTILES, symmetric_log1p
from listwright.training.recipe.config import Srm as SrmSpec
from listwright.training.specialists.em import Component
from listwright.training.specialists.lists import TrainingLists

LBFGS_ITERATIONS = 12
"""Iterations per M-step: a better w is enough, as the next E-step changes the objective."""

NEGLIGIBLE = 1e-9
"""A list of a smaller responsibility is left out of the M-step: all of them together move the objective by less than
the quadrature does."""

BETAS, EPSILON = (0.9, 0.999), 1e-7
"""Parameters of Adam, as the paper states them."""

FIRST_STAGE_SCORE = "first-stage score"
"""Name of the column that is no feature."""

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""A spread below the one, or a span above the other, has no z-scores in float32: they would be infinite."""


class SrmNetwork(nn.Module):
    """Raw features to the scores of all K specialists.

    Args:
        standardise: Preprocessing, fitted on the training rows.
        rankers: K fitted rankers.
    """

    def __init__(self, standardise: Standardise, rankers: list[Component]) -> None:
        super().__init__()
        self.standardise = standardise
        linear = [ranker.w for ranker in rankers if isinstance(ranker, LinearRanker)]
        self.heads = _stacked(torch.stack(linear)) if len(linear) == len(rankers) else _ParallelNetworks(rankers)
        self.heads.float()

    def forward(self, features: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch K"]:
        """Return ``(..., K)`` scores; NaN is a missing value."""
        scores: Tensor = self.heads(self.standardise(features))
        return scores

    def pack(self) -> PackedLinear | None:
        """Return the same rankers for the compiled product; None if they are networks, or take logarithms first."""
        layer = self.standardise
        if not isinstance(self.heads, nn.Linear) or layer.transform != "none":
            return None
        optional = layer.optional.numpy()
        weights, of_missing, of_categories = np.split(
            self.heads.weight.detach().numpy(), np.cumsum([len(optional), len(layer.indicated)]), axis=1
        )
        missing_weights = np.zeros_like(weights)
        missing_weights[:, layer.indicated] = of_missing
        means = layer.means.numpy()
        return PackedLinear(
            columns=np.array(layer.numeric, dtype=np.int32),
            fills=np.where(optional, means, np.float32(0.0)),
            lows=layer.lows.numpy(),
            highs=layer.highs.numpy(),
            means=means,
            scales=layer.scales.numpy(),
            weights=np.ascontiguousarray(weights),
            missing_weights=missing_weights,
            category_columns=np.array([column for column, _ in layer.categorical], dtype=np.int32),
            category_starts=np.cumsum([0, *(size for _, size in layer.categorical)], dtype=np.int32),
            category_weights=np.ascontiguousarray(of_categories),
        )


def _stacked(weights: Float[Tensor, "K P"]) -> nn.Linear:
    """Stack all linear rankers into one product."""
    heads = nn.Linear(weights.shape[1], len(weights), bias=False)
    with torch.no_grad():
        heads.weight.copy_(weights)
    return heads


class _ParallelNetworks(nn.Module):
    """Networks side by side, each with one output."""

    def __init__(self, rankers: list[Component]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            copy.deepcopy(ranker.network) for ranker in rankers if isinstance(ranker, NetworkRanker)
        )

    def forward(self, x: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch K"]:
        return torch.cat([network(x) for network in self.networks], dim=-1)


class LinearRanker:
    """``f(d) = w . d``, fitted by L-BFGS.

    The weighted log-likelihood of the full event is concave and the prior strictly so: there is one optimum, and no
    step goes away from it. That of a top-m event is not concave: steps still go up, to some optimum.

    Args:
        width: P, number of columns of the dense input.
        sigma: Standard deviation of the prior of each weight.
        concave: Whether the event is the full one, so that EM may insist on ascent.
    """

    def __init__(self, width: int, sigma: float, *, concave: bool = True) -> None:
        self.w = torch.zeros(width, dtype=torch.float64)
        self.ascends = concave
        self._sigma = sigma

    def scores(self, x: Float[Tensor, "R P"]) -> Float[Tensor, " R"]:
        """Return ``X w``."""
        return x @ self.w

    def penalty(self) -> float:
        """Return ``||w||^2 / (2 sigma^2)``."""
        return float(self.w.square().sum()) / (2.0 * self._sigma**2)

    def forget(self, rng: np.random.Generator) -> None:
        """Reset the weights to draws from N(0, 0.3^2)."""
        self.w = torch.as_tensor(rng.normal(0.0, 0.3, len(self.w)))

    def state(self) -> dict[str, Tensor]:
        """Return ``w``."""
        return {"w": self.w.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Set ``w``."""
        self.w = state["w"].clone()

    def fit(self, lists: TrainingLists, weights: Float[Tensor, " N"], rng: np.random.Generator) -> None:  # noqa: ARG002
        """Take up to :data:`LBFGS_ITERATIONS` steps towards the optimum of eq. (12)."""
        informative = (weights > NEGLIGIBLE).nonzero().flatten()
        if len(informative) == 0:
            self.w = torch.zeros_like(self.w)  # what the prior alone wants
            return
        if len(informative) < len(lists):
            lists, weights = lists.select(informative), weights[informative]

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._value(torch.from_numpy(w), lists, weights)
            return -value, -gradient.numpy()

        solution = minimize(
            objective, self.w.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": LBFGS_ITERATIONS}
        )
        self.w = torch.from_numpy(solution.x)

    def _value(
        self, w: Float[Tensor, " P"], lists: TrainingLists, weights: Float[Tensor, " N"]
    ) -> tuple[float, Float[Tensor, " P"]]:
        """Return the weighted log-likelihood minus the penalty, and its gradient."""
        value, gradient = torch.zeros((), dtype=w.dtype), torch.zeros_like(w)
        for at, block in lists.blocks():
            likelihood = block.likelihood(block.x @ w)
            by_row = (weights[at, None] * likelihood.gradient)[block.mask]
            value += weights[at] @ likelihood.value
            gradient += block.x.T @ by_row
        return float(value - w.square().sum() / (2.0 * self._sigma**2)), gradient - w / self._sigma**2


class NetworkRanker:
    """A linear ranker or an MLP over dense inputs, fitted by Adam on batches of lists.

    A batch's likelihood is scaled by N / batch: the prior counts once per pass over the data, not once per batch.
    Nothing guarantees that a pass raises the objective.

    Args:
        width: P, number of columns of the dense input.
        spec: ``hidden``, ``sigma``, ``batch_size``, ``learning_rate``, ``epochs``.
        rng: Generator of the first weights; an MLP cannot leave 0.
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
        """Return f_k of every row."""
        with torch.no_grad():
            outputs: Tensor = self.network(x)[..., 0]
        return outputs

    def penalty(self) -> float:
        """Return ``||w||^2 / (2 sigma^2)`` over the weights; biases are free."""
        with torch.no_grad():
            return float(self._penalty())

    def _penalty(self) -> Tensor:
        squares = [parameter.square().sum() for parameter in self.network.parameters() if parameter.ndim > 1]
        return torch.stack(squares).sum() / (2.0 * self._spec.sigma**2)

    def forget(self, rng: np.random.Generator) -> None:
        """Reset the weights to N(0, 0.3^2) for one layer, scaled by the input width for more; biases 0."""
        with torch.no_grad():
            for parameter in self.network.parameters():
                spread = 0.0 if parameter.ndim == 1 else 0.3 if not self._spec.hidden else parameter.shape[1] ** -0.5
                parameter.copy_(torch.as_tensor(rng.normal(0.0, 1.0, tuple(parameter.shape)) * spread))
        self._optimizer = self._adam()

    def state(self) -> dict[str, Tensor]:
        """Return weights, and Adam's running moments, under flat names."""
        state = {f"network.{name}": value.clone() for name, value in self.network.state_dict().items()}
        for n, moments in self._optimizer.state_dict()["state"].items():
            state |= {f"adam.{n}.{name}": value.clone() for name, value in moments.items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Set weights and moments."""
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
        """Run ``epochs`` passes over the lists, ``batch_size`` of them at a time."""
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


class Standardise(nn.Module):
    """Raw feature rows to dense inputs: z-scores, missing-value indicators, one 0/1 column per category.

    Numbers are clipped at the 0.1 % and 99.9 % quantiles of training, so that one absurd value cannot outweigh all
    others. A missing number becomes the mean where training data had missing values, with an indicator of 1, and
    counts as 0.0 where they had none, because LightGBM treats it so. Indicators and categories stay 0/1: scaled to
    unit variance, rare ones would hardly be held by the prior.

    Args:
        schema: Schema of the first D columns.
        rows: ``(R, E)`` training rows to take the statistics from; E is D, or D + 1 with the first stage's score last.
        transform: ``none``, or ``log`` for symmetric log1p before everything else; or ``raw``, which leaves numbers as
            they are, a missing one 0.

    Convention: a column that is constant in training (or has no value at all, or a spread that float32 cannot scale)
    becomes 0, without an indicator if it never had a value; an unknown category is 0 in every column of its feature.
    """

    lows: Tensor
    highs: Tensor
    means: Tensor
    scales: Tensor
    optional: Tensor

    def __init__(self, schema: FeatureSchema, rows: Features, transform: Literal["none", "log", "raw"]) -> None:
        super().__init__()
        self.transform = transform
        self.numeric = [d for d in range(rows.shape[1]) if d not in schema.categorical]
        self.indicated: list[int] = []
        statistics_of_columns: list[tuple[float, float, float, float]] = []
        for d, column in enumerate(columns(rows)):
            if d not in self.numeric:
                continue
            if d < len(schema) and schema.features[d].missing_in_training and not np.isnan(column).all():
                self.indicated.append(len(statistics_of_columns))
            statistics_of_columns.append(_statistics(column, transform))
        self.register_buffer(
            "optional", torch.tensor([i in self.indicated for i in range(len(self.numeric))], dtype=torch.bool)
        )
        self.categorical = [(d, len(schema.features[d].categories)) for d in schema.categorical]
        statistics = np.array(statistics_of_columns, dtype=np.float32)
        for name, values in zip(("lows", "highs", "means", "scales"), statistics.reshape(-1, 4).T, strict=True):
            self.register_buffer(name, torch.from_numpy(values.copy()))
        names = (*schema.names, FIRST_STAGE_SCORE)
        self.names = tuple(names[d] for d in self.numeric)
        self.names += tuple(f"{self.names[i]} missing" for i in self.indicated)
        for d in schema.categorical:
            self.names += tuple(f"{schema.names[d]} = {category}" for category in schema.features[d].categories)

    @property
    def width(self) -> int:
        """P, columns of the output."""
        return len(self.names)

    def forward(self, raw: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch P"]:
        """Transform ``(..., E)`` raw rows to ``(..., P)`` dense inputs; NaN is a missing value."""
        numbers = raw if len(self.numeric) == raw.shape[-1] else raw[..., self.numeric]
        missing = torch.isnan(numbers)
        values = torch.where(missing, 0.0, numbers)
        if self.transform == "log":
            values = symmetric_log1p(values)
        z = (torch.minimum(torch.maximum(values, self.lows), self.highs) - self.means) * self.scales
        parts = [z]
        if self.indicated:
            parts = [torch.where(missing & self.optional, 0.0, z), missing[..., self.indicated].to(z.dtype)]
        for column, size in self.categorical:
            codes = torch.arange(1, size + 1, dtype=raw.dtype, device=raw.device)
            parts.append((raw[..., column : column + 1] == codes).to(z.dtype))
        return torch.cat(parts, dim=-1)


def _statistics(column: Float[np.ndarray, " R"], transform: str) -> tuple[float, float, float, float]:
    """Return low, high, mean and 1 / standard deviation of one transformed and clipped column."""
    present = column[~np.isnan(column)].astype(np.float64)
    if len(present) == 0:
        return 0.0, 0.0, 0.0, 0.0
    if transform == "raw":
        return -LARGEST, LARGEST, 0.0, 1.0
    if transform == "log":
        present = np.sign(present) * np.log1p(np.abs(present))
    low, high = np.quantile(present, CLIP_QUANTILES)
    clipped = np.clip(present, low, high)
    spread = float(clipped.std())
    constant = spread <= max(1e-12 * float(np.abs(clipped).max()), SMALLEST)
    if constant or high - low > LARGEST:
        return 0.0, 0.0, 0.0, 0.0
    return float(low), float(high), float(clipped.mean()), 1.0 / spread
