"""How the sealed bundle changes the first stage's order of the test queries: bounded in size, whatever the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.order import ranks_by_score
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.protocol import RankedRows

MOST_QUERIES = 2000
"""Queries that are evaluated one by one; evenly spread over a larger test split."""

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
        features: ``(L, D)`` raw.
        labels: ``(L,)``.
        first_scores: ``(L,)`` of the first stage.
        scores: ``(L,)`` of the second stage; NaN below the cutoff.
        first_ranks, ranks: ``(L,)`` 1-based, before and after.
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
    for name, chosen in (("relevant", relevant), ("irrelevant", ~relevant)):
        in_bins = [gained[chosen & (before >= first) & (before <= last)] for first, last in ranks]
        curves[name] = {
            "candidates": int(chosen.sum()),
            "mean": float(gained[chosen].mean()) if chosen.any() else None,
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
    drawn = {}
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
                counts += np.array([np.histogram(z[chosen], HISTOGRAM)[0] for chosen in (~relevant, relevant)])
        drawn[name] = {
            "irrelevant": counts[0].tolist(),
            "relevant": counts[1].tolist(),
            "pairs_right": right / pairs if pairs else None,
        }
    return {"edges": rounded(HISTOGRAM), **drawn}


def anomaly(
    reranker: Reranker, queries: Sequence[RankedQuery], gained: Float[np.ndarray, " M"]
) -> dict[str, object] | None:
    """Return the gain in equal bins by how unlike the training queries a query is; None without an anomaly score.

    Args:
        reranker: of the bundle.
        queries: M queries.
        gained: ``(M,)`` of each over the first stage.
    """
    if reranker.anomaly is None:
        return None
    unlike = np.array([reranker.anomaly.of(query.features, query.first_scores) for query in queries])
    bins = np.array_split(np.argsort(unlike, kind="stable"), max(1, min(ANOMALY_BINS, len(queries) // FEWEST_IN_BIN)))
    rows = []
    for chosen in bins:
        low, high = percentile_interval(resample_means(gained[chosen]))
        ends = (unlike[chosen].min(), unlike[chosen].max())
        rows.append([len(chosen), *rounded([*ends, gained[chosen].mean(), low, high])])
    gap = None
    if len(bins) > 1:
        usual, strange = (resample_means(gained[chosen]) for chosen in (bins[0], bins[-1]))
        # both were drawn with one seed: shuffled, so that the queries of one say nothing of the other's
        low, high = percentile_interval(strange - np.random.default_rng(1).permutation(usual))
        mean = float(gained[bins[-1]].mean() - gained[bins[0]].mean())
        gap = {"mean": mean, "low": float(low), "high": float(high)}
    return {"columns": ["queries", "from", "to", "gain", "low", "high"], "bins": rows, "gap": gap}


def mean_and_half(values: Sequence[float] | np.ndarray) -> list[float]:
    """Return the mean, and the ends of the middle half."""
    return rounded([float(np.mean(values)), *np.quantile(values, (0.25, 0.75)).tolist()])


def rounded(values: Sequence[float] | Float[np.ndarray, " numbers"]) -> list[float]:
    """Round to six digits after the point: a page shows fewer."""
    return [round(float(value), 6) for value in values]
