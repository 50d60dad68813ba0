"""What goes into a reranker and what comes out: frozen values, checked once, at construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from listwright.ranking.errors import CandidateError, EmptyListError, RoutingError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.order import best, ranks_of, sort_keys
from listwright.ranking.stages import SecondStage

Stage = Literal["second_stage", "first_stage", "input_order"]
DecidedBy = Literal["caller", "hook", "router", "abstained", "bundle"]
Action = Literal["pin", "exclude", "cutoff", "boost", "bury", "cap", "diversify"]


@dataclass(frozen=True, slots=True)
class CandidateList:
    """All candidates of one query, in input order.

    Args:
        features: ``(L, D)`` features in schema order. Numeric ones are raw, NaN means missing; categorical ones hold
            the code of :meth:`listwright.ranking.features.Feature.code`. Anything else than float32 is converted.
        ids: One opaque id per candidate, unique within the list; None where the caller has none.
        context: Entries that the request has on the query as a whole, by name, for hooks.

    Raises:
        EmptyListError: if L is 0.
        CandidateError: if the array is not ``(L, D)``, a value is infinite (also: too large for float32), or ids are
            too few, too many or repeated.
    """

    features: Real[np.ndarray, "L D"]
    ids: tuple[str, ...] | None = None
    context: Mapping[str, str | float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.features.ndim != 2:
            raise CandidateError(f"features must be an (L, D) array, not one of shape {self.features.shape}")
        if len(self.features) == 0:
            raise EmptyListError("the list holds no candidates: send at least one", ("candidates",))
        with np.errstate(over="ignore"):
            features = np.ascontiguousarray(self.features, dtype=np.float32)
        infinite = np.isinf(features)
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            raise CandidateError(
                f"{self.features[row, column]} is infinite as float32: send a finite number, or null for missing",
                ("features", row, column),
            )
        object.__setattr__(self, "features", features)
        if self.ids is not None:
            _check_ids(self.ids, len(features))

    def __len__(self) -> int:
        return len(self.features)


def _check_ids(ids: tuple[str, ...], length: int) -> None:
    if len(ids) != length:
        raise CandidateError(f"{len(ids)} ids for {length} candidates: send one id each, or none at all", ("ids",))
    positions: dict[str, int] = {}
    for position, candidate_id in enumerate(ids):
        first = positions.setdefault(candidate_id, position)
        if first != position:
            raise CandidateError(
                f"id {candidate_id!r} was used at {first} already: ids are unique in a list", ("ids", position)
            )


def lightgbm_input(features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Float[np.ndarray, "L D"]:
    """Return the matrix in LightGBM's encoding, in training and in serving alike.

    Convention: categories count from 0 and an unknown or missing one is NaN, exactly as LightGBM encodes a pandas
    categorical column; numeric values stay float32, NaN included.
    """
    if not schema.categorical:
        return features
    matrix = features.copy()
    columns = list(schema.categorical)
    codes = matrix[:, columns] - 1
    codes[codes < 0] = np.nan
    matrix[:, columns] = codes
    return matrix


@dataclass(frozen=True, slots=True)
class Route:
    """The ranker that gave the order, and who chose it.

    Args:
        strategy: The second stage's kind, ``srm`` or ``first_stage``.
        decided_by: ``caller`` if the request named it, ``hook`` or ``router`` if these chose, ``abstained`` if the
            router left it to the generalist, ``bundle`` if the bundle's default applied.
        specialist: Number of the specialist; None for other rankers, and for the mixture of all.
        confidence: Probability that the specialist is the best one, by whoever chose it; None without a specialist,
            or if it is unknown.
        faults: Reasons for which a hook or router could not decide, in the order of their calls.
        probabilities, gains: ``(K,)`` of the bundle's router: each specialist's chance of being the best one, and its
            NDCG above the generalist's; None where it did not run.
    """

    strategy: str
    decided_by: DecidedBy
    specialist: int | None = None
    confidence: float | None = None
    faults: tuple[RoutingError, ...] = ()
    probabilities: Float[np.ndarray, " K"] | None = field(default=None, compare=False)
    gains: Float[np.ndarray, " K"] | None = field(default=None, compare=False)


class AppliedRule(NamedTuple):
    """A rule of merchandising on one list.

    Args:
        name: Name of the rule.
        action: Kind of the rule.
        candidates: Indices of the candidates that the rule touched.
        reason: Reason for which the rule was not applied; None if it was.
    """

    name: str
    action: Action
    candidates: tuple[int, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of one query's candidates, and how it came about.

    Args:
        order: ``(L,)`` indices of the candidates, best first.
        scores: ``(L,)`` raw scores, in input order, by the stage that gave the order; NaN for candidates that this
            stage did not score (below the cutoff), or everywhere if only the input order is left.
        relevance: ``(L,)`` softmax, in input order, of ``scores`` over the scored candidates (QILCM eq. 9), divided by
            ``temperature``; sums to 1, NaN where ``scores`` is.
        first_stage_scores: ``(L,)`` scores of the first stage, in input order; NaN if the first stage failed.
        stage_reached: The stage that gave the order.
        route: The requested ranker, and who chose it.
        reason: Reason for which an earlier stage had to answer; None if nothing went wrong.
        timings_ms: Wall-clock milliseconds by stage.
        late: Whether the reason is a deadline: the next stage was not started, because it would have missed it.
        rules: Rules of merchandising that gave the order its last form, see :mod:`listwright.ranking.rules.schema`.
        probability: ``(L,)`` probabilities of being relevant to the label, in input order, see
            :mod:`listwright.ranking.probability`; None where nobody asked, or the bundle has none.
        weights: Weight of each goal by which the candidates are ordered; None where the bundle has one goal alone, and
            where the label alone gives the order, as a further goal's model failed or would have been late.
        temperature: Divisor of the scores in ``relevance``: of the strategy that gave them; 1 for several goals.
        below_cutoff: ``(L,)`` whether the last stage before several goals did not score a candidate; None for one goal,
            where ``scores`` say it.
        excluded: Number of candidates that rules exclude: the last ones of the order.
        degraded: Whether an earlier stage than the route's own answered.
    """

    order: Int[np.ndarray, " L"]
    scores: Float[np.ndarray, " L"]
    relevance: Float[np.ndarray, " L"]
    first_stage_scores: Float[np.ndarray, " L"]
    stage_reached: Stage
    route: Route
    reason: str | None = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    late: bool = False
    rules: tuple[AppliedRule, ...] = ()
    excluded: int = 0
    probability: Float[np.ndarray, " L"] | None = None
    weights: Mapping[str, float] | None = None
    temperature: float = 1.0
    below_cutoff: Bool[np.ndarray, " L"] | None = None
    degraded: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "degraded", self.reason is not None)

    @property
    def results(self) -> Int[np.ndarray, " S"]:
        """``(S,)`` the order without excluded candidates."""
        return self.order[: len(self.order) - self.excluded]

    @property
    def exclusions(self) -> Int[np.ndarray, " E"]:
        """``(E,)`` the candidates that rules exclude."""
        return self.order[len(self.order) - self.excluded :]

    @property
    def ranks(self) -> Int[np.ndarray, " L"]:
        """``(L,)`` 1-based ranks in input order."""
        return ranks_of(self.order)

    @property
    def sort_keys(self) -> Float[np.ndarray, " L"]:
        """``(L,)`` for metrics: higher is better, equal where only input order tells candidates apart."""
        positions = np.flatnonzero(~np.isnan(self.scores))
        return sort_keys(self.scores[positions], positions, self.first_stage_scores)


class RankedList(NamedTuple):
    """Output of a ranker's file for one list.

    Args:
        scores: ``(L,)`` finite raw scores; sorting by them, highest first, gives the order.
        order: ``(L,)`` indices of the candidates, best first.
        relevance: ``(L,)`` softmax of the scores; NaN below the cutoff.
        first_stage_scores: ``(L,)`` scores of the first stage; NaN if it failed.
        probability: ``(L,)`` probabilities of being relevant to the label; None where the bundle has none.
        goal_shares: ``(L, G)`` shares of the list by each goal, whose product with the weights orders the list; None
            where there is one goal.
    """

    scores: Float[np.ndarray, " L"]
    order: Int[np.ndarray, " L"]
    relevance: Float[np.ndarray, " L"]
    first_stage_scores: Float[np.ndarray, " L"]
    probability: Float[np.ndarray, " L"] | None = None
    goal_shares: Float[np.ndarray, "L G"] | None = None


class FirstPass(NamedTuple):
    """A list after the first stage.

    Args:
        candidates: Candidates of the list.
        widened: ``(L, W)`` features and list-relative columns; the features alone where the bundle has no such columns.
        scores: ``(L,)`` scores of the first stage.
        order: ``(L,)`` indices of the candidates, best first.
    """

    candidates: CandidateList
    widened: Float[np.ndarray, "L W"]
    scores: Float[np.ndarray, " L"]
    order: Int[np.ndarray, " L"]

    def select(self, stage: SecondStage | None) -> Int[np.ndarray, " C"]:
        """Return the candidates that reach a stage, in input order, so that ties keep it.

        They are the stage's cutoff by :func:`listwright.ranking.order.best`.
        """
        if stage is None or stage.cutoff is None or stage.cutoff >= len(self.order):
            return np.arange(len(self.order))
        return np.sort(best(stage.cutoff, self.order, self.scores, self.candidates.features))

    def inputs(self, positions: Int[np.ndarray, " C"], stage: SecondStage) -> Float[np.ndarray, "C E"]:
        """Return a stage's input: features, list-relative columns and first-stage scores where it uses them."""
        features = self.widened if stage.relative else self.candidates.features
        inputs: Float[np.ndarray, "C E"] = features if len(positions) == len(features) else features[positions]
        if stage.first_stage_score:
            inputs = np.column_stack([inputs, self.scores[positions].astype(np.float32)])
        return inputs
