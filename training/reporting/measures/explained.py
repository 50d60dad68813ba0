"""Importance of every feature for the ranking of the test queries, and three queries explained.

Those three are where the second stage helped most, where it hurt most, and one at random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import ListwrightError
from listwright.ranking.explaining.explain import explain
from listwright.ranking.explaining.explanation import to_json
from listwright.ranking.first_stage import model_columns, read_booster
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright.training.evaluation.protocol import Evaluation, check_complete
from listwright.training.reporting.measures.behaviour import rounded, spread

MOST_CANDIDATES = 200
"""Longer lists are explained only where all are longer, and then the shortest."""

BUDGET = 1024
"""Changed candidates that the second stage scores per query: all coalitions of 10 features."""

MOST_SECONDS = 30.0
"""Seconds for one query's explanation; later parts are left out."""

MOST_SHOWN = 5
"""Contributions shown of each stage, the largest ones."""

MOST_FEATURES = 20
"""Features whose importance is reported. Where split gain is known, only those with the largest are shuffled."""

CANDIDATES_SHUFFLED = 150_000
"""Candidates that are ranked with a shuffled feature, over all features."""

MOST_WITHOUT_GAIN = 200
"""Features of a first stage that is not LightGBM beyond which none is shuffled: it would take too long."""

FEWEST_SHUFFLED = 20
"""Queries that are ranked with each shuffled feature, at least."""

LIST_COSTS = 30
"""Candidates that take as long to rank as a list does beside its candidates."""

CUTOFF = 10
"""Cutoff of the NDCG that a shuffled feature costs."""


def explain_queries(reranker: Reranker, test: Dataset, evaluation: Evaluation, metric: str) -> dict[str, object]:
    """Explain queries for ``report.json``: the same values at every run, unless :data:`MOST_SECONDS` cuts one short.

    Of each query one candidate is explained: the relevant one that the second stage moved furthest up (where it hurt:
    down). At random, and where no candidate is relevant, it is the first of the answer.

    Args:
        reranker: Reranker of the sealed bundle.
        test: Split that was evaluated.
        evaluation: Evaluation of all its queries.
        metric: Metric of the gains.
    """
    ranker = evaluation.generalist
    gains = evaluation.values[ranker][metric] - evaluation.values["first_stage"][metric]
    short = test.lengths <= max(MOST_CANDIDATES, int(test.lengths.min()))
    queries = [
        _query(reranker, test, ranker, why, n, float(np.nan_to_num(gains[n])))
        for why, n in _picked(gains, short, ranker)
    ]
    return {"explained": {"metric": metric, "ranker": ranker, "queries": queries}}


def measure_importance(reranker: Reranker, model: str | bytes | None, test: Dataset) -> dict[str, object]:
    """Measure the importance of features for ``report.json``; the same values at every run.

    There are two measures. Split gain is what the splits on a column add to LightGBM's objective on the training rows.
    Permutation importance (Breiman, Machine Learning 45, 2001) is the NDCG@10 that the test queries lose where a
    feature's values are shuffled: among the candidates of each list, or among the lists if it varies in fewer than half
    of those of two candidates or more. Shuffled among candidates, such a feature would change in a minority of lists,
    and one cell would decide what is measured. The bundle ranks the shuffled lists, by its default. So the loss holds
    what the feature does through its list-relative columns and through the second stage.

    Args:
        reranker: Reranker of the sealed bundle.
        model: LightGBM's text of its first stage; another one has no split gain.
        test: Split that was evaluated.

    Returns:
        ``queries`` that were ranked, ``features`` of the bundle, and ``rows``: of a feature its share of all split
        gain (None without LightGBM), its list-relative columns with their shares, and the mean loss with its 95 %
        interval. The row with the largest loss is first.
    """
    schema = reranker.manifest.feature_schema
    own, relative = _compute_split_gains(reranker, model)
    order = np.arange(len(schema))
    if own is not None:
        total = own + np.array([sum(shares.values()) for shares in relative])
        order = np.argsort(-total, kind="stable")
        order = order[: int(np.count_nonzero(total))][:MOST_FEATURES]
    elif len(schema) > MOST_WITHOUT_GAIN:
        order = order[:0]
    cost = max(1, len(order)) * (float(test.lengths.mean()) + LIST_COSTS)
    queries = spread(len(test), max(FEWEST_SHUFFLED, int(CANDIDATES_SHUFFLED / cost)))
    losses = _measure_losses(reranker, test, queries.tolist(), order.tolist())
    of_all = test.query_weights
    weights = None if of_all is None or not of_all[queries].any() else of_all[queries]
    means = [float(np.average(loss, weights=weights)) for loss in losses]
    rows = [
        [
            schema.names[d],
            None if own is None else rounded([own[d]])[0],
            {kind: rounded([share])[0] for kind, share in relative[d].items()},
            *rounded([means[n], *bootstrap_interval(losses[n], weights)]),
        ]
        for n, d in sorted(enumerate(order.tolist()), key=lambda pair: -means[pair[0]])[:MOST_FEATURES]
    ]
    columns = ["feature", "split_gain", "relative", "ndcg_lost", "low", "high"]
    return {"importance": {"features": len(schema), "queries": len(queries), "columns": columns, "rows": rows}}


def _compute_split_gains(
    reranker: Reranker, model: str | bytes | None
) -> tuple[Float[np.ndarray, " D"] | None, list[dict[str, float]]]:
    """Return shares of LightGBM's split gain, else None: of each feature, and of its list-relative columns by kind."""
    schema, columns = reranker.manifest.feature_schema, reranker.manifest.relative
    relative: list[dict[str, float]] = [{} for _ in schema.names]
    if not isinstance(model, str):
        return None, relative
    entry, widened = reranker.manifest.first_stage, schema
    if reranker.relative is not None and entry.kind == "lightgbm" and entry.relative:
        widened = reranker.relative.schema
    booster = read_booster(model)
    gains = np.zeros(len(widened))
    of_model = np.asarray(booster.feature_importance("gain"), dtype=np.float64)
    np.add.at(gains, model_columns(booster, widened) or np.arange(len(widened)), of_model)
    gains /= gains.sum() or 1.0
    for column, share in zip(columns, gains[len(schema) :].tolist(), strict=False):
        relative[schema.index[column.feature]][column.label] = share
    return gains[: len(schema)], relative


def _measure_losses(
    reranker: Reranker, test: Dataset, queries: Sequence[int], columns: Sequence[int]
) -> list[Float[np.ndarray, " M"]]:
    """Return for every column the ``(M,)`` NDCG that each query loses where the column is shuffled."""
    rng = np.random.default_rng(0)
    sample = test.select(queries)
    lists = [features for features, _ in sample.lists()]
    places = [rng.permutation(len(rows)) for rows in lists]
    longer = [rows for rows in lists if len(rows) > 1]
    others = rng.permutation(len(lists))

    def keys_of(n: int, rows: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        return check_complete(reranker.rerank(CandidateList(rows)), test.qids[queries[n]]).sort_keys

    whole, losses = [keys_of(n, rows) for n, rows in enumerate(lists)], list[np.ndarray]()
    ndcg = QueryNdcg(sample.labels, sample.offsets, cutoff=CUTOFF, gains=test.gains)
    for column in columns:
        varying = sum(not np.array_equal(rows[1:, column], rows[:-1, column], equal_nan=True) for rows in longer)
        among_lists = 2 * varying < len(longer)
        keys = whole.copy()
        for n, rows in enumerate(lists):
            values = np.full(len(rows), lists[others[n]][0, column]) if among_lists else rows[places[n], column]
            if not np.array_equal(values, rows[:, column], equal_nan=True):
                changed = rows.copy()
                changed[:, column] = values
                keys[n] = keys_of(n, changed)
        losses.append(ndcg.of(np.concatenate(whole)) - ndcg.of(np.concatenate(keys)))
    return losses


def _picked(gains: Float[np.ndarray, " N"], short: Bool[np.ndarray, " N"], ranker: str) -> Iterator[tuple[str, int]]:
    eligible = np.flatnonzero(short & ~np.isnan(gains))
    if ranker != "first_stage" and len(eligible):
        best, worst = (int(eligible[pick(gains[eligible])]) for pick in (np.argmax, np.argmin))
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
    """Return the largest contributions of a stage, rounded."""
    if stage is None:
        return None
    largest = [part for part in stage["contributions"][:MOST_SHOWN] if part["contribution"] != 0.0]
    return {"contributions": list(map(_contribution, largest))}


def _contribution(part: dict[str, Any]) -> dict[str, object]:
    contribution, error = rounded([part["contribution"], part["standard_error"] or 0.0])
    return part | {"contribution": contribution, "standard_error": None if part["standard_error"] is None else error}
