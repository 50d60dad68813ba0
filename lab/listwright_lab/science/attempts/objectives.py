"""Listwise objectives that the library does not have, over padded batches: tried here, and kept only if they pay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from listwright.training.losses import plackett_luce, softmax_cross_entropy

TEMPERATURE = 1.0
"""Of NeuralSort's relaxed permutation."""


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
    relaxed = torch.softmax((relaxed / TEMPERATURE).masked_fill(~mask[:, None, :], -1e30), dim=2) * real[:, :, None]
    gain = torch.where(mask, torch.exp2(labels.to(logits.dtype)) - 1.0, 0.0)
    top = min(10, logits.shape[1])
    discount = 1.0 / torch.log2(place[:top].to(logits.dtype) + 2.0)
    dcg = (relaxed[:, :top] @ gain[:, :, None])[..., 0] @ discount
    ideal = gain.sort(dim=1, descending=True).values[:, :top] @ discount
    loss: Tensor = torch.where(ideal > 0, 1.0 - dcg / ideal.clamp(min=1e-9), 0.0)
    return loss.mean()


NAMED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": softmax_cross_entropy,
    "plackett_luce": plackett_luce,
    "lambda_loss": lambda_loss,
    "neural_ndcg": neural_ndcg,
}
