"""Measurements of the scores themselves on the test lists, for ``report.json``.

Whether they are probabilities, and whether they follow the monotone constraints.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.order import relevance
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.bootstrap import bootstrap_interval, draw_counts, percentile_interval
from listwright.training.evaluation.calibration import (
    ListOutcome,
    are_choices,
    choices,
    log_probabilities,
    without_choice,
)
from listwright.training.evaluation.protocol import check_complete
from listwright.training.first_stage.boosting import Directions
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.reporting.measures.behaviour import rounded, spread

MOST_BINS = 10

DRAWS = 999
"""Draws of choices from the probabilities themselves."""

LISTS_PER_BIN = 5
"""Fewest lists of a bin; a test split of fewer lists gets fewer bins."""

MOST_MOVES = 500
"""Test candidates that are moved per feature, evenly spread over the test rows."""

UNCHANGED = 1e-5
"""A smaller change of a score counts as none: it is float32's rounding."""


def measure_scores(reranker: Reranker, recipe: Recipe, splits: Splits) -> dict[str, object]:
    """Measure whether scores obey the recipe's monotone constraints, and whether they are probabilities.

    Args:
        reranker: Reranker of the sealed bundle.
        recipe, splits: Recipe and splits of the run.
    """
    first = recipe.first_stage
    monotone = violations(reranker, splits, first.monotone) if isinstance(first, LambdaMart) else []
    return {**({"monotone": monotone} if monotone else {}), "calibration": reliability(reranker, splits)}


def reliability(reranker: Reranker, splits: Splits) -> dict[str, object]:
    """Return stated probabilities and observed choices, before and after the bundle's temperatures.

    Args:
        reranker: Reranker of the sealed bundle.
        splits: Splits of the run; the test lists are evaluated.

    Returns:
        ``choices`` (whether labels are choices, by training and validation lists), ``lists`` (of all splits),
        ``without_choice`` of these, ``calibrated`` (whether the bundle has temperatures), and ``rankers``: one entry
        for every ranker with a temperature, see :func:`_of_ranker`; none where no test list has a choice.
    """
    parts = (splits.train, splits.valid, splits.test)
    rankers: list[dict[str, object]] = []
    for ranker, temperature in reranker.manifest.temperatures.items() if are_choices(splits) else ():
        outcomes = choices(reranker, splits.test, ranker)
        if outcomes:
            all_weights = splits.test.query_weights
            weights = (
                np.ones(len(outcomes)) if all_weights is None else all_weights[[choice.query for choice in outcomes]]
            )
            if weights.any():
                rankers.append({"ranker": ranker} | _of_ranker(outcomes, temperature, weights))
    _draw_lists.cache_clear()  # 2,000 numbers a list
    return {
        "choices": are_choices(splits),
        "lists": sum(map(len, parts)),
        "without_choice": sum(map(without_choice, parts)),
        "calibrated": bool(reranker.manifest.temperatures),
        "rankers": rankers,
    }


@lru_cache(maxsize=1)
def _draw_lists(count: int) -> Float[np.ndarray, "samples N"]:
    return draw_counts(count, np.random.default_rng(0))


def _of_ranker(outcomes: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> dict[str, object]:
    """Measure a ranker's calibration, without and with the temperature.

    Beside it: the lists that were looked at; ``top``, the mean score of the first candidate and how often it is chosen
    (equals share the place); and the mean log-probability of the choice, and of ``even``, where all candidates of a
    list are alike.
    """
    before, after = (log_probabilities(outcomes, value) for value in (1.0, temperature))
    low, high = bootstrap_interval(after - before, weights)
    top = [relevance(choice.scores, temperature).max() for choice in outcomes]
    best = [choice.scores == choice.scores.max() for choice in outcomes]
    shares = [float(first[choice.place]) / int(first.sum()) for choice, first in zip(outcomes, best, strict=True)]
    even = [-np.log(len(choice.scores)) for choice in outcomes]

    def mean(values: list[float] | Float[np.ndarray, " N"]) -> float:
        return float(np.average(values, weights=weights))

    return {
        "temperature": temperature,
        "lists": len(outcomes),
        "top": {"score": mean(top), "chosen": mean(shares)},
        "log_probability": {
            "even": mean(even),
            "before": mean(before),
            "after": mean(after),
            "gain": {"mean": mean(after - before), "low": low, "high": high},
        },
        "before": calibration(outcomes, 1.0, weights),
        "after": calibration(outcomes, temperature, weights),
    }


class _Flat(NamedTuple):
    """Every scored candidate of every list: its list, its probability, whether it was chosen, and its bin."""

    query: Int[np.ndarray, " R"]
    probability: Float[np.ndarray, " R"]
    is_choice: Float[np.ndarray, " R"]
    bin: Int[np.ndarray, " R"]


def calibration(outcomes: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> dict[str, object]:
    """Return expected calibration error, and the bins of the diagram.

    Candidates are put into bins by probability, so that each bin holds about as many expected choices as any other;
    those of equal probability share one.

    Definition: ``ECE = sum_bins share of candidates * |mean probability - share chosen|``. Noise adds to it, so it is
    above 0 even if every probability is right. What it is then is drawn :data:`DRAWS` times: one choice of each list
    from its probabilities. ``p`` is the share of draws, the data among them, whose error is at least that of the data.

    Args:
        outcomes: N lists.
        temperature: Temperature of the probabilities.
        weights: ``(N,)`` weights of the lists.

    Returns:
        ``ece``; ``by_chance``, the mean and the 95 % quantile of it if all probabilities are right; ``p``; per bin:
        candidates, mean probability, share chosen and its 95 % interval.
    """
    flat = _flat(outcomes, temperature, weights)
    count, size = int(flat.bin.max()) + 1, len(outcomes)
    sums = np.zeros((3, size, count))  # of each list in each bin: candidates, probability, choices
    for total, values in zip(sums, (np.ones_like(flat.probability), flat.probability, flat.is_choice), strict=True):
        np.add.at(total, (flat.query, flat.bin), values * weights[flat.query])
    counts = _draw_lists(size)
    candidates, stated, was = (np.concatenate([total.sum(axis=0)[None], counts @ total]) for total in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = float(np.abs(stated[0] - was[0]).sum() / candidates[0].sum())
        shares = was / candidates
    chance = _errors_by_chance(flat, stated[0], candidates[0], weights)
    ends = percentile_interval(shares[1:])
    rows = [
        [
            int((flat.bin == b).sum()),
            *rounded([stated[0, b] / candidates[0, b], shares[0, b], ends[0, b], ends[1, b]]),
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
    flat: _Flat,
    stated: Float[np.ndarray, " bins"],
    candidates: Float[np.ndarray, " bins"],
    weights: Float[np.ndarray, " N"],
) -> Float[np.ndarray, " R"]:
    """Return the errors if each list's choice were drawn from its own probabilities; bins stay the same."""
    size, count = len(weights), len(stated)
    first = np.searchsorted(flat.query, np.arange(size))
    whole = np.concatenate([np.cumsum(part) for part in np.split(flat.probability, first[1:])])
    last = np.append(first[1:], len(whole)) - 1
    ends = flat.query + whole / whole[last][flat.query]
    rng, errors = np.random.default_rng(0), np.empty(DRAWS)
    for draw in range(DRAWS):
        rows = np.minimum(np.searchsorted(ends, np.arange(size) + rng.random(size), side="right"), last)
        was = np.bincount(flat.bin[rows], weights, count)
        errors[draw] = np.abs(stated - was).sum() / candidates.sum()
    return errors


def _flat(outcomes: list[ListOutcome], temperature: float, weights: Float[np.ndarray, " N"]) -> _Flat:
    query = np.repeat(np.arange(len(outcomes)), [len(choice.scores) for choice in outcomes])
    stated = np.concatenate([relevance(choice.scores, temperature) for choice in outcomes])
    was = np.concatenate([np.arange(len(choice.scores)) == choice.place for choice in outcomes]).astype(np.float64)
    group = np.unique(stated, return_inverse=True)[1]
    expected = np.bincount(group, stated * weights[query])
    middle = (np.cumsum(expected) - expected / 2.0) / expected.sum()
    most = max(1, min(MOST_BINS, len(outcomes) // LISTS_PER_BIN))
    places = np.minimum((middle * most).astype(np.int64), most - 1)
    return _Flat(query, stated, was, np.unique(places, return_inverse=True)[1][group])


def violations(reranker: Reranker, splits: Splits, monotone: Directions) -> list[dict[str, object]]:
    """Measure what happens to a test candidate whose feature grows, all else equal.

    Definition: each of at most :data:`MOST_MOVES` test candidates, evenly spread, is moved up to a value that is larger
    than its own and that a training row has, drawn with a fixed seed. Candidates without the value, without a larger
    one in training, or below the ranker's cutoff are not moved. A score is wrong if it moves against the constraint by
    more than :data:`UNCHANGED`; a rank if it does at all. To fall below the cutoff is to go down.

    Args:
        reranker: Reranker of the sealed bundle.
        splits: Splits of the run; training rows give the values, test rows the candidates.
        monotone: Constraints; those of 0, and those of features that the schema lacks, are left out.

    Returns:
        One row per feature and ranker (first stage, second stages): ``feature``, ``direction``, ``ranker``, ``moved``,
        and of these the counts ``scores_wrong`` and ``ranks_wrong``.
    """
    schema = splits.train.schema
    rankers = ("first_stage", *(stage.kind for stage in reranker.manifest.second_stages))
    rows: list[dict[str, object]] = []
    for name, direction in monotone:
        if direction == 0 or name not in schema.index:
            continue
        for ranker in rankers:
            moves = _moves(reranker, splits, schema.index[name], ranker)
            rows.append(
                {
                    "feature": name,
                    "direction": direction,
                    "ranker": ranker,
                    "moved": len(moves),
                    "scores_wrong": sum(direction * move.score < -UNCHANGED for move in moves),
                    "ranks_wrong": sum(direction * move.places < 0 for move in moves),
                }
            )
    return rows


class _Move(NamedTuple):
    """The effect of a larger value: change of the score, and places gained."""

    score: float
    places: int


def _moves(reranker: Reranker, splits: Splits, column: int, ranker: str) -> list[_Move]:
    test, rng = splits.test, np.random.default_rng(0)
    trained = np.sort(splits.train.features[:, column])
    trained = trained[~np.isnan(trained)]
    moves = []
    for row in map(int, spread(test.rows, MOST_MOVES)):
        n = int(np.searchsorted(test.offsets, row, side="right")) - 1
        value = test.features[row, column]
        first_larger = int(np.searchsorted(trained, value, side="right"))
        if np.isnan(value) or first_larger == len(trained):
            continue
        larger = trained[rng.integers(first_larger, len(trained))]
        features, place = test.features[test.slice(n)], row - int(test.offsets[n])
        moved = features.copy()
        moved[place, column] = larger
        before, after = (_ranked(reranker, rows, ranker, test.qids[n]) for rows in (features, moved))
        if np.isnan(before.scores[place]):
            continue
        fell = np.isnan(after.scores[place])
        change = -np.inf if fell else float(after.scores[place] - before.scores[place])
        moves.append(_Move(change, int(before.ranks[place] - after.ranks[place])))
    return moves


def _ranked(reranker: Reranker, features: Float[np.ndarray, "L D"], ranker: str, qid: str) -> Ranking:
    return check_complete(reranker.rerank(CandidateList(features), strategy=ranker), qid)
