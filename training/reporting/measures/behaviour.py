"""Behaviour of the sealed bundle's second stage on the test queries: bounded in size, whatever the split.

How its fit went, what queries gain, how candidates move, and where QILCM and QILCM2 look, by the first stage's rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import nn

from listwright.ranking.order import ranks_by_score
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.protocol import Evaluation, RankedRows
from listwright.training.networks.qilcm import Qilcm2Network, QilcmNetwork
from listwright.training.networks.ranker import Preprocess
from listwright.training.second_stage.loop import FittedNetwork

MOST_QUERIES = 2000
"""Queries that are evaluated one by one; evenly spread over a larger test split."""

MOST_EPOCHS = 200

MOST_ATTENTION_RANKS = 40
"""First-stage ranks shown; beyond them attention differs little."""

MOST_POINTS = 101
"""Points of the curve of gains."""

MOST_RANKS = 60
"""Bins of first-stage ranks; the last one takes what lies beyond."""

HISTOGRAM = np.linspace(-4.0, 4.0, 41)
"""Edges of the bins of a score, in standard deviations of its list; the first and last bin take what lies beyond."""

ANOMALY_BINS = 5
FEWEST_IN_BIN = 5


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """One test query, ranked by the bundle.

    Args:
        features: ``(L, D)`` raw features.
        labels: ``(L,)`` relevance labels.
        first_scores: ``(L,)`` scores of the first stage.
        scores: ``(L,)`` scores of the second stage; NaN below the cutoff.
        first_ranks, ranks: ``(L,)`` ranks before and after, from 1.
    """

    features: Float[np.ndarray, "L D"]
    labels: Int[np.ndarray, " L"]
    first_scores: Float[np.ndarray, " L"]
    scores: Float[np.ndarray, " L"]
    first_ranks: Int[np.ndarray, " L"]
    ranks: Int[np.ndarray, " L"]

    @property
    def reranked(self) -> Bool[np.ndarray, " L"]:
        """``(L,)`` True where the second stage scored."""
        reranked: Bool[np.ndarray, " L"] = np.isfinite(self.scores)
        return reranked


def measure_second_stage(
    reranker: Reranker, test: Dataset, evaluation: Evaluation, network: FittedNetwork, metric: str
) -> dict[str, object]:
    """Measure for ``report.json`` what the second stage does on the test split; the same values at every run.

    Args:
        reranker: Reranker of the sealed bundle.
        test: Test split.
        evaluation: Evaluation of all test queries.
        network: The second stage, and how its fit went.
        metric: Metric of the gains.
    """
    by_ranker, ranker = evaluation.values, evaluation.generalist
    names = tuple(by_ranker[ranker])
    filled = {name: np.nan_to_num(by_ranker[name][metric], nan=0.0) for name in (ranker, "first_stage")}
    picked = spread(len(test), MOST_QUERIES)
    stage = reranker.manifest.second_stage
    assert evaluation.ranked is not None
    assert stage is not None
    relative = reranker.relative if stage.relative else None
    queries = look(evaluation.ranked, test, picked, ranker)
    measured = [evaluation.protocol.apply(by_ranker[name][metric]) for name in (ranker, "first_stage")]
    return {
        "learning": _learning(network),
        "gains": [
            {"metric": name, **gain._asdict()}
            for name, gain in zip(names, evaluation.gains(names, ranker, "first_stage"), strict=True)
        ],
        "wins": {"metric": metric, **wins(measured[0] - measured[1])},
        "looked_at": len(queries),
        "movement": movement(queries),
        "scores": scores(queries),
        "attention": attention(network.module, stage.first_stage_score, queries, relative),
        "anomaly": anomaly(reranker, queries, (filled[ranker] - filled["first_stage"])[picked]),
    }


def look(ranked: RankedRows, test: Dataset, picked: Int[np.ndarray, " M"], ranker: str) -> list[RankedQuery]:
    """Return some queries of the test split, by their numbers there, as a ranker of the bundle has ranked them."""
    queries, keys = [], ranked.sort_keys(ranker)
    for n in map(int, picked):
        at = test.slice(n)
        rows, first = ranked.order[at], ranked.first_scores[at]
        ranks = ranks_by_score(first), ranks_by_score(keys[at])
        queries.append(RankedQuery(test.features[rows], test.labels[rows], first, ranked.scores[ranker][at], *ranks))
    return queries


def spread(count: int, most: int) -> Int[np.ndarray, " M"]:
    """Return at most so many of the numbers below ``count``, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def wins(difference: Float[np.ndarray, " N"]) -> dict[str, object]:
    """Count the queries that win and lose, and return the gain at evenly spaced places of their order, worst first."""
    points = spread(len(difference), MOST_POINTS)
    return {
        "queries": len(difference),
        "won": int((difference > 0).sum()),
        "lost": int((difference < 0).sum()),
        "share": rounded((points + 0.5) / max(1, len(difference))),
        "gain": rounded(np.sort(difference)[points]),
    }


def movement(queries: Sequence[RankedQuery]) -> dict[str, object]:
    """Return the ranks gained by the candidates that the second stage scored, by first-stage rank and relevance."""
    before = np.concatenate([query.first_ranks[query.reranked] for query in queries])
    gained = before - np.concatenate([query.ranks[query.reranked] for query in queries])
    relevant = np.concatenate([query.labels[query.reranked] > 0 for query in queries])
    ranks = _ranks(int(before.max()))
    curves: dict[str, object] = {}
    for name, mask in (("relevant", relevant), ("irrelevant", ~relevant)):
        in_bins = [gained[mask & (before >= first) & (before <= last)] for first, last in ranks]
        curves[name] = {
            "candidates": int(mask.sum()),
            "mean": float(gained[mask].mean()) if mask.any() else None,
            "by_rank": [[len(some), *mean_and_half(some)] if len(some) else [0] for some in in_bins],
        }
    return {"ranks": [list(pair) for pair in ranks], **curves}


def _ranks(longest: int) -> list[tuple[int, int]]:
    """Return ranks one by one, and then in ever wider bins: a fifth of where they begin."""
    edges = [1]
    while edges[-1] <= longest and len(edges) <= MOST_RANKS:
        edges.append(edges[-1] + max(1, edges[-1] // 5))
    bins = [(first, min(after - 1, longest)) for first, after in pairwise(edges)]
    bins[-1] = (bins[-1][0], longest)
    return bins


def scores(queries: Sequence[RankedQuery]) -> dict[str, object]:
    """Return both stages' scores by relevance, in standard deviations of their list, where the second stage scored."""
    by_stage = {}
    for name in ("first_stage", "second_stage"):
        counts = np.zeros((2, len(HISTOGRAM) - 1), dtype=np.int64)
        right = pairs = 0.0
        for query in queries:
            values = (query.first_scores if name == "first_stage" else query.scores)[query.reranked]
            relevant = query.labels[query.reranked] > 0
            ordered = np.sign(values[relevant][:, None] - values[~relevant][None, :])
            right, pairs = right + float((ordered + 1.0).sum()) / 2.0, pairs + ordered.size
            if len(values) > 1 and values.std() > 0.0:
                z = np.clip((values - values.mean()) / values.std(), HISTOGRAM[0], HISTOGRAM[-1])
                counts += np.array([np.histogram(z[mask], HISTOGRAM)[0] for mask in (~relevant, relevant)])
        by_stage[name] = {
            "irrelevant": counts[0].tolist(),
            "relevant": counts[1].tolist(),
            "pairs_right": right / pairs if pairs else None,
        }
    return {"edges": rounded(HISTOGRAM), **by_stage}


def anomaly(
    reranker: Reranker, queries: Sequence[RankedQuery], gained: Float[np.ndarray, " M"]
) -> dict[str, object] | None:
    """Return the gain in equal bins by how unlike the training queries a query is; None without an anomaly score.

    Args:
        reranker: Reranker of the bundle.
        queries: M queries.
        gained: ``(M,)`` gain of each over the first stage.
    """
    if reranker.anomaly is None:
        return None
    unlike = np.array([reranker.anomaly.of(query.features, query.first_scores) for query in queries])
    bins = np.array_split(np.argsort(unlike, kind="stable"), max(1, min(ANOMALY_BINS, len(queries) // FEWEST_IN_BIN)))
    rows = []
    for members in bins:
        low, high = percentile_interval(resample_means(gained[members]))
        ends = (unlike[members].min(), unlike[members].max())
        rows.append([len(members), *rounded([*ends, gained[members].mean(), low, high])])
    gap = None
    if len(bins) > 1:
        usual, strange = (resample_means(gained[members]) for members in (bins[0], bins[-1]))
        # both were drawn with one seed: shuffled, so that the queries of one say nothing of the other's
        low, high = percentile_interval(strange - np.random.default_rng(1).permutation(usual))
        mean = float(gained[bins[-1]].mean() - gained[bins[0]].mean())
        gap = {"mean": mean, "low": float(low), "high": float(high)}
    return {"columns": ["queries", "from", "to", "gain", "low", "high"], "bins": rows, "gap": gap}


def _learning(network: FittedNetwork) -> dict[str, object]:
    """Return the epochs, thinned out where there are very many; the best one stays."""
    history = network.history
    if not history:
        return {"columns": [], "epochs": []}
    best = int(np.argmax([epoch.valid_ndcg for epoch in history]))
    places = sorted({*spread(len(history), MOST_EPOCHS).tolist(), best})
    columns = ("number", "rank_loss", "confusion_loss", "valid_ndcg")
    return {
        "columns": list(columns),
        "epochs": [[history[n].number, *rounded([getattr(history[n], name) for name in columns[1:]])] for n in places],
    }


def attention(
    module: nn.Module, first_stage_score: bool, queries: Sequence[RankedQuery], relative: RelativeColumns | None = None
) -> dict[str, object] | None:
    """Return attention times list length by first-stage rank: 1 is each candidate's share of an even split.

    Args:
        module: Fitted model.
        first_stage_score: Whether the first stage's score is the last input column.
        queries: Ranked queries; lists of one candidate are left out.
        relative: List-relative columns behind the features; None for none.

    Returns:
        Per rank: how many lists reach it, mean, quartiles. None for a model without attention, or without such lists.
    """
    preprocess, network = getattr(module, "preprocess", None), getattr(module, "network", None)
    if not isinstance(network, QilcmNetwork | Qilcm2Network) or not isinstance(preprocess, Preprocess):
        return None
    by_rank: list[list[float]] = [[] for _ in range(MOST_ATTENTION_RANKS)]
    for query in queries:
        if query.reranked.sum() < 2:
            continue
        features = query.features if relative is None else relative.widened(query.features)
        rows = features[query.reranked]
        if first_stage_score:
            rows = np.column_stack([rows, query.first_scores[query.reranked].astype(np.float32)])
        with torch.inference_mode():
            inputs = preprocess(torch.from_numpy(rows))[None]
            weights = (
                network.represent(inputs).attention if isinstance(network, QilcmNetwork) else network.attention(inputs)
            )
        shares = weights[0].double().numpy() * len(rows)
        for rank, share in zip(query.first_ranks[query.reranked], shares, strict=True):
            if rank <= MOST_ATTENTION_RANKS:
                by_rank[rank - 1].append(float(share))
    rows = [[len(weights_at_rank), *mean_and_half(weights_at_rank)] for weights_at_rank in by_rank if weights_at_rank]
    return {"columns": ["lists", "mean", "low", "high"], "by_rank": rows} if rows else None


def mean_and_half(values: Sequence[float] | np.ndarray) -> list[float]:
    """Return the mean, and the ends of the middle half."""
    return rounded([float(np.mean(values)), *np.quantile(values, (0.25, 0.75)).tolist()])


def rounded(values: Sequence[float] | Float[np.ndarray, " numbers"]) -> list[float]:
    """Round to six digits after the point: a page shows fewer."""
    return [round(float(value), 6) for value in values]
