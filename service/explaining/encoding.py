"""From explanations to the JSON of the contract, in the process that explains: the worker passes its bytes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from pydantic_core import to_json

from listwright.ranking.explaining.explanation import (
    Against,
    Anomaly,
    Change,
    Contribution,
    Explanation,
    Passing,
    RouterEstimate,
    StageExplanation,
)

Fields = dict[str, Any]


class Names:
    """How an answer names candidates.

    Args:
        ids: of all; None where they have none.
        ranks: ``(L,)`` 1-based, in input order.
    """

    def __init__(self, ids: Sequence[str] | None, ranks: Int[np.ndarray, " L"]) -> None:
        self._ids, self._ranks = ids, ranks

    def of(self, index: int) -> Fields:
        """A candidate by index and id."""
        return {"index": index, "id": None if self._ids is None else self._ids[index]}

    def placed(self, index: int) -> Fields:
        """The same with its rank."""
        return {**self.of(index), "rank": int(self._ranks[index])}


def encoded(explanations: Sequence[Explanation], ids: Sequence[str] | None) -> bytes:
    """The array of the contract: one object of :class:`CandidateExplanation` for each, in the given order.

    NaN becomes null.
    """
    content = [_fields(one, Names(ids, one.ranking.ranks)) for one in explanations]
    return to_json(content, inf_nan_mode="null")


def _fields(one: Explanation, names: Names) -> Fields:
    return {
        "candidate": names.placed(one.candidate),
        "first_stage": _stage(one.first_stage),
        "second_stage": _stage(one.second_stage),
        "passing": _passing(one.passing, names),
        "moves": [
            {**names.of(move.candidate), "rank": move.rank, "rank_without": move.rank_without} for move in one.moves
        ],
        "anomaly": _anomaly(one.anomaly),
        "router": _router(one.router),
        "against": _against(one.against, names),
        "incomplete": list(one.incomplete),
        "faults": dict(one.faults),
    }


def _stage(stage: StageExplanation | None) -> Fields | None:
    if stage is None:
        return None
    return {
        "ranker": stage.ranker,
        "score": stage.score,
        "reference_score": stage.reference_score,
        "exact": stage.exact,
        "evaluations": stage.evaluations,
        "budget_spent": stage.budget_spent,
        "contributions": _contributions(stage.contributions),
    }


def _contributions(contributions: Sequence[Contribution]) -> list[Fields]:
    return [
        {
            "feature": one.feature,
            "value": one.value,
            "reference": one.reference,
            "contribution": one.contribution,
            "standard_error": one.standard_error,
        }
        for one in contributions
    ]


def _passing(passing: Passing | None, names: Names) -> Fields | None:
    if passing is None:
        return None
    return {
        "above": names.placed(passing.above),
        "one": _changes(passing.one),
        "two": _changes(passing.two),
        "tried": passing.tried,
        "untried": passing.untried,
    }


def _changes(changes: Sequence[Change] | None) -> list[Fields] | None:
    if changes is None:
        return None
    return [{"feature": one.feature, "from": one.value_from, "to": one.value_to} for one in changes]


def _anomaly(anomaly: Anomaly | None) -> Fields | None:
    if anomaly is None:
        return None
    return {
        "score": anomaly.score,
        "training_quantiles": dict(anomaly.training_quantiles),
        "features": [
            {"feature": one.feature, "value": one.value, "anomaly_without": one.anomaly_without}
            for one in anomaly.features
        ],
    }


def _router(router: RouterEstimate | None) -> Fields | None:
    if router is None:
        return None
    return {"probabilities": router.probabilities, "gains": router.gains, "margin": router.margin}


def _against(against: Against | None, names: Names) -> Fields | None:
    if against is None:
        return None
    return {
        **names.of(against.candidate),
        "first_stage": _contributions(against.first_stage),
        "second_stage": _contributions(against.second_stage),
    }
