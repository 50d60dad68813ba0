"""The smallest changes that lift a candidate above the one before it, each ranked for real."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.again import Rerank
from listwright.ranking.explaining.clock import Clock
from listwright.ranking.explaining.explanation import ValueChange, WhatItTakes, place_of
from listwright.ranking.explaining.steps import HALVINGS, Step, distance, steps, whole
from listwright.ranking.explaining.values import shown
from listwright.ranking.features import FeatureSchema

MOST_PAIRS = 150
"""Pairs of changes that are ranked; those that come closest by their single changes are the first."""

_PAIRED = 120
"""Single changes that pairs are made of."""


class OutOfTime(Exception):  # noqa: N818 - no error: it ends a search, and nobody else sees it
    """The clock is over."""


class Searched(NamedTuple):
    """What a search found.

    Args:
        found: None if it was cut short, or a stage failed in it, before any change passed: that none does is not known.
        to_the_end: whether every change was tried that the limits allow.
        fault: why a changed list could not be ranked by the stage that answered; None if all could.
    """

    found: WhatItTakes | None
    to_the_end: bool
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Tried:
    """A single change that does not pass, and how far the candidate is behind with it."""

    step: Step
    margin: float


def passing(
    rerank: Rerank, candidates: CandidateList, candidate: int, ranking: Ranking, schema: FeatureSchema, clock: Clock
) -> Searched:
    """The smallest change of one feature, and of two, after which the candidate stands above the one before it.

    Values are the feature's training quantiles and its categories; the way to the first value that passes is then
    halved a few times, in whole numbers where the feature counts. Size of a change: the share of training rows between
    both values, see :mod:`listwright.ranking.explaining.steps`. Each change is tried through the serving path, by which
    more than the candidate's own score may change. Whatever is answered has passed. That nothing smaller would is
    known of the tried values alone; pairs are :data:`MOST_PAIRS` at most. A change that makes a stage fail does not
    pass: an earlier stage would rank its list, and the places of two stages do not compare.

    Args:
        rerank: what ranked the answer, see :mod:`listwright.ranking.explaining.again`.
        candidates: all of the list.
        candidate: index, not of the first one.
        ranking: the answer.
        schema: with training quantiles.
        clock: asked before every trial.

    Raises:
        ScoringError: if a stage fails on the list as it is.
    """
    order = ranking.order.tolist()
    above = order[order.index(candidate) - 1]
    search = _Search(rerank, candidates, candidate, above, schema, clock)
    to_the_end = True
    try:
        search.single()
        search.pair()
    except OutOfTime:
        to_the_end = False
    one, two, fault = search.one, search.two, search.fault()
    if one is None and two is None and (fault is not None or not to_the_end):
        return Searched(None, to_the_end, fault)
    row = candidates.features[candidate]
    alone = None if one is None else (_change(one, row, schema),)
    together = None if two is None else (_change(two[0], row, schema), _change(two[1], row, schema))
    return Searched(
        WhatItTakes(place_of(candidates, ranking, above), alone, together, search.tried, search.untried),
        to_the_end,
        fault,
    )


def _change(step: Step, row: Float[np.ndarray, " D"], schema: FeatureSchema) -> ValueChange:
    feature = schema.features[step.column]
    return ValueChange(feature.name, shown(feature, float(row[step.column])), shown(feature, step.value))


class _Search:
    """Ranks changed lists, and counts them."""

    def __init__(
        self,
        rerank: Rerank,
        candidates: CandidateList,
        candidate: int,
        above: int,
        schema: FeatureSchema,
        clock: Clock,
    ) -> None:
        self._rerank, self._candidate, self._above, self._schema = rerank, candidate, above, schema
        self._features, self._clock = candidates.features.copy(), clock
        self._context, self._own = candidates.context, candidates.features[candidate].copy()
        self._steps, self.untried = steps(candidates.features, candidate, schema)
        self.tried = 0
        self.one: Step | None = None
        self.two: tuple[Step, Step] | None = None
        self._failed: list[_Tried] = []
        self._reasons: list[str] = []
        self._margin = self._of(())[1]
        if self._reasons:
            raise ScoringError(f"ranked once more, {self._reasons[0]}")

    def fault(self) -> str | None:
        """Why changed lists could not be ranked by the stage that answered."""
        if not self._reasons:
            return None
        return f"{len(self._reasons)} of {self.tried} changed lists made a stage fail, the first: {self._reasons[0]}"

    def single(self) -> None:
        """Find the smallest step that passes, and keep all smaller ones, which do not."""
        for step in self._steps:
            if self.one is not None and step.near >= self.one.size:
                continue
            passes, margin = self._try(step)
            if not passes:
                self._failed.append(_Tried(step, margin))
                continue
            self._keep(step)
            self._refine(step)

    def _keep(self, step: Step, instead_of: Step | None = None) -> None:
        """Remember a step that passes, if none is smaller, or in the place of the one that it refines."""
        if self.one is None or self.one is instead_of or step.size < self.one.size:
            self.one = step

    def pair(self) -> None:
        """Find two steps that pass together and whose sizes sum to less than the single one's; the smallest sum."""
        below = math.inf if self.one is None else self.one.size
        gained = sorted((tried for tried in self._failed if tried.margin > self._margin), key=self._worth, reverse=True)
        tried = gained[:_PAIRED]
        pairs = [
            (one, other)
            for place, one in enumerate(tried)
            for other in tried[place + 1 :]
            if one.step.column != other.step.column and one.step.size + other.step.size < below
        ]
        pairs.sort(key=self._promise)
        for one, other in pairs[:MOST_PAIRS]:
            size = one.step.size + other.step.size
            if size < below and self._try(one.step, other.step)[0]:
                self.two, below = (one.step, other.step), size

    def _worth(self, tried: _Tried) -> float:
        return (tried.margin - self._margin) / max(tried.step.size, 1e-9)

    def _promise(self, pair: tuple[_Tried, _Tried]) -> tuple[bool, float]:
        """Pairs that would pass if what they gain added up, the smallest first; then those that miss it least."""
        one, other = pair
        margin = one.margin + other.margin - self._margin
        return margin <= 0.0, one.step.size + other.step.size if margin > 0.0 else -margin

    def _refine(self, step: Step) -> None:
        """Keep the same step as small as it can be: between the last value that fails and the first that passes."""
        feature = self._schema.features[step.column]
        own = float(self._own[step.column])
        if feature.kind == "categorical" or math.isnan(own):
            return
        fails, best, counts = step.near_value, step, whole(feature, own)
        for _ in range(HALVINGS):
            middle = float(np.float32((fails + best.value) / 2))
            if counts:
                middle = float(np.floor(middle) if best.value > fails else np.ceil(middle))
            if middle in (fails, best.value):
                break
            tried = Step(step.column, middle, distance(feature, own, middle), step.near, step.near_value)
            if self._try(tried)[0]:
                self._keep(tried, instead_of=best)
                best = tried
            else:
                fails = middle

    def _try(self, *changed: Step) -> tuple[bool, float]:
        if self._clock.over():
            raise OutOfTime
        self.tried += 1
        return self._of(changed)

    def _of(self, changed: Sequence[Step]) -> tuple[bool, float]:
        """Whether the candidate passes with these steps, and by how much it is ahead; neither where a stage fails."""
        row = self._features[self._candidate]
        row[:] = self._own
        for step in changed:
            row[step.column] = step.value
        ranking = self._rerank(CandidateList(self._features, context=self._context))
        if ranking.reason is not None:
            self._reasons.append(ranking.reason)
            return False, -math.inf
        mine, its = self._candidate, self._above
        scores = ranking.scores if not np.isnan(ranking.scores[[mine, its]]).any() else ranking.first_stage_scores
        return bool(ranking.ranks[mine] < ranking.ranks[its]), float(scores[mine] - scores[its])
