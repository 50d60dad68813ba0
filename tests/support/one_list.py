"""Metrics of one list, each by its definition, and those of the package for one list alone."""

import numpy as np

from listwright.ranking.metrics import HIGHEST_GAIN, JudgedLists, dcg, gains_of
from listwright.ranking.order import rank_by_score


def measure(name, scores, labels, **more):
    return JudgedLists(labels, np.array([0, len(labels)]), **more).measure((name,), scores)[name].item()


def average_precision(scores, labels):
    return measure("map", scores, labels)


def expected_reciprocal_rank(scores, labels, *, cutoff, **more):
    return measure(f"err@{cutoff}", scores, labels, **more)


def define(name, scores, labels, *, kept=None, gains=None, highest=HIGHEST_GAIN):
    """Compute a metric of one list from its definition, group by group of equal scores."""
    kind, _, depth = name.partition("@")
    relevant = (labels > 0).astype(np.float64)
    if kind == "ndcg":
        return _ndcg(scores, labels, int(depth), kept, gains)
    if kind == "precision":
        sums, sizes, _ = _rank_groups(scores, relevant)
        return float(np.repeat(sums / sizes, sizes)[: int(depth)].sum()) / int(depth)
    if kind == "hit":
        return float(1.0 - _survival(scores, relevant, int(depth))[-1])
    if kind == "map":
        return _average_precision(scores, relevant)
    stops, cutoff = (relevant, len(labels)) if kind == "mrr" else (gains_of(labels, gains) / (highest + 1), int(depth))
    passed = _survival(scores, stops, cutoff)
    return float(-(np.diff(passed) / np.arange(1, len(passed))).sum())


def _ndcg(scores, labels, cutoff, kept, gains):
    ideal = dcg(np.sort(labels if kept is None else labels[kept])[::-1], cutoff=cutoff, gains=gains)
    if ideal == 0.0:
        return float("nan")
    group_gains, sizes, starts = _rank_groups(scores, gains_of(labels, gains))
    discounts = 1.0 / np.log2(np.arange(2.0, len(labels) + 2.0))
    discounts[cutoff:] = 0.0
    return float((group_gains * np.add.reduceat(discounts, starts) / sizes).sum()) / ideal


def _average_precision(scores, relevance):
    relevant, sizes, starts = _rank_groups(scores, relevance)
    total = float(relevant.sum())
    if total == 0.0:
        return 0.0
    before = np.repeat(np.cumsum(relevant) - relevant, sizes)
    share = np.repeat(relevant / sizes, sizes)
    of_others = np.repeat((relevant - 1.0) / np.maximum(1, sizes - 1), sizes)
    ranks = np.arange(1, len(relevance) + 1)
    within = ranks - 1 - np.repeat(starts, sizes)
    return float((share * (before + 1.0 + within * of_others) / ranks).sum()) / total


def _rank_groups(scores, values):
    """Group candidates with equal scores, best first: the sum of their values, their number, ranks before them."""
    order = rank_by_score(scores)
    ranked = scores[order]
    equal = (ranked[1:] == ranked[:-1]) | (np.isnan(ranked[1:]) & np.isnan(ranked[:-1]))
    starts = np.flatnonzero(np.concatenate([[True], ~equal]))
    return np.add.reduceat(values[order], starts), np.diff(starts, append=len(scores)), starts


def _survival(scores, stops, cutoff):
    """Return the chance that a user who stops at candidates with chances ``stops`` passes ranks 0 to ``cutoff``."""
    passes = 1.0 - stops[rank_by_score(scores)]
    _, sizes, starts = _rank_groups(scores, stops)
    passed = np.ones(min(cutoff, len(scores)) + 1)
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if start >= cutoff:
            break
        end = min(start + size, cutoff)
        passed[start + 1 : end + 1] = passed[start] * _mean_products(passes[start : start + size])[: end - start]
    return passed


def _mean_products(factors):
    """Return the mean product of 1, 2, ... of the factors, over all choices of them."""
    means = np.zeros(len(factors) + 1)
    means[0] = 1.0
    for count, factor in enumerate(factors.tolist(), start=1):
        sizes = np.arange(1, count + 1)
        means[sizes] = (means[sizes] * (count - sizes) + means[sizes - 1] * factor * sizes) / count
    return means[1:]
