"""Temperatures that make scores the probabilities of being chosen, where labels are choices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.protocol import check_complete

FEWEST_LISTS = 20
"""Fewest validation lists with a choice among scored candidates that a temperature is fitted on."""

FOLDS = 5
"""Parts of the validation lists, each predicted by a temperature fitted on the others."""

SAME = float(np.finfo(np.float32).eps)
"""Scores whose standard deviation is this part of their size, or less, are equal but for rounding."""

LOWEST, HIGHEST = 0.01, 100.0
"""Bounds of a temperature, in standard deviations of the scores within a list."""


class ListOutcome(NamedTuple):
    """One list with a choice.

    Args:
        query: Number of the list in the data.
        scores: ``(C,)`` of the candidates that the ranker scored; two or more.
        place: Place of the one relevant candidate among these.
    """

    query: int
    scores: Float[np.ndarray, " C"]
    place: int


def without_choice(data: Dataset) -> int:
    """Count the lists that do not have exactly one relevant candidate (label > 0)."""
    return sum(int((labels > 0).sum()) != 1 for labels in data.label_lists())


def are_choices(splits: Splits) -> bool:
    """Return whether every training and validation list has exactly one relevant candidate: the one that was chosen.

    Test labels decide nothing about a bundle.
    """
    return not any(without_choice(part) for part in (splits.train, splits.valid))


def choices(reranker: Reranker, data: Dataset, strategy: str) -> list[ListOutcome]:
    """Return the lists in which one of several scored candidates was chosen.

    Convention: a list without a choice, or whose choice stands below the ranker's cutoff, is left out.

    Raises:
        ScoringError: if a ranking is degraded.
    """
    outcomes = []
    for n, (features, labels) in enumerate(data.lists()):
        scores = check_complete(reranker.rerank(CandidateList(features), strategy=strategy), data.qids[n]).scores
        scored = np.flatnonzero(~np.isnan(scores))
        places = np.flatnonzero(labels[scored] > 0)
        if len(scored) > 1 and len(places) == 1:
            outcomes.append(ListOutcome(n, scores[scored], int(places[0])))
    return outcomes


def log_probabilities(outcomes: list[ListOutcome], temperature: float) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` log-probability of the choice, under the softmax of each list's scores over the temperature."""
    values = np.empty(len(outcomes))
    for n, choice in enumerate(outcomes):
        scaled = (choice.scores - choice.scores.max()) / temperature
        values[n] = scaled[choice.place] - np.log(np.exp(scaled).sum())
    return values


def temperature_of(outcomes: list[ListOutcome], weights: Float[np.ndarray, " N"] | None = None) -> float | None:
    """Fit the temperature under which the choices are most likely.

    Definition: ``T = argmax sum_n w_n log softmax(s_n / T)_chosen``. It is concave in 1/T, so there is one optimum,
    looked for between :data:`LOWEST` and :data:`HIGHEST`. T is 1 instead where temperatures fitted on
    ``1 - 1 / FOLDS`` of the lists do not raise the mean log-probability of the choices of the others above that at 1.

    Args:
        outcomes: N lists.
        weights: Weight of each list; None if all are alike.

    Returns:
        None if there are fewer than :data:`FEWEST_LISTS` lists, or no list has scores that float32 tells apart: nothing
        is known then, and the service divides by 1.
    """
    if len(outcomes) < FEWEST_LISTS:
        return None
    fitted = _likeliest(outcomes, weights)
    return fitted if fitted is None or _gain_out_of_fold(outcomes, weights) > 0.0 else 1.0


def _gain_out_of_fold(outcomes: list[ListOutcome], weights: Float[np.ndarray, " N"] | None) -> float:
    """Return the mean log-probability that choices gain over T = 1, by temperatures fitted without their fold."""
    fold_of = np.random.default_rng(0).permutation(len(outcomes)) % FOLDS
    gains = np.zeros(len(outcomes))
    for fold in range(FOLDS):
        inside, outside = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        fitted = _likeliest([outcomes[n] for n in inside], None if weights is None else weights[inside])
        held_out = [outcomes[n] for n in outside]
        if fitted is not None:
            gains[outside] = log_probabilities(held_out, fitted) - log_probabilities(held_out, 1.0)
    return float(np.average(gains, weights=weights))


def _likeliest(outcomes: list[ListOutcome], weights: Float[np.ndarray, " N"] | None) -> float | None:
    """Return the temperature of the largest likelihood; None where no list that counts has different scores."""
    if weights is not None and not weights.any():
        return None
    scale = float(np.sqrt(np.mean([choice.scores.var() for choice in outcomes])))
    if scale <= SAME * max(float(np.abs(choice.scores).max()) for choice in outcomes):
        return None

    def unlikely(log_temperature: float) -> float:
        return -float(np.average(log_probabilities(outcomes, scale * float(np.exp(log_temperature))), weights=weights))

    best = minimize_scalar(
        unlikely, bounds=(np.log(LOWEST), np.log(HIGHEST)), method="bounded", options={"xatol": 1e-6}
    )
    return scale * float(np.exp(best.x))


def temperatures(reranker: Reranker, splits: Splits) -> dict[str, float]:
    """Fit the temperature of every strategy of a bundle on the validation queries, by the bundle's own scores.

    Args:
        reranker: Reranker over the exported files.
        splits: Splits of the run.

    Returns:
        Empty where labels are no choices; strategies without a temperature, see :func:`temperature_of`, are left out.
    """
    if not are_choices(splits):
        return {}
    fitted, weights = {}, splits.valid.query_weights
    for strategy in reranker.manifest.strategies:
        outcomes = choices(reranker, splits.valid, strategy)
        sample_weights = None if weights is None else weights[[choice.query for choice in outcomes]]
        temperature = temperature_of(outcomes, sample_weights)
        if temperature is not None:
            fitted[strategy] = temperature
    return fitted
