"""Whether scores are probabilities: how often candidates of a score are chosen, on the test lists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.metrics import hit
from listwright.ranking.order import relevance
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.bootstrap import RESAMPLES, interval
from listwright.training.evaluation.calibration import (
    ListOutcome,
    are_choices,
    choices,
    log_probabilities,
    without_choice,
)
from listwright.training.evaluation.evaluate import bootstrap_interval
from listwright.training.reporting.measures.behaviour import rounded

MOST_BINS = 10
DRAWS = 999
"""Of choices from the probabilities themselves."""

LISTS_PER_BIN = 5
"""Of a bin; a test split of fewer lists gets fewer bins."""


def reliability(reranker: Reranker, splits: Splits) -> dict[str, object]:
    """What a score says and what is chosen, before and after the bundle's temperatures.

    Args:
        reranker: of the sealed bundle.
        splits: of the run; the test lists are looked at.

    Returns:
        ``choices`` (whether labels are choices), ``lists`` (of all splits), ``without_choice`` of these, and
        ``rankers``: one entry for every ranker with a temperature, see :func:`_of_ranker`.
    """
    parts = (splits.train, splits.valid, splits.test)
    rankers: list[dict[str, object]] = []
    for ranker, temperature in reranker.manifest.temperatures.items() if are_choices(splits) else ():
        found = choices(reranker, splits.test, ranker)
        if found:
            all_weights = splits.test.query_weights
            weights = np.ones(len(found)) if all_weights is None else all_weights[[choice.query for choice in found]]
            if weights.any():
                rankers.append({"ranker": ranker} | _of_ranker(found, temperature, weights))
    return {
        "choices": are_choices(splits),
        "lists": sum(map(len, parts)),
        "without_choice": sum(map(without_choice, parts)),
        "rankers": rankers,
    }


def _of_ranker(found: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> dict[str, object]:
    """Lists looked at, ``top`` (mean score of the first candidate, and how often it is chosen; equals share the place),
    the mean log-probability of the choice (``even``: if all candidates of a list were alike), and calibration without
    and with the temperature.
    """
    before, after = (log_probabilities(found, value) for value in (1.0, temperature))
    low, high = bootstrap_interval(after - before, weights)
    top = [relevance(choice.scores, temperature).max() for choice in found]
    chosen = [
        hit(choice.scores, np.eye(1, len(choice.scores), choice.chosen, dtype=int)[0], cutoff=1) for choice in found
    ]
    even = [-np.log(len(choice.scores)) for choice in found]

    def mean(values: list[float] | Float[np.ndarray, " N"]) -> float:
        return float(np.average(values, weights=weights))

    return {
        "temperature": temperature,
        "lists": len(found),
        "top": {"score": mean(top), "chosen": mean(chosen)},
        "log_probability": {
            "even": mean(even),
            "before": mean(before),
            "after": mean(after),
            "gain": {"mean": mean(after - before), "low": low, "high": high},
        },
        "before": calibration(found, 1.0, weights),
        "after": calibration(found, temperature, weights),
    }


class _Flat(NamedTuple):
    """Every scored candidate of every list: its list, its probability, whether it was chosen, and its bin."""

    query: Int[np.ndarray, " R"]
    said: Float[np.ndarray, " R"]
    was: Float[np.ndarray, " R"]
    bin: Int[np.ndarray, " R"]


def calibration(found: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> dict[str, object]:
    """Expected calibration error, and the bins of the diagram.

    Candidates are put into bins by probability, so that each bin holds about as many expected choices as any other;
    those of equal probability share one.

    Definition: ``ECE = sum_bins share of candidates * |mean probability - share chosen|``. Noise adds to it, so it is
    above 0 even if every probability is right. What it is then is drawn :data:`DRAWS` times: one choice of each list
    from its probabilities. ``p`` is the share of draws, the data among them, whose error is at least that of the data.

    Args:
        found: N lists.
        temperature: of the probabilities.
        weights: ``(N,)`` of the lists.

    Returns:
        ``ece``; ``by_chance``, the mean and the 95 % quantile of it if all probabilities are right; ``p``; per bin:
        candidates, mean probability, share chosen and its 95 % interval.
    """
    flat = _flat(found, temperature, weights)
    count, size = int(flat.bin.max()) + 1, len(found)
    sums = np.zeros((3, size, count))  # of each list in each bin: candidates, probability, choices
    for total, values in zip(sums, (np.ones_like(flat.said), flat.said, flat.was), strict=True):
        np.add.at(total, (flat.query, flat.bin), values * weights[flat.query])
    drawn = np.random.default_rng(0).multinomial(size, np.full(size, 1.0 / size), size=RESAMPLES).astype(np.float64)
    candidates, said, was = (np.concatenate([total.sum(axis=0)[None], drawn @ total]) for total in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = float(np.abs(said[0] - was[0]).sum() / candidates[0].sum())
        shares = was / candidates
    chance = _errors_by_chance(flat, said[0], candidates[0], weights)
    ends = interval(shares[1:])
    rows = [
        [
            int((flat.bin == b).sum()),
            *rounded([said[0, b] / candidates[0, b], shares[0, b], ends[0, b], ends[1, b]]),
        ]
        for b in range(count)
        if candidates[0, b] > 0.0
    ]
    return {
        "ece": error,
        "by_chance": {"mean": float(chance.mean()), "high": float(np.quantile(chance, 0.95))},
        "p": float((1 + np.count_nonzero(chance >= error * (1.0 - 1e-9))) / (1 + DRAWS)),
        "columns": ["candidates", "probability", "chosen", "low", "high"],
        "bins": rows,
    }


def _errors_by_chance(
    flat: _Flat, said: Float[np.ndarray, " B"], candidates: Float[np.ndarray, " B"], weights: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " R"]:
    """Errors where each list's choice is drawn from its own probabilities: bins and probabilities stay as they are."""
    size, count = len(weights), len(said)
    first = np.searchsorted(flat.query, np.arange(size))
    whole = np.concatenate([np.cumsum(part) for part in np.split(flat.said, first[1:])])
    last = np.append(first[1:], len(whole)) - 1
    ends = flat.query + whole / whole[last][flat.query]
    rng, errors = np.random.default_rng(0), np.empty(DRAWS)
    for draw in range(DRAWS):
        rows = np.minimum(np.searchsorted(ends, np.arange(size) + rng.random(size), side="right"), last)
        was = np.bincount(flat.bin[rows], weights, count)
        errors[draw] = np.abs(said - was).sum() / candidates.sum()
    return errors


def _flat(found: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> _Flat:
    query = np.repeat(np.arange(len(found)), [len(choice.scores) for choice in found])
    said = np.concatenate([relevance(choice.scores, temperature) for choice in found])
    was = np.concatenate([np.arange(len(choice.scores)) == choice.chosen for choice in found]).astype(np.float64)
    group = np.unique(said, return_inverse=True)[1]
    expected = np.bincount(group, said * weights[query])
    middle = (np.cumsum(expected) - expected / 2.0) / expected.sum()
    most = max(1, min(MOST_BINS, len(found) // LISTS_PER_BIN))
    places = np.minimum((middle * most).astype(np.int64), most - 1)
    return _Flat(query, said, was, np.unique(places, return_inverse=True)[1][group])
