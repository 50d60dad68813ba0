"""The smallest changes that lift a candidate above the one before it, each ranked for real."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.contributions import Clock
from listwright.ranking.explaining.explanation import ValueChange, WhatItTakes, place_of
from listwright.ranking.features import QUANTILE_LEVELS, UNKNOWN_CODE, Feature, FeatureSchema

Rerank = Callable[[CandidateList], Ranking]
"""Ranks a changed list under the answer's options."""

MOST_PAIRS = 150
"""Pairs of changes that are ranked; those that come closest by their single changes are the first."""

_PAIRED = 120
"""Single changes that pairs are made of."""

OTHER_KIND = 0.5
"""Size of a change that has no distance: of a category, or of a missing value to one that is there."""

MOST_CATEGORIES = 100
"""Other categories of a feature that are tried: those of most candidates of the list, then the first of the schema."""

MOST_STEPS = 5000
"""Steps of all features that are tried, the smallest ones."""

HALVINGS = 5
"""Of the way between the last value that does not pass and the first that does."""


class _OutOfTimeError(Exception):
    """The time is up."""


class Search(NamedTuple):
    """The result of a search.

    Args:
        changes: None if it was cut short, or a stage failed in it, before any change passed: that none does is not
            known.
        complete: Whether every change was tried that the limits allow.
        fault: Reason for which a changed list could not be ranked by the stage that answered; None if all could.
    """

    changes: WhatItTakes | None
    complete: bool
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Failure:
    """A single change that does not pass, and how far the candidate is behind with it."""

    step: Step
    margin: float


def find_passing_changes(
    rerank: Rerank, candidates: CandidateList, candidate: int, ranking: Ranking, schema: FeatureSchema, clock: Clock
) -> Search:
    """Find the smallest change of one feature, and of two, after which the candidate stands above the one before it.

    Values are the feature's training quantiles and its categories; the way to the first value that passes is then
    halved a few times, in whole numbers where the feature counts. Size of a change: the share of training rows between
    both values, see :class:`Step`. Each change is tried through the serving path, by which more than the candidate's
    own score may change. Whatever is answered has passed. That nothing smaller would is known of the tried values
    alone; pairs are :data:`MOST_PAIRS` at most. A change that makes a stage fail does not pass: an earlier stage would
    rank its list, and the places of two stages do not compare.

    Args:
        rerank: Function that ranks as the answer was ranked, see
            :func:`listwright.ranking.explaining.explain.bind_rerank`.
        candidates: Candidates of the list.
        candidate: Index of the candidate, which does not stand first.
        ranking: Ranking that was answered.
        schema: Schema of the features, with training quantiles.
        clock: Clock that is checked before every trial.

    Raises:
        ScoringError: if a stage fails on the list as it is.
    """
    order = ranking.order.tolist()
    above = order[order.index(candidate) - 1]
    search = _Searcher(rerank, candidates, candidate, above, schema, clock)
    complete = True
    try:
        search.find_single()
        search.find_pair()
    except _OutOfTimeError:
        complete = False
    single, pair, fault = search.best_single, search.best_pair, search.fault()
    if single is None and pair is None and (fault is not None or not complete):
        return Search(None, complete, fault)
    row = candidates.features[candidate]
    alone = None if single is None else (_change(single, row, schema),)
    together = None if pair is None else (_change(pair[0], row, schema), _change(pair[1], row, schema))
    takes = WhatItTakes(place_of(candidates, ranking, above), alone, together, search.tried, search.untried)
    return Search(takes, complete, fault)


def _change(step: Step, row: Float[np.ndarray, " D"], schema: FeatureSchema) -> ValueChange:
    feature = schema.features[step.column]
    return ValueChange(feature.name, feature.value_of(float(row[step.column])), feature.value_of(step.value))


class _Searcher:
    """A search over changed lists, which it ranks and counts."""

    def __init__(
        self, rerank: Rerank, candidates: CandidateList, candidate: int, above: int, schema: FeatureSchema, clock: Clock
    ) -> None:
        self._rerank, self._candidate, self._above, self._schema = rerank, candidate, above, schema
        self._features, self._clock = candidates.features.copy(), clock
        self._context, self._own = candidates.context, candidates.features[candidate].copy()
        self._steps, self.untried = _list_steps(candidates.features, candidate, schema)
        self.tried = 0
        self.best_single: Step | None = None
        self.best_pair: tuple[Step, Step] | None = None
        self._failed: list[_Failure] = []
        self._reasons: list[str] = []
        self._margin = self._rank_with(())[1]
        if self._reasons:
            raise ScoringError(f"ranked once more, {self._reasons[0]}")

    def fault(self) -> str | None:
        """Return why changed lists could not be ranked by the stage that answered; None if all were."""
        if not self._reasons:
            return None
        return f"{len(self._reasons)} of {self.tried} changed lists made a stage fail, the first: {self._reasons[0]}"

    def find_single(self) -> None:
        """Find the smallest step that passes, and collect the smaller ones, which do not."""
        for step in self._steps:
            if self.best_single is not None and step.near >= self.best_single.size:
                continue
            passes, margin = self._try(step)
            if not passes:
                self._failed.append(_Failure(step, margin))
                continue
            self._keep(step)
            self._refine(step)

    def _keep(self, step: Step, instead_of: Step | None = None) -> None:
        """Store a step that passes, if none is smaller, or in the place of the one that it refines."""
        if self.best_single is None or self.best_single is instead_of or step.size < self.best_single.size:
            self.best_single = step

    def find_pair(self) -> None:
        """Find two steps that pass together and whose sizes sum to less than the single one's; the smallest sum."""
        below = math.inf if self.best_single is None else self.best_single.size
        useful = [failure for failure in self._failed if failure.margin > self._margin]
        useful.sort(key=lambda failure: (self._margin - failure.margin) / max(failure.step.size, 1e-9))
        singles = useful[:_PAIRED]
        pairs = [
            (failure, other)
            for place, failure in enumerate(singles)
            for other in singles[place + 1 :]
            if failure.step.column != other.step.column and failure.step.size + other.step.size < below
        ]
        pairs.sort(key=self._pair_sort_key)
        for failure, other in pairs[:MOST_PAIRS]:
            size = failure.step.size + other.step.size
            if size < below and self._try(failure.step, other.step)[0]:
                self.best_pair, below = (failure.step, other.step), size

    def _pair_sort_key(self, pair: tuple[_Failure, _Failure]) -> tuple[bool, float]:
        """Return a sort key: first pairs whose gains add up to passing, by size, then by what they miss."""
        first, second = pair
        margin = first.margin + second.margin - self._margin
        return margin <= 0.0, first.step.size + second.step.size if margin > 0.0 else -margin

    def _refine(self, step: Step) -> None:
        """Shrink a step that passes, between the last value that fails and the first that passes."""
        feature = self._schema.features[step.column]
        own = float(self._own[step.column])
        if feature.kind == "categorical" or math.isnan(own):
            return
        fails, best, counts = step.near_value, step, is_whole(feature, own)
        for _ in range(HALVINGS):
            middle = float(np.float32((fails + best.value) / 2))
            if counts:
                middle = float(np.floor(middle) if best.value > fails else np.ceil(middle))
            if middle in (fails, best.value):
                break
            smaller = Step(step.column, middle, distance(feature, own, middle), step.near, step.near_value)
            if self._try(smaller)[0]:
                self._keep(smaller, instead_of=best)
                best = smaller
            else:
                fails = middle

    def _try(self, *changed: Step) -> tuple[bool, float]:
        if self._clock.over():
            raise _OutOfTimeError
        self.tried += 1
        return self._rank_with(changed)

    def _rank_with(self, changed: Sequence[Step]) -> tuple[bool, float]:
        """Return whether the candidate passes with these steps, and its lead; False, -inf if a stage fails."""
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


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one feature's value.

    Args:
        column: Index of the feature in the schema.
        value: New number or code.
        size: Share of the training rows between the candidate's value and this one; see :data:`OTHER_KIND`.
        near, near_value: Size and value of the step before it on the way; for the first, the candidate's own value.
    """

    column: int
    value: float
    size: float
    near: float
    near_value: float


class Steps(NamedTuple):
    """The steps to try.

    Args:
        steps: Steps, the smallest first.
        left_out: Number of further steps, beyond :data:`MOST_CATEGORIES` and :data:`MOST_STEPS`.
    """

    steps: list[Step]
    left_out: int


def _list_steps(features: Float[np.ndarray, "L D"], candidate: int, schema: FeatureSchema) -> Steps:
    """Return the steps of a candidate to training quantiles and other categories."""
    steps, left_out = list[Step](), 0
    for column, feature in enumerate(schema.features):
        own = float(features[candidate, column])
        if feature.kind == "numeric":
            steps += _list_numeric_steps(column, feature, own)
            continue
        codes = _other_categories(feature, features[:, column], own)
        left_out += max(0, len(codes) - MOST_CATEGORIES)
        steps += (Step(column, code, OTHER_KIND, OTHER_KIND, own) for code in codes[:MOST_CATEGORIES])
    steps.sort(key=lambda step: step.size)
    return Steps(steps[:MOST_STEPS], left_out + max(0, len(steps) - MOST_STEPS))


def _other_categories(feature: Feature, column: Float[np.ndarray, " L"], own: float) -> list[float]:
    """Return the codes of the categories that a candidate does not have, the most frequent in its list first."""
    codes = [float(code) for code in range(UNKNOWN_CODE + 1, len(feature.categories) + 1) if code != own]
    kinds, counts = np.unique(column, return_counts=True)
    frequency = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    return sorted(codes, key=lambda code: -frequency.get(code, 0))


def _list_numeric_steps(column: int, feature: Feature, own: float) -> Iterator[Step]:
    if feature.quantiles is None:
        return
    places = [float(np.float32(quantile)) for quantile in feature.quantiles]
    if math.isnan(own):
        for value in dict.fromkeys(places):
            yield Step(column, value, OTHER_KIND, OTHER_KIND, own)
        return
    for way in (1.0, -1.0):
        near, near_value = 0.0, own
        for value in sorted({place for place in places if way * place > way * own}, key=lambda place: way * place):
            far = distance(feature, own, value)
            yield Step(column, value, far, near, near_value)
            near, near_value = far, value


def distance(feature: Feature, start: float, end: float) -> float:
    """Return the share of the training rows between two values of a numeric feature, by its quantiles."""
    low, high = min(start, end), max(start, end)
    return max(0.0, _level(feature, high, "left") - _level(feature, low, "right"))


def _level(feature: Feature, value: float, side: Literal["left", "right"]) -> float:
    """Return the level of a value; of several that quantiles give it, the lowest (left) or the highest (right)."""
    quantiles = feature.quantiles
    assert quantiles is not None
    place = int(np.searchsorted(quantiles, value, side=side))
    if place == 0:
        return 0.0 if value < quantiles[0] else QUANTILE_LEVELS[0]
    if place == len(QUANTILE_LEVELS):
        return 1.0 if value > quantiles[-1] else QUANTILE_LEVELS[-1]
    low, high = quantiles[place - 1], quantiles[place]
    part = (value - low) / (high - low) if high > low else 0.0
    return QUANTILE_LEVELS[place - 1] + part * (QUANTILE_LEVELS[place] - QUANTILE_LEVELS[place - 1])


def is_whole(feature: Feature, own: float) -> bool:
    """Return whether a feature counts: its quantiles and the value that it has are whole numbers."""
    assert feature.quantiles is not None
    return all(float(value).is_integer() for value in (*feature.quantiles, own))
