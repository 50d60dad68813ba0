"""First stage, route, second stage, order: the only code that scores, in training and in serving alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from listwright.ranking.aggregates import AnomalyScore
from listwright.ranking.candidates import CandidateList, FirstPass, Ranking, Route, Stage
from listwright.ranking.deadline import NO_DEADLINE, Deadline, LatencyEstimator
from listwright.ranking.errors import (
    RoutingError,
    SchemaMismatchError,
    ScoringError,
    UnknownGoalError,
    UnknownSpecialistError,
    UnknownStrategyError,
)
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import FirstStage
from listwright.ranking.goals import Goals, combine
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import rank_by_score, refined_order, relevance
from listwright.ranking.probability import Calibration
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.router import BundleRouter, Choice, Hook, ask
from listwright.ranking.scorers import Scorer, SecondPass

if TYPE_CHECKING:
    from listwright.ranking.explaining.explanation import CandidateExplanation

_TOO_LATE = "the {} was not started: it would have missed the deadline"


class Reranker:
    """The rankers of one bundle, which order the candidates of a query.

    Threads may share it; its only state is the latency estimate.

    Args:
        manifest: Manifest of the bundle.
        first_stage: Ranker that scores every candidate.
        second_stages: Networks by kind; each rescores the best ``cutoff`` candidates as one list.
        specialists: SRM's rankers, ``(C, E) -> (C, K)``; None where the bundle has none.
        router: Router that chooses among the specialists; None where the bundle has none.
        anomaly: Score of how unlike the training queries a list is; no ranking depends on it but through the router.
        relative: List-relative columns; None where no stage sees any.
        read_file: Function that reads a file of the bundle once more, for explanations; None where there are no files.
        calibration: Calibration of scores to probabilities; None where the bundle has none.
        goals: Models of further goals; None where the bundle has one goal alone.
    """

    def __init__(
        self,
        manifest: Manifest,
        first_stage: FirstStage,
        second_stages: Mapping[str, Scorer],
        specialists: Scorer | None = None,
        router: BundleRouter | None = None,
        anomaly: AnomalyScore | None = None,
        relative: RelativeColumns | None = None,
        read_file: Callable[[str], bytes] | None = None,
        calibration: Calibration | None = None,
        goals: Goals | None = None,
    ) -> None:
        self.manifest = manifest
        self.schema: FeatureSchema = manifest.feature_schema
        """The columns that candidates must have."""
        self._width, self._strategies = len(self.schema), manifest.strategies
        self.router, self.anomaly, self.relative = router, anomaly, relative
        self.pace = LatencyEstimator()
        self.default_strategy: str = manifest.strategy
        self.first_stage, self.read_file = first_stage, read_file
        self.calibration, self.goals = calibration, goals
        self.second_pass = SecondPass(manifest, second_stages, specialists)
        self._first_sees_relative = manifest.first_stage.kind == "lightgbm" and manifest.first_stage.relative

    def answer_with(self, strategy: str) -> None:
        """Let ``auto`` mean another strategy than the manifest's, where no router decides.

        Raises:
            UnknownStrategyError: if the bundle has no such strategy.
        """
        if strategy not in self._strategies:
            raise UnknownStrategyError(_unknown(strategy, self._strategies))
        self.default_strategy = strategy

    def first_stage_scores(self, features: Float[np.ndarray, "R D"]) -> Float[np.ndarray, " R"] | None:
        """Score many lists at once, which is faster than list by list and the same to the bit.

        Args:
            features: ``(R, D)`` features in schema order.

        Returns:
            ``(R,)`` scores; None if the first stage may see a list as a whole, or fails.
        """
        if self.first_stage.engine != "compiled" or self._first_sees_relative:
            return None
        try:
            return self.first_stage.score(features)
        except ScoringError:  # of some list; whoever ranks them one by one learns which
            return None

    def rerank(
        self,
        candidates: CandidateList,
        *,
        strategy: str = "auto",
        specialist: int | None = None,
        hook: Hook | None = None,
        routing: bool = True,
        deadline: Deadline = NO_DEADLINE,
        first_stage_scores: Float[np.ndarray, " L"] | None = None,
        probability: bool = False,
        weights: Mapping[str, float] | None = None,
    ) -> Ranking:
        """Order the candidates, best first.

        The first stage scores all. The second stage rescores the top C of them, whatever the input order, and puts them
        in front. The others follow in first-stage order.

        Which second stage: the caller's specialist; or else, for ``auto`` and ``srm``, what the hook chooses, or what
        the bundle's router does. Where these abstain, ``auto`` is the generalist, and ``srm`` the mixture of all
        specialists.

        Args:
            candidates: Candidates of the list, with D features in schema order.
            strategy: ``auto`` or one of ``manifest.strategies``.
            specialist: Number of the specialist to use, counted from 0.
            hook: Hook that is called before the bundle's router.
            routing: Whether hook and router are asked.
            deadline: Deadline of the answer; a stage that would miss it, by recent times, is not started; a started one
                is never broken off.
            first_stage_scores: Result of :meth:`first_stage_scores`, if the caller has it.
            probability: Whether the ranking gets the candidates' probabilities of being relevant.
            weights: Weight of each goal; those that are left out, and None, mean the bundle's own.

        Returns:
            The ranking. If a stage fails or would be late, the one before it answers and ``reason`` says why.

        Raises:
            SchemaMismatchError: if D differs from the schema.
            UnknownStrategyError: if the bundle has no such strategy, specialist or goal.
            AbandonedError: if the caller has gone; checked before each stage.
        """
        self._check(strategy, specialist)
        goal_weights = self.goal_weights(weights)
        length, width = (features := candidates.features).shape
        if width != self._width:
            raise SchemaMismatchError(
                f"candidates have {width} features, the bundle was fitted on {self._width}", expected=self.schema.names
            )
        route = self._default(strategy, specialist)
        if not self.pace.fits(deadline, length, "first_stage"):
            return _in_input_order(length, route, _TOO_LATE.format("first stage"), {}, late=True)
        started = perf_counter()
        try:
            widened = features if self.relative is None else self.relative.widened(features)
            visible = widened if self._first_sees_relative else features
            first_scores = self.first_stage.score(visible) if first_stage_scores is None else first_stage_scores
        except ScoringError as error:
            return _in_input_order(length, route, str(error), {"first_stage": _ms_since(started)})
        first = FirstPass(candidates, widened, first_scores, rank_by_score(first_scores))
        ms = self._record_ms("first_stage", length, started) if first_stage_scores is None else _ms_since(started)
        timings = {"first_stage": ms}

        specialists = None
        if routing and specialist is None and strategy in ("auto", "srm") and self.second_pass.specialists is not None:
            started = perf_counter()
            if self.pace.fits(deadline, length, "routing", route.strategy):
                route, specialists = self._route(first, route, hook)
                timings["routing"] = self._record_ms("routing", length, started)
            else:
                late = RoutingError("routing_late", "no hook and no router was asked: it would have been too late")
                route = replace(route, faults=(late,))

        rescored, reason, too_late = None, None, False
        if route.strategy != "first_stage":
            # a specialist that routing scored already costs nothing more
            too_late = specialists is None and not self.pace.fits(deadline, length, route.strategy)
            if too_late:
                reason = _TOO_LATE.format("second stage")
            else:
                started = perf_counter()
                try:
                    positions, rescored = self.second_pass.score(first, route, specialists)
                except ScoringError as error:
                    timings["second_stage"] = _ms_since(started)
                    reason = str(error)
        order, scores = first.order, first_scores
        reached: Stage = "first_stage"
        if rescored is not None:
            scores = np.full(length, np.nan)  # below the cutoff
            scores[positions] = rescored
            order, reached = refined_order(rescored, positions, first.order), "second_stage"
            timings["second_stage"] = self._record_ms(
                route.strategy if specialists is None else "mixing", length, started
            )
        scored_by = "first_stage" if rescored is None else route.strategy
        temperature = self.manifest.temperatures.get(scored_by, 1.0)
        ranking = Ranking(
            order=order,
            scores=scores,
            relevance=relevance(scores, temperature),
            first_stage_scores=first_scores,
            stage_reached=reached,
            route=route,
            reason=reason,
            timings_ms=timings,
            late=too_late,
            temperature=temperature,
        )
        if goal_weights is not None:
            ranking = self._for_goals(ranking, first, scored_by, goal_weights, deadline)
        return self._with_probability(ranking, first, scores, scored_by, deadline) if probability else ranking

    def goal_weights(self, requested: Mapping[str, float] | None) -> Mapping[str, float] | None:
        """Return the weight of each goal; None where the bundle has one goal alone.

        Raises:
            UnknownGoalError: as :meth:`listwright.ranking.goals.Goals.weights`, and of requested weights for one goal.
        """
        if self.goals is not None:
            return self.goals.weights(requested)
        if requested is not None:
            raise UnknownGoalError("the bundle has one goal: leave weights out, or fit it with --goal")
        return None

    def _with_probability(
        self, ranking: Ranking, first: FirstPass, scores: Float[np.ndarray, " L"], scored_by: str, deadline: Deadline
    ) -> Ranking:
        """Return the ranking with probabilities; without where there are none, or not in time."""
        features = first.candidates.features
        if self.calibration is None or not self.pace.fits(deadline, len(features), "probability"):
            return ranking
        started = perf_counter()
        try:
            probability = self.calibration.probabilities(features, scores, first.scores, scored_by)
        except ScoringError:
            return ranking
        ms = self._record_ms("probability", len(features), started)
        return replace(ranking, probability=probability, timings_ms={**ranking.timings_ms, "probability": ms})

    def _for_goals(
        self, ranking: Ranking, first: FirstPass, scored_by: str, weights: Mapping[str, float], deadline: Deadline
    ) -> Ranking:
        """Return the ranking by all goals; by the label alone, and degraded, where the others fail or would be late."""
        assert self.goals is not None
        if not self.goals.combines(weights):
            return replace(ranking, weights=weights)
        length, reason = len(first.order), ranking.reason
        if not self.pace.fits(deadline, length, "goals"):
            late = _TOO_LATE.format("scoring for further goals")
            return replace(ranking, reason=reason or late, late=ranking.late or reason is None)
        started = perf_counter()
        try:
            visible = first.widened if self.goals.stage.relative else first.candidates.features
            odds = self.goals.log_odds(visible, ranking.scores, first.scores, scored_by, weights)
        except ScoringError as error:
            return replace(ranking, reason=reason or str(error))
        scores = combine(odds, weights)
        return replace(
            ranking,
            order=rank_by_score(scores),
            scores=scores,
            relevance=relevance(scores),
            weights=weights,
            below_cutoff=np.isnan(ranking.scores),
            temperature=1.0,
            timings_ms={**ranking.timings_ms, "goals": self._record_ms("goals", length, started)},
        )

    def explain(self, candidates: CandidateList, candidate: int, **options: Any) -> CandidateExplanation:
        """Explain why a candidate stands where it stands.

        Args:
            candidates: Candidates of the list, with D features in schema order.
            candidate: Index of the candidate, from 0.
            options: Other arguments of :func:`listwright.ranking.explaining.explain.explain`.

        Raises:
            CandidateError: if there is no such candidate.
            ExplanationError: if no stage ranked the candidates before the deadline.
            SchemaMismatchError, UnknownStrategyError, AbandonedError: as :meth:`rerank`.
        """
        from listwright.ranking.explaining.explain import explain  # noqa: PLC0415 - nothing is loaded while unused

        return explain(self, candidates, candidate, **options)

    def _record_ms(self, stage: str, length: int, started: float) -> float:
        """Return the milliseconds since ``started``, and record them as the stage's time."""
        seconds = perf_counter() - started
        self.pace.note(stage, length, seconds)
        return seconds * 1000.0

    def _check(self, strategy: str, specialist: int | None) -> None:
        known = ("auto", *self._strategies)
        if strategy not in known:
            raise UnknownStrategyError(_unknown(strategy, known))
        if specialist is None:
            return
        if strategy not in ("auto", "srm"):
            raise UnknownSpecialistError(f"strategy {strategy!r} has no specialists: use auto or srm, or name none")
        if self.manifest.srm is None:
            raise UnknownSpecialistError("this bundle has no specialists: leave out specialist")
        count = len(self.manifest.srm.specialists)
        if not 0 <= specialist < count:
            raise UnknownSpecialistError(f"this bundle has no specialist {specialist}: use 0 to {count - 1}, see /info")

    def _default(self, strategy: str, specialist: int | None) -> Route:
        """Return the route without a hook or a router."""
        if specialist is not None:
            return Route("srm", "caller", specialist)
        if strategy == "auto":
            return Route(self.default_strategy, "bundle")
        return Route(strategy, "caller")

    def _route(
        self, first: FirstPass, default: Route, hook: Hook | None
    ) -> tuple[Route, Float[np.ndarray, "C K"] | None]:
        """Ask the hook, then the router; return the route, and the specialists' scores if computed."""
        faults: tuple[RoutingError, ...] = ()
        if hook is not None:
            try:
                return _chosen_route(ask(hook, first, self.manifest.srm), "hook", default), None
            except RoutingError as error:
                faults = (error.with_traceback(None),)  # which would keep this list alive
        if self.router is None:
            return replace(default, faults=faults), None
        if self.router.always_abstains and default.strategy != "srm":
            return replace(default, decided_by="abstained", faults=faults), None  # known without looking
        try:
            positions, scores = self.second_pass.specialist_scores(first)
            estimate = self.router.estimate(first.candidates.features, first.scores, first.order, scores, positions)
        except ScoringError as error:
            return replace(default, faults=(*faults, RoutingError("router_failed", str(error)))), None
        except RoutingError as error:
            return replace(default, faults=(*faults, error.with_traceback(None))), None
        route = _chosen_route(estimate.choice, "router", default)
        return replace(route, faults=faults, probabilities=estimate.probabilities, gains=estimate.gains), scores


def _chosen_route(choice: Choice, by: Literal["hook", "router"], default: Route) -> Route:
    """Return the route after a hook's or router's choice; an abstention leaves the default's strategy."""
    if choice.specialist is not None:
        return Route("srm", by, choice.specialist, choice.confidence)
    return Route(default.strategy, "abstained" if by == "router" else by)


def _in_input_order(
    length: int, route: Route, reason: str, timings_ms: dict[str, float], *, late: bool = False
) -> Ranking:
    nothing = np.full(length, np.nan)
    return Ranking(
        order=np.arange(length),
        scores=nothing,
        relevance=nothing,
        first_stage_scores=nothing,
        stage_reached="input_order",
        route=route,
        reason=reason,
        timings_ms=timings_ms,
        late=late,
    )


def _ms_since(started: float) -> float:
    return (perf_counter() - started) * 1000.0


def _unknown(strategy: str, known: Sequence[str]) -> str:
    return f"this bundle has no strategy {strategy!r}: use one of {', '.join(known)}"
