"""Where QILCM and QILCM2 look: their attention weights by the first stage's rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from listwright.ranking.relative import RelativeColumns
from listwright.training.networks.qilcm import Qilcm2Network, QilcmNetwork
from listwright.training.networks.ranker import Preprocess
from listwright.training.reporting.measures.behaviour import Seen, mean_and_half

MOST_RANKS = 40
"""First-stage ranks shown; from there on a list has little to say about the others."""


def attention(
    module: nn.Module, first_stage_score: bool, seen: Sequence[Seen], relative: RelativeColumns | None = None
) -> dict[str, object] | None:
    """Attention times list length by first-stage rank: 1 is what every candidate would get of an even split.

    Args:
        module: the fitted model.
        first_stage_score: whether that is its last input column.
        seen: queries; lists of one candidate have no choice and are left out.
        relative: list-relative columns that stand behind its features; None for none.

    Returns:
        Per rank: how many lists reach it, mean, quartiles. None for a model without attention, or without such lists.
    """
    preprocess, network = getattr(module, "preprocess", None), getattr(module, "network", None)
    if not isinstance(network, QilcmNetwork | Qilcm2Network) or not isinstance(preprocess, Preprocess):
        return None
    by_rank: list[list[float]] = [[] for _ in range(MOST_RANKS)]
    for query in seen:
        if query.kept.sum() < 2:
            continue
        weights = _weights(preprocess, network, first_stage_score, relative, query)
        ranks = query.first_ranks[query.kept]
        for rank, weight in zip(ranks, weights * len(weights), strict=True):
            if rank <= MOST_RANKS:
                by_rank[rank - 1].append(float(weight))
    rows = [[len(found), *mean_and_half(found)] for found in by_rank if found]
    return {"columns": ["lists", "mean", "low", "high"], "by_rank": rows} if rows else None


def _weights(
    preprocess: Preprocess,
    network: QilcmNetwork | Qilcm2Network,
    first_stage_score: bool,
    relative: RelativeColumns | None,
    query: Seen,
) -> Float[np.ndarray, " C"]:
    features = query.features if relative is None else relative.widened(query.features)
    rows = features[query.kept]
    if first_stage_score:
        rows = np.column_stack([rows, query.first_scores[query.kept].astype(np.float32)])
    with torch.inference_mode():
        inputs = preprocess(torch.from_numpy(rows))[None]
        found = (
            network.represent(inputs).attention if isinstance(network, QilcmNetwork) else network.attention(inputs)
        )[0]
    weights: Float[np.ndarray, " C"] = found.double().numpy()
    return weights
