"""Measurements of the scores themselves on the test lists, for ``report.json``.

Whether they are probabilities, and whether they follow the monotone constraints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.probability import Calibration
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright.training.evaluation.calibration import are_choices, without_choice
from listwright.training.evaluation.protocol import check_complete
from listwright.training.evaluation.reliability import StatedProbabilities
from listwright.training.first_stage.boosting import Directions
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.reporting.measures.behaviour import spread

MOST_MOVES = 500
"""Test candidates that are moved per feature, evenly spread over the test rows."""

UNDIVIDED = "undivided"
"""Name of the softmax of the answering ranker's scores without a temperature."""

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
    facts: dict[str, object] = {"monotone": monotone} if monotone else {}
    parts = (splits.train, splits.valid, splits.test)
    facts["calibration"] = {
        "choices": are_choices(splits),
        "lists": sum(map(len, parts)),
        "without_choice": sum(map(without_choice, parts)),
    }
    if reranker.calibration is not None:
        facts["probability"] = reliability(reranker, splits.test)
    return facts


def reliability(reranker: Reranker, test: Dataset) -> dict[str, object]:
    """Measure the probabilities that a bundle states, of being relevant or chosen, beside two rivals.

    Args:
        reranker: Reranker of the sealed bundle, which has a calibration.
        test: Test lists.

    Returns:
        ``lists``, the number of validation lists of the calibration, None for one of choices; ``answering``, the
        strategy that answers where a request names none, if it is calibrated, or the first that is; ``rival``, the
        pointwise model, or the softmax without a temperature where labels are choices; and ``stated``, one entry for
        the same probability of all candidates, for the rival, and for each strategy: its divisor ``temperature``,
        ``log_loss``, ``over_rival``, the mean difference of the log loss with its 95 % interval, and
        :meth:`listwright.training.evaluation.reliability.StatedProbabilities.facts`.
    """
    stage, calibration = reranker.manifest.probability, reranker.calibration
    assert calibration is not None
    divisors = calibration.temperatures
    answering = reranker.manifest.strategy if reranker.manifest.strategy in divisors else next(iter(divisors))

    def stated_by(probabilities: Callable[[Float[np.ndarray, "L D"]], Float[np.ndarray, " L"] | None]) -> Any:
        return replace(base, probability=np.concatenate([probabilities(features) for features, _ in test.lists()]))

    def by_strategy(features: Float[np.ndarray, "L D"], strategy: str) -> Float[np.ndarray, " L"] | None:
        return reranker.rerank(CandidateList(features), strategy=strategy, probability=True).probability

    def as_answered(features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"] | None:
        ranking = reranker.rerank(CandidateList(features), strategy=answering)
        undivided = Calibration(dict.fromkeys(divisors, 1.0))
        return undivided.probabilities(features, ranking.scores, ranking.first_stage_scores, answering)

    of_lists = test.query_weights
    if of_lists is None or not of_lists.any():
        of_lists = np.ones(len(test))
    rates = 1.0 / test.lengths if stage is None else np.full(len(test), stage.mean)
    base = StatedProbabilities(test.lengths, np.repeat(rates, test.lengths), test.labels > 0, of_lists)
    rival, rival_name = (as_answered, UNDIVIDED) if stage is None else (calibration.pointwise, "pointwise")
    stated = {"base_rate": base, rival_name: stated_by(rival)}
    stated |= {name: stated_by(partial(by_strategy, strategy=name)) for name in divisors}
    weights, of_rival = base.candidate_weights, stated[rival_name].log_losses()
    rows: list[dict[str, object]] = []
    for name, of_name in stated.items():
        losses = of_name.log_losses()
        low, high = bootstrap_interval(losses - of_rival, weights)
        difference = {"mean": float(np.average(losses - of_rival, weights=weights)), "low": low, "high": high}
        loss = {"log_loss": float(np.average(losses, weights=weights)), "over_rival": difference}
        rows.append({"by": name, "temperature": divisors.get(name), **loss, **of_name.facts()})
    lists = None if stage is None else stage.lists
    return {"lists": lists, "answering": answering, "rival": rival_name, "stated": rows}


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
