"""Attempts with a network on top of the rival.

All networks have one setting for all sets, :data:`COMMON`. What the recipes hold was tuned on validation queries of
fold 1, which other folds test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from listwright.training.data.dataset import Dataset, Splits
from listwright.training.losses import plackett_luce, softmax_cross_entropy
from listwright.training.networks import ranker
from listwright.training.networks.qilcm import MASKED_LOGIT, Member, Output, Qilcm2Network
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.second_stage import loop
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import FittedNetwork, fit_network, predict
from listwright_lab.science.attempts import trees
from listwright_lab.science.attempts.problem import Problem, Scores, by_query

COMMON: dict[str, Any] = {
    "cutoff": 1000,  # whole lists
    "encoder_width": 48,
    "hidden": (64,),
    "dropout": 0.3,
    "weight_decay": 1e-4,
    "batch_size": 40,
    "learning_rate": 2e-3,
    "max_epochs": 60,
    "patience": 8,
}
SEEDS = Qilcm2Spec(context="seeds", seeds=2, **COMMON)
BLOCKS = Qilcm2Spec(context="blocks", **COMMON)
AVERAGED = BLOCKS.model_copy(update={"members": 4})
STRONG = BLOCKS.model_copy(update={"dropout": 0.5, "weight_decay": 1e-3, "input_noise": 0.05})
QILCM = QilcmSpec(confusion_weight=0.0, **COMMON)
POINTWISE = MlpSpec(first_stage_score=False, **COMMON)
ALONE = BLOCKS.model_copy(update={"first_stage_score": False})

FOLDS = 4

PRETRAINED_ON = "context"


def single(problem: Problem, splits: Splits, spec: NetworkSpec, first: Scores) -> Scores:
    """Fit one network on all training queries, stopped by the validation queries."""
    assert first.train is not None
    fitted = fit_network(spec, splits.train, splits.valid, first.train, first.valid, seed=problem.seed)
    valid, test = (
        scores_of(fitted, part, scores) for part, scores in ((splits.valid, first.valid), (splits.test, first.test))
    )
    return Scores(None, valid, test, {"epochs": [float(fitted.best_epoch)]})


NEURAL_SORT_TEMPERATURE = 1.0
"""Temperature of NeuralSort's relaxed permutation."""


def lambda_loss(
    logits: Float[Tensor, "B L"], labels: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, ""]:
    """Compute LambdaLoss with the weights of NDCG-Loss2++ (Wang et al., CIKM 2018), mu = 10, over the whole list."""
    gain = torch.where(mask, torch.exp2(labels.to(logits.dtype)) - 1.0, 0.0)
    discount = torch.log2(torch.arange(logits.shape[1], device=logits.device) + 2.0)
    ideal = (gain.sort(dim=1, descending=True).values / discount).sum(dim=1).clamp(min=1e-9)
    with torch.no_grad():
        rank = logits.masked_fill(~mask, -1e30).argsort(dim=1, descending=True).argsort(dim=1)
        place = 1.0 / torch.log2(rank + 2.0)
        apart = (rank[:, :, None] - rank[:, None, :]).abs().float()
        rho = (1.0 / torch.log2(apart + 1.0).clamp(min=1e-9) - 1.0 / torch.log2(apart + 2.0)).abs()
        lambdas = (place[:, :, None] - place[:, None, :]).abs()
        weight = (10.0 * torch.where(apart > 0, rho, 0.0) + lambdas) * (gain[:, :, None] - gain[:, None, :]).abs()
    better = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    loss = torch.nn.functional.softplus(-(logits[:, :, None] - logits[:, None, :]))
    losses: Tensor = torch.where(better, weight * loss, 0.0).sum(dim=(1, 2)) / ideal
    return losses.mean()


def neural_ndcg(
    logits: Float[Tensor, "B L"], labels: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]
) -> Float[Tensor, ""]:
    """Compute 1 - NDCG@10 of NeuralSort's relaxed permutation.

    Sources: Grover et al., ICLR 2019; Pobrotyn and Bialobrzeski, 2021.
    """
    real = mask.to(logits.dtype)
    place = torch.arange(logits.shape[1], device=logits.device)
    apart = ((logits[:, :, None] - logits[:, None, :]).abs() * real[:, None, :]).sum(dim=2)  # (B, L)
    factor = real.sum(dim=1)[:, None] - 1 - 2 * place  # (B, place)
    relaxed = factor[:, :, None] * logits[:, None, :] - apart[:, None, :]
    relaxed = torch.softmax((relaxed / NEURAL_SORT_TEMPERATURE).masked_fill(~mask[:, None, :], -1e30), dim=2)
    relaxed = relaxed * real[:, :, None]
    gain = torch.where(mask, torch.exp2(labels.to(logits.dtype)) - 1.0, 0.0)
    top = min(10, logits.shape[1])
    discount = 1.0 / torch.log2(place[:top].to(logits.dtype) + 2.0)
    dcg = (relaxed[:, :top] @ gain[:, :, None])[..., 0] @ discount
    ideal = gain.sort(dim=1, descending=True).values[:, :top] @ discount
    loss: Tensor = torch.where(ideal > 0, 1.0 - dcg / ideal.clamp(min=1e-9), 0.0)
    return loss.mean()


OBJECTIVES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": softmax_cross_entropy,
    "plackett_luce": plackett_luce,
    "lambda_loss": lambda_loss,
    "neural_ndcg": neural_ndcg,
}


def with_objective(problem: Problem, splits: Splits, name: str, first: Scores) -> Scores:
    """Fit QILCM2 with self-attention by one of :data:`OBJECTIVES`."""
    objective = OBJECTIVES[name]

    def loss(_: str, logits: Tensor, labels: Tensor, mask: Tensor, *, weights: None, gains: None) -> Tensor:
        assert weights is None  # these sets have neither
        assert gains is None
        return objective(logits, labels, mask)

    with patch.object(loop, "ranking_loss", loss):
        return single(problem, splits, BLOCKS, first)


def pretrained(problem: Problem, first: Scores) -> Scores:
    """Fit QILCM2 with self-attention, which begins with the weights of the same network on planted context.

    It takes over every array of the same shape: the blocks of self-attention, and the layers that see no columns.
    """
    learned = _learned(problem.seed, problem.data, problem.work)

    class PretrainedRanker(Ranker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            own = self.state_dict()
            matching = {
                name: value
                for name, value in learned.items()
                if name.startswith("network.") and name in own and own[name].shape == value.shape and value.dim() > 0
            }
            self.load_state_dict(matching, strict=False)

    with patch.object(loop, "Ranker", PretrainedRanker):
        return single(problem, problem.wide, BLOCKS, first)


@cache
def _learned(seed: int, data: Path, work: Path) -> dict[str, Tensor]:
    """Fit a network on planted context and return its weights."""
    planted = Problem(PRETRAINED_ON, 1, seed, data, work)
    splits, first = planted.wide, planted.scores("relative", lambda: trees.relative(planted))
    assert first.train is not None
    fitted = fit_network(BLOCKS, splits.train, splits.valid, first.train, first.valid, seed=seed)
    return dict(fitted.module.state_dict())


NOISE, DROPOUT = (0.1, 0.3), (0.4, 0.6)


def regularised(problem: Problem, first: Scores) -> Scores:
    """Fit networks with DASALC's noise on the inputs, and dropout; keep the one that ranks validation queries best.

    Inputs lie in [0, 1] here, behind log1p; Qin et al., "Are Neural Rankers still Outperformed by Gradient Boosted
    Decision Trees?", ICLR 2021, add a noise of 0.5 to 1.5 standard deviations, which is about as much.
    """
    tried = []
    for noise, dropout in product(NOISE, DROPOUT):
        spec = BLOCKS.model_copy(update={"input_noise": noise, "dropout": dropout})
        scores = single(problem, problem.wide, spec, first)
        tried.append((float(by_query(problem.plain.valid, scores.valid).mean()), noise, dropout, scores))
    _, noise, dropout, best = max(tried, key=lambda trial: trial[0])
    return Scores(None, best.valid, best.test, {**best.facts, "noise": [noise], "dropout": [dropout]})


MEMBERS = 4


class BatchEnsemble(Qilcm2Network):
    """Ensemble whose members share all weights, and scale the inputs each in its own way.

    Wen, Tran, Ba, "BatchEnsemble", ICLR 2020, as "TabM-mini" of Gorishniy, Kotelnikov, Babenko, ICLR 2025, has it, but
    for the last layer, which is shared, too. Scales begin as random signs, and each member has the loss of its own
    scores.
    """

    def __init__(self, width: int, spec: Qilcm2Spec, scores: Float[np.ndarray, " R"] | None) -> None:
        super().__init__(width, spec, scores)
        signs = torch.randint(0, 2, (MEMBERS, width)) * 2.0 - 1.0
        self.scales = nn.Parameter(signs)

    def forward(self, x: Tensor, mask: Tensor | None, first: Tensor | None) -> Output:
        """Return the mean logits, and those of the members."""
        each = (x * self.scales[:, None, None, :]).flatten(0, 1)  # (members * B, L, X)
        repeated = [None if part is None else part.repeat(MEMBERS, 1) for part in (mask, first)]
        logits = self.members[0](each, *repeated).unflatten(0, (MEMBERS, -1))
        return Output(logits.mean(dim=0), members=logits)


def batch_ensemble(problem: Problem, first: Scores) -> Scores:
    """Fit :class:`BatchEnsemble` on the rival's columns and piecewise-linear encodings of the numbers."""
    with patch.object(ranker, "Qilcm2Network", BatchEnsemble):
        return single(problem, problem.piecewise, BLOCKS, first)


def contrasted(problem: Problem, first: Scores) -> Scores:
    """Fit a network that begins with what it learned from the lists of training and validation without their labels."""
    splits = problem.wide

    class PretrainedRanker(Ranker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            learn_without_labels(self, Lists(splits.train, first_of_train, cutoff=COMMON["cutoff"], append_score=True))

    assert first.train is not None
    first_of_train = first.train
    with patch.object(loop, "Ranker", PretrainedRanker):
        return single(problem, splits, BLOCKS, first)


CONTRASTED_EPOCHS, CORRUPTED, TEMPERATURE, PROJECTED = 10, 0.3, 0.1, 32


def learn_without_labels(model: Ranker, lists: Lists) -> None:
    """Teach a network to find a candidate in another view of its list.

    Both views have some values replaced by those of other rows of the batch: SCARF, Bahri et al., ICLR 2022. The loss
    is InfoNCE among the candidates of a list. The layers that score stay as they are.
    """
    assert isinstance(model.network, Qilcm2Network)
    member = model.network.members[0]
    assert isinstance(member, Member)
    head = nn.Linear(member.mix.shape[0], PROJECTED)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=COMMON["learning_rate"])
    rng = np.random.default_rng(0)

    def project(raw: Tensor, mask: Tensor) -> Tensor:
        rows = raw[mask]
        others = rows[torch.randint(len(rows), raw.shape[:2] + raw.shape[2:]), torch.arange(raw.shape[2])]
        corrupted = torch.where(torch.rand(raw.shape) < CORRUPTED, others, raw).masked_fill(~mask[..., None], 0.0)
        h = member.encoder(model.preprocess(corrupted))
        projected: Tensor = nn.functional.normalize(head(h * (1.0 + member.context(h, mask))), dim=-1)
        return projected

    for _ in range(CONTRASTED_EPOCHS):
        for batch in lists.batches(COMMON["batch_size"], rng):
            view, other_view = (project(batch.features, batch.mask) for _ in range(2))
            logits = view @ other_view.transpose(1, 2) / TEMPERATURE
            log_shares = torch.log_softmax(logits.masked_fill(~batch.mask[:, None, :], MASKED_LOGIT), dim=-1)
            loss = -torch.diagonal(log_shares, dim1=1, dim2=2)[batch.mask].mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def crossed(problem: Problem, splits: Splits, spec: NetworkSpec, first: Scores) -> Scores:
    """Fit :data:`FOLDS` networks, each without one part of the training queries, which it then scores.

    All are stopped by the validation queries. Validation and test rows have the mean of all networks.
    """
    assert first.train is not None
    train, valid, test = np.empty(splits.train.rows), np.zeros(splits.valid.rows), np.zeros(splits.test.rows)
    part_of = np.random.default_rng([problem.seed, FOLDS]).permutation(len(splits.train)) % FOLDS
    epochs = []
    for part in range(FOLDS):
        rest, held_out = np.flatnonzero(part_of != part), np.flatnonzero(part_of == part)
        rows, unseen = splits.train.rows_of(rest), splits.train.rows_of(held_out)
        fitted = fit_network(
            spec,
            splits.train.select(rest),
            splits.valid,
            first.train[rows],
            first.valid,
            seed=1000 * problem.seed + part,
        )
        train[unseen] = scores_of(fitted, splits.train.select(held_out), first.train[unseen])
        valid += scores_of(fitted, splits.valid, first.valid) / FOLDS
        test += scores_of(fitted, splits.test, first.test) / FOLDS
        epochs.append(float(fitted.best_epoch))
    return Scores(train, valid, test, {"epochs": epochs})


def safe(problem: Problem, first: Scores, second: Scores) -> Scores:
    """Use the second stage where its gain is above one standard error, else the first stage.

    The gain is that on the training queries, which neither has seen; on the validation queries, which chose the epoch,
    where the second stage has no such scores.
    """
    if second.train is not None and first.train is not None:
        gain = by_query(problem.plain.train, second.train) - by_query(problem.plain.train, first.train)
    else:
        gain = by_query(problem.plain.valid, second.valid) - by_query(problem.plain.valid, first.valid)
    error = float(gain.std(ddof=1)) / len(gain) ** 0.5
    better = float(gain.mean()) > error
    stage = second if better else first
    return Scores(stage.train, stage.valid, stage.test, {"kept": [float(better)], "gain": [float(gain.mean()), error]})


def scores_of(fitted: FittedNetwork, data: Dataset, first: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` logits of every row."""
    spec = fitted.spec
    lists = Lists(data, first, cutoff=spec.cutoff, append_score=spec.first_stage_score)
    assert len(lists.rows) == data.rows, "a list is longer than the cutoff"
    return np.concatenate(predict(fitted.module, lists))
