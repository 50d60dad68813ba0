"""Three test queries, explained: where the second stage helped most, where it hurt most, and one at random."""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import ListwrightError
from listwright.ranking.explaining.explain import explain
from listwright.ranking.explaining.explanation import to_json
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.evaluate import Evaluation
from listwright.training.reporting.measures.behaviour import rounded

MOST_CANDIDATES = 200
"""Longer lists are explained only where all are longer, and then the shortest."""

BUDGET = 1024
"""Changed candidates that the second stage scores per query: all coalitions of 10 features."""

MOST_SECONDS = 30.0
"""Seconds for one query's explanation; later parts are left out."""

MOST_SHOWN = 5
"""Contributions shown of each stage, the largest ones."""


def explained(reranker: Reranker, test: Dataset, evaluation: Evaluation, metric: str) -> dict[str, object]:
    """Explain queries for ``report.json``: the same values at every run, unless :data:`MOST_SECONDS` cuts one short.

    Of each query one candidate is explained: the relevant one that the second stage moved furthest up (where it hurt:
    down). At random, and where no candidate is relevant, it is the first of the answer.

    Args:
        reranker: of the sealed bundle.
        test: the split that was evaluated.
        evaluation: of all its queries.
        metric: what a query gains is measured by.
    """
    ranker = evaluation.generalist
    gains = evaluation.values[ranker][metric] - evaluation.values["first_stage"][metric]
    short = test.lengths <= max(MOST_CANDIDATES, int(test.lengths.min()))
    queries = [
        _query(reranker, test, ranker, why, n, float(np.nan_to_num(gains[n])))
        for why, n in _picked(gains, short, ranker)
    ]
    return {"explained": {"metric": metric, "ranker": ranker, "queries": queries}}


def _picked(gains: Float[np.ndarray, " N"], short: Bool[np.ndarray, " N"], ranker: str) -> Iterator[tuple[str, int]]:
    counted = np.flatnonzero(short & ~np.isnan(gains))
    if ranker != "first_stage" and len(counted):
        best, worst = (int(counted[pick(gains[counted])]) for pick in (np.argmax, np.argmin))
        if gains[best] > 0.0:
            yield "helped", best
        if gains[worst] < 0.0:
            yield "hurt", worst
    yield "random", int(np.random.default_rng(0).choice(np.flatnonzero(short)))


def _query(reranker: Reranker, test: Dataset, ranker: str, why: str, n: int, gain: float) -> dict[str, object]:
    rows = test.slice(n)
    candidates, labels = CandidateList(test.features[rows]), test.labels[rows]
    about: dict[str, object] = {"why": why, "qid": test.qids[n], "length": len(labels), "gain": rounded([gain])[0]}
    try:
        ranking = reranker.rerank(candidates, strategy=ranker)
        before = reranker.rerank(candidates, strategy="first_stage")
        candidate = _candidate(why, labels, before, ranking)
        deadline = Deadline(perf_counter() + MOST_SECONDS)
        explanation = explain(
            reranker, candidates, candidate, strategy=ranker, budget=BUDGET, deadline=deadline, ranking=ranking
        )
    except ListwrightError as error:  # a fit of hours is worth more than this part of its page
        return about | {"fault": str(error)}
    (parts,) = json.loads(to_json([explanation]))
    passing = parts["passing"]
    return about | {
        "candidate": candidate,
        "label": int(labels[candidate]),
        "rank_before": int(before.ranks[candidate]),
        "rank": int(ranking.ranks[candidate]),
        "first_stage": _stage(parts["first_stage"]),
        "second_stage": _stage(parts["second_stage"]),
        "moves": len(parts["moves"]),
        "passing": None if passing is None else {"one": passing["one"], "two": passing["two"]},
        "incomplete": parts["incomplete"],
        "faults": parts["faults"],
    }


def _candidate(why: str, labels: Int[np.ndarray, " L"], before: Ranking, ranking: Ranking) -> int:
    relevant = np.flatnonzero(labels > 0)
    if why == "random" or len(relevant) == 0:
        return int(ranking.order[0])
    gained = (before.ranks - ranking.ranks)[relevant]
    return int(relevant[np.argmax(gained if why == "helped" else -gained)])


def _stage(stage: dict[str, Any] | None) -> dict[str, object] | None:
    """Return a stage's figures, rounded, with the largest contributions only."""
    if stage is None:
        return None
    score, reference = rounded([stage["score"], stage["reference_score"]])
    return {
        "ranker": stage["ranker"],
        "score": score,
        "reference_score": reference,
        "exact": stage["exact"],
        "contributions": [
            _contribution(one) for one in stage["contributions"][:MOST_SHOWN] if one["contribution"] != 0.0
        ],
    }


def _contribution(one: dict[str, Any]) -> dict[str, object]:
    contribution, error = rounded([one["contribution"], one["standard_error"] or 0.0])
    return one | {
        "contribution": contribution,
        "standard_error": None if one["standard_error"] is None else error,
    }
