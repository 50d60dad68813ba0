"""One part through the bundle: what the service would answer, as columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ScoringError
from listwright.training.data.memory import asked

COLUMNS = ("rank", "score", "first_stage_score", "strategy")
"""Columns that scoring adds, before a prefix."""


def ranked(rows: pl.DataFrame, loaded: Bundle, qid: str, *, strategy: str = "auto", prefix: str = "") -> pl.DataFrame:
    """Rows with four more columns: ``rank`` from 1, ``score``, ``first_stage_score``, and the ``strategy`` that ranked.

    Args:
        rows: whole lists.
        loaded: the bundle.
        qid: column with the query id.
        strategy: as a request says it.
        prefix: of the added columns.

    Returns:
        The rows in their order. Scores are those of ``POST /rerank``, to the bit: ``score`` is the candidate's share of
        its list, null for a candidate that the second stage does not score.

    Raises:
        SchemaMismatchError: if a feature is not there, or text stands where numbers were fitted.
        UnknownStrategyError: if the bundle has no such strategy.
        ScoringError: if a stage fails: an earlier stage's answer must not pass for its.
    """
    schema = loaded.manifest.feature_schema
    features = rows.select(name for name in schema.names if name in rows.columns)
    data, order = asked(features, rows[qid], schema, schema.names)
    rank = np.empty(data.rows, dtype=np.uint32)
    score, first = np.empty((2, data.rows))
    strategies = np.empty(data.rows, dtype=object)
    for n, (candidates, _) in enumerate(data.lists()):
        ranking = loaded.reranker.rerank(CandidateList(candidates), strategy=strategy)
        if ranking.degraded:
            raise ScoringError(f"query {data.qids[n]}: {ranking.reason}")
        at = order[data.slice(n)]
        rank[at], score[at], first[at] = ranking.ranks, ranking.relevance, ranking.first_stage_scores
        strategies[at] = ranking.route.strategy
    made = (
        pl.Series(rank),
        pl.Series(score, nan_to_null=True),
        pl.Series(first, nan_to_null=True),
        pl.Series(strategies, dtype=pl.String),
    )
    return rows.with_columns(column.alias(prefix + name) for name, column in zip(COLUMNS, made, strict=True))
