"""The heart: first stage, second stage, order. The only code that scores, in training and in serving alike."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Float

from ranking.candidates import CandidateList, Ranking, Route, Stage
from ranking.errors import SchemaMismatchError, ScoringError, UnknownStrategyError
from ranking.features import FeatureSchema
from ranking.first_stage import FirstStage
from ranking.manifest import Manifest
from ranking.order import rank_by_score
from ranking.scorers import Scorer


class Reranker:
    """Ranks one query's candidates with the rankers of one bundle. Holds no state between calls; threads may share it.

    Args:
        manifest: of the bundle.
        first_stage: scores every candidate.
        second_stage: rescores the best ``manifest.second_stage.cutoff`` of them as one list.
    """

    def __init__(self, manifest: Manifest, first_stage: FirstStage, second_stage: Scorer) -> None:
        self.manifest = manifest
        self._first_stage = first_stage
        self._second_stage = second_stage

    @property
    def schema(self) -> FeatureSchema:
        """The columns that candidates must have."""
        return self.manifest.feature_schema

    def rerank(self, candidates: CandidateList, *, strategy: str = "auto") -> Ranking:
        """Order the candidates, best first.

        The first stage scores all; the second stage rescores the top C of them (chosen by first-stage score, equal
        scores in input order) and puts them in front; the others follow in first-stage order.

        Args:
            candidates: ``(L, D)`` in schema order.
            strategy: ``auto`` for the bundle's own, or one of ``manifest.strategies``.

        Returns:
            The ranking. If a stage fails, the one before it answers and ``reason`` says why.

        Raises:
            SchemaMismatchError: if D differs from the schema.
            UnknownStrategyError: if the bundle has no such strategy.
        """
        route = self._route(strategy)
        features = candidates.features
        if features.shape[1] != len(self.schema):
            raise SchemaMismatchError(
                f"candidates have {features.shape[1]} features, the bundle was fitted on {len(self.schema)}",
                expected=self.schema.names,
            )
        started = perf_counter()
        try:
            first_scores = self._first_stage.score(features)
        except ScoringError as error:
            return _in_input_order(len(features), route, str(error), {"first_stage": _ms_since(started)})
        by_first_stage = rank_by_score(first_scores)
        timings = {"first_stage": _ms_since(started)}

        reason = None
        if route.strategy != "first_stage":
            started = perf_counter()
            try:
                scores, order = self._score_list(features, first_scores, by_first_stage)
            except ScoringError as error:
                reason = str(error)
            else:
                timings["second_stage"] = _ms_since(started)
                return _ranking(order, scores, first_scores, "second_stage", route, timings_ms=timings)
            timings["second_stage"] = _ms_since(started)
        return _ranking(
            by_first_stage, first_scores, first_scores, "first_stage", route, timings_ms=timings, reason=reason
        )

    def _route(self, strategy: str) -> Route:
        if strategy == "auto":
            return Route(strategy=self.manifest.strategy, decided_by="bundle")
        if strategy not in self.manifest.strategies:
            known = ", ".join(("auto", *self.manifest.strategies))
            raise UnknownStrategyError(f"this bundle has no strategy {strategy!r}: use one of {known}")
        return Route(strategy=strategy, decided_by="caller")

    def _score_list(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: np.ndarray,
    ) -> tuple[Float[np.ndarray, " L"], np.ndarray]:
        """Second-stage scores (NaN below the cutoff) and the order that they give."""
        stage = self.manifest.second_stage
        kept = np.sort(by_first_stage[: stage.cutoff])  # (C,) input order, so that ties below keep it
        inputs = features[kept]
        if stage.first_stage_score:
            inputs = np.column_stack([inputs, first_scores[kept].astype(np.float32)])
        logits = self._second_stage.score(inputs)
        scores = np.full(len(features), np.nan)
        scores[kept] = logits
        order = np.concatenate([kept[rank_by_score(logits)], by_first_stage[stage.cutoff :]])
        return scores, order


def relevance(scores: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """Softmax over the scored candidates (QILCM eq. 9): the probability of being the one to put first.

    Convention: NaN where there is no score; the others sum to 1.
    """
    if np.isnan(scores).all():
        return scores
    weights: Float[np.ndarray, " L"] = np.exp(scores - np.nanmax(scores))
    weights /= np.nansum(weights)
    return weights


def _ranking(order: Any, scores: Any, first_scores: Any, stage: Stage, route: Route, **more: Any) -> Ranking:
    return Ranking(
        order=order,
        scores=scores,
        relevance=relevance(scores),
        first_stage_scores=first_scores,
        stage_reached=stage,
        route=route,
        **more,
    )


def _in_input_order(length: int, route: Route, reason: str, timings_ms: dict[str, float]) -> Ranking:
    nothing = np.full(length, np.nan)
    return _ranking(np.arange(length), nothing, nothing, "input_order", route, timings_ms=timings_ms, reason=reason)


def _ms_since(started: float) -> float:
    return (perf_counter() - started) * 1000.0
