"""Rules of merchandising on one list, after the last stage.

Whatever the order in which they are written, exclusions act first, then cutoffs, factors on the odds, diversity, and at
last caps and pins. Candidates that no rule touches keep their order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import AppliedRule, CandidateList, Ranking
from listwright.ranking.errors import CandidateError, SchemaMismatchError
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import log_odds
from listwright.ranking.rules.schema import (
    MOST_COMPARISONS,
    AnyRule,
    BoostRule,
    CapRule,
    Condition,
    CutoffRule,
    DiversifyRule,
    ExcludeRule,
    PinRule,
    check_rules,
    is_number,
    names_of,
    quote,
)

MOST_FAULTS = 10
"""Rules of a file that an answer names as not applied, because the bundle does not know what they name."""

SPACING = 2.0
"""Distance between missing values: nothing is alike beyond a distance of 1."""

ROUNDING = 2.0**-46
"""Share of the largest number in a comparison, 64 units in its last place, below which a difference is rounding."""

T = TypeVar("T", bound=AnyRule)

Ends = Float[np.ndarray, "R 1"]

Intervals = tuple[int, Ends, Ends]
"""A column, and the lowest and the highest numbers of ranges, of which one must hold."""


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """A rule on one list.

    Args:
        rule: Rule as it was written.
        name: Name of the rule; its kind and number where it has none.
        number: Position of the rule in its source, from 0.
        of_request: Whether a request brought the rule, and not the file.
        candidates: Indices of the candidates that the rule selects; empty for cutoffs, caps and diversity.
    """

    rule: T
    name: str
    number: int
    of_request: bool
    candidates: Int[np.ndarray, " S"]

    def apply(self, candidates: Sequence[int]) -> AppliedRule:
        """Return the rule as applied to some candidates."""
        return AppliedRule(self.name, self.rule.action, tuple(candidates))


class RuleSet:
    """Rules of one source, prepared for the lists of one schema.

    Args:
        rules: Rules as they were written.
        schema: Schema of the lists.
        of_request: Whether a request brought the rules. One of a file that the schema does not fit is not applied.

    Raises:
        SchemaMismatchError: if a rule of a request names a feature or a category that the schema has not.
        CandidateError: if two contradict each other whatever the list is, or there are too many conditions or caps.
    """

    def __init__(self, rules: Sequence[AnyRule], schema: FeatureSchema, *, of_request: bool = False) -> None:
        self.rules, self.schema, self._of_request = rules, schema, of_request
        self._names = names_of(rules, "rule" if of_request else "file rule")
        check_rules(rules, self._names, of_request=of_request)
        self.faults: list[AppliedRule] = []
        """Rules of a file that are not applied, with the reason."""
        self._for_all: list[Match[Any]] = []
        self._by_id: dict[str, list[int]] = {}
        self._conditions: dict[int, list[Intervals]] = {}
        for number, rule in enumerate(rules):
            ids: list[str] | None = None
            try:
                if rule.action == "pin":
                    ids = [rule.id]
                elif rule.action == "cutoff":
                    self._for_all.append(Match(rule, self._names[number], number, of_request, np.empty(0, np.intp)))
                elif rule.action == "cap" or rule.action == "diversify":  # noqa: PLR1714 - mypy knows the type by it
                    for feature in [rule.by] if rule.action == "cap" else rule.by:
                        _column(schema, feature)
                    self._for_all.append(Match(rule, self._names[number], number, of_request, np.empty(0, np.intp)))
                elif rule.where is None:
                    ids = rule.ids
                else:
                    self._conditions[number] = [_intervals(schema, *condition) for condition in rule.where.items()]
            except ValueError as error:
                if of_request:
                    message = f"{self._names[number]!r}: {error}"
                    raise SchemaMismatchError(message, expected=schema.names, path=("rules", number)) from None
                self.faults.append(AppliedRule(self._names[number], rule.action, (), str(error)))
            for candidate_id in dict.fromkeys(ids or ()):
                self._by_id.setdefault(candidate_id, []).append(number)
        ranges = sum(len(low) for several in self._conditions.values() for _, low, _ in several)
        self.needs_probability = any(rule.action == "cutoff" for rule in rules)
        """Whether a rule acts only on a ranking with probabilities."""
        self.comparisons = ranges + len(rules)
        """Values and ranges of all rules, and rules: what the time of a list's candidate grows with."""

    def find(self, candidates: CandidateList) -> Iterator[Match[Any]]:
        """Yield the rules that select a candidate of the list, and all cutoffs, caps and diversity, in written order.

        Raises:
            CandidateError: if a request's rules select by ids, and the list has none, or compare too much.
        """
        if self._of_request and (count := self.comparisons * len(candidates)) > MOST_COMPARISONS:
            raise CandidateError(
                f"all rules together make {count} comparisons: rules, their values and ranges, times candidates. The "
                f"limit is {MOST_COMPARISONS}: send fewer",
                ("rules",),
            )
        selected: dict[int, Any] = {}
        if self._by_id and candidates.ids is not None:
            for index, name in enumerate(candidates.ids):
                if name in self._by_id:
                    for number in self._by_id[name]:
                        selected.setdefault(number, []).append(index)
        elif self._by_id and self._of_request:
            number = next(iter(self._by_id.values()))[0]
            message = f"{self._names[number]!r} names candidates by id, and they have none: send ids, or use where"
            raise CandidateError(message, ("rules", number))
        for number, conditions in self._conditions.items():
            held = np.ones(len(candidates), dtype=bool)
            for column, low, high in conditions:
                values = candidates.features[:, column]
                held &= np.logical_or.reduce((values >= low) & (values <= high))
            if len(indices := held.nonzero()[0]):
                selected[number] = indices
        for number in sorted(selected):
            indices = np.asarray(selected[number])
            yield Match(self.rules[number], self._names[number], number, self._of_request, indices)
        yield from self._for_all


def _column(schema: FeatureSchema, name: str) -> int:
    """Return the column of a feature; ValueError if the schema has none of this name."""
    column = schema.index.get(name)
    if column is None:
        raise ValueError(f"the bundle has no feature {quote(name)}: GET /info lists them")
    return column


def _intervals(schema: FeatureSchema, name: str, condition: Condition) -> Intervals:
    """Convert a condition to ranges of numbers in the feature matrix; ValueError if it does not fit the schema."""
    column = _column(schema, name)
    feature, values = schema.features[column], condition.values
    if values is None:
        if feature.kind == "categorical":
            raise ValueError(f"feature {name!r} is a category: it has no range")
        low = -math.inf if condition.min is None else condition.min
        high = math.inf if condition.max is None else condition.max
        return column, np.array([[low]], dtype=np.float32), np.array([[high]], dtype=np.float32)
    if feature.kind == "categorical":
        codes = [feature.code(value) for value in values]
        if UNKNOWN_CODE in codes:
            unknown = values[codes.index(UNKNOWN_CODE)]
            raise ValueError(f"the bundle knows no category {quote(str(unknown))} of {name!r}: select by ids")
        values = codes
    elif not all(map(is_number, values)):
        raise ValueError(f"feature {name!r} is numeric: expected numbers, or a range")
    equal = np.array(values, dtype=np.float32).reshape(-1, 1)
    return column, equal, equal


def apply_rules(
    ranking: Ranking, candidates: CandidateList, manifest: Manifest, rule_sets: Sequence[RuleSet]
) -> Ranking:
    """Return the ranking with its rules applied.

    Args:
        ranking: Ranking by any stage.
        candidates: Candidates that were ranked.
        manifest: Manifest of the bundle, with the temperatures of its scores.
        rule_sets: Rules prepared for this bundle's schema: the file's, then the request's.

    Returns:
        The same ranking where no rule touches a candidate. Else another order: excluded candidates are the last ones,
        and counted in ``excluded``. Scores stay those of the ranker.

    Raises:
        CandidateError: if a rule of the request contradicts another one, with both names, or pins a place beyond the
            list. Where two rules of the file contradict each other on this list, one is not applied: a pin against an
            exclusion, the later of two pins, a cap against pins, the later of two that diversify.
    """
    matches = [match for rules in rule_sets for match in rules.find(candidates)]
    faults = [fault for rules in rule_sets for fault in rules.faults[:MOST_FAULTS]]
    if not matches and not faults:
        return ranking
    return _Arrangement(ranking, candidates.features, manifest, matches, faults).ranked()


class _Arrangement:
    """One list while rules act on it; ``applied`` has those that are not applied, and gets the others."""

    def __init__(
        self,
        ranking: Ranking,
        features: Float[np.ndarray, "L D"],
        manifest: Manifest,
        matches: Sequence[Match[Any]],
        applied: list[AppliedRule],
    ) -> None:
        self._ranking, self._features, self._manifest = ranking, features, manifest
        self._applied = applied
        self._matches: dict[type, list[Match[Any]]] = {}
        for match in matches:
            self._matches.setdefault(type(match.rule), []).append(match)
        self._left = np.ones(len(features), dtype=bool)
        """Candidates that no rule excludes, and later on those that none pins, either."""
        self._pins: dict[int, Match[PinRule]] = {}  # by place, from 0

    def ranked(self) -> Ranking:
        """Return the ranking with this order; the same one where nothing was touched."""
        order, left = self._ranking.order, self._left
        for match in self._of(ExcludeRule):
            left[match.candidates] = False
            self._applied.append(match.apply(match.candidates.tolist()))
        self._reserve(int(np.count_nonzero(left)))
        self._cut_off()
        visible = left[order]
        queue, excluded = order[visible], order[~visible]
        queue, odds = self._weigh(queue)
        if self._pins:
            left[[pin.candidates[0] for pin in self._pins.values()]] = False
            beside = left[queue]
            queue, odds = queue[beside], odds[beside]
        queue = self._hold_back(self._diversify(queue, odds))
        if not self._applied:
            return self._ranking
        final = np.concatenate([queue, excluded])
        if self._pins:
            free = np.ones(len(order), dtype=bool)
            free[[*self._pins]] = False
            final, others = np.empty_like(order), final
            final[free] = others
            for place, pin in self._pins.items():
                final[place] = pin.candidates[0]
        return replace(self._ranking, order=final, rules=tuple(self._applied), excluded=len(excluded))

    def _cut_off(self) -> None:
        """Exclude what is probably not relevant and not pinned; a list without probabilities stays whole."""
        if CutoffRule not in self._matches:
            return
        probability, free = self._ranking.probability, self._left.copy()
        free[[int(pin.candidates[0]) for pin in self._pins.values()]] = False
        for match in self._of(CutoffRule):
            if probability is None:
                reason = "the list has no probabilities: its bundle gives none, or there was no time for them"
                self._applied.append(AppliedRule(match.name, match.rule.action, (), reason))
            elif len(below := np.flatnonzero(free & (probability < match.rule.min_probability))):
                self._left[below] = False
                self._applied.append(match.apply(below.tolist()))
        place, pins = int(np.count_nonzero(self._left)), self._pins
        self._pins = {}
        for pinned in sorted(pins, reverse=True):  # a caller cannot know how many are left: pins beyond them move up
            place = min(pinned, place - 1)
            self._pins[place] = pins[pinned]

    def _of(self, kind: type[T]) -> list[Match[T]]:
        return self._matches.get(kind, [])

    def _lose(self, loser: Match[Any], message: str, winner: Match[Any] | None = None) -> None:
        """Record that a rule is not applied; CandidateError if it, or the one that it contradicts, is of a request."""
        if winner is not None:
            message = f"{winner.name!r} and {loser.name!r} contradict each other: {message}"
        for match in (loser, winner):
            if match is not None and match.of_request:
                raise CandidateError(message, ("rules", match.number))
        self._applied.append(AppliedRule(loser.name, loser.rule.action, (), message))

    def _reserve(self, length: int) -> None:
        """Reserve the places of pins, in a list of so many candidates."""
        pinned: dict[int, Match[PinRule]] = {}
        for match in self._of(PinRule):
            rule, index, place = match.rule, int(match.candidates[0]), match.rule.place - 1
            if not self._left[index]:
                excluder = next(other for other in self._of(ExcludeRule) if index in other.candidates)
                self._lose(match, f"exclude and pin {quote(rule.id)}", excluder)
            elif place >= length:
                self._lose(match, f"{match.name!r} pins place {rule.place} of {length}: pin a place up to {length}")
            elif place in self._pins:
                self._lose(match, f"both pin place {rule.place}", self._pins[place])
            elif index in pinned:
                self._lose(match, f"both pin {quote(rule.id)}", pinned[index])
            else:
                self._pins[place] = pinned[index] = match
                self._applied.append(match.apply([index]))

    def _weigh(self, queue: Int[np.ndarray, " queue"]) -> tuple[Int[np.ndarray, " queue"], Float[np.ndarray, " queue"]]:
        """Return the order by boosted odds, and their logarithms; in the ranker's where these differ by rounding."""
        boosts = self._of(BoostRule)
        if len(queue) == 0 or not (boosts or DiversifyRule in self._matches):
            return queue, np.zeros(len(queue))
        ranking, first_temperature = self._ranking, self._manifest.temperatures.get("first_stage", 1.0)
        scores: Float[np.ndarray, " queue"] = ranking.scores[queue]
        odds = np.zeros(len(queue))
        if not np.isnan(scores).all():
            odds = log_odds(scores, ranking.first_stage_scores[queue], ranking.temperature, first_temperature)
            odds = np.sort(odds)[::-1]  # the k-th place has the k-th highest, also where an experiment made the order
        if not boosts:
            return queue, odds
        shifts, largest = np.zeros(len(self._features)), -float(odds[-1])
        for match in boosts:
            selected = match.candidates[self._left[match.candidates]]
            if len(selected):
                shift = math.log(match.rule.factor)
                largest += shift
                shifts[selected] += shift if match.rule.action == "boost" else -shift
                self._applied.append(match.apply(selected.tolist()))
        odds = odds + shifts[queue]
        places = (-odds).argsort(kind="stable")
        odds = odds[places]
        apart = odds[:-1] - odds[1:] > ROUNDING * largest
        if not apart.all():
            groups = np.concatenate([[0], np.cumsum(apart)])
            places, odds = places[np.lexsort((places, groups))], odds[np.searchsorted(groups, groups)]
        return queue[places], odds

    def _diversify(
        self, queue: Int[np.ndarray, " queue"], odds: Float[np.ndarray, " queue"]
    ) -> Int[np.ndarray, " queue"]:
        """Return the candidates beside pins, the first places by maximal marginal relevance."""
        rules = self._of(DiversifyRule)
        for other in rules[1:]:
            self._lose(other, "both diversify, and one a list is enough", rules[0])
        if not rules or len(queue) == 0:
            return queue
        match = rules[0]
        rule = match.rule
        pinned = [int(pin.candidates[0]) for place, pin in self._pins.items() if place < rule.first]
        points = self._points(rule.by)
        others = points[:, queue]
        # each place gets the largest (1 - w) r - w s (Carbonell and Goldstein, 1998): r is the odds as a share of the
        # best one's, s the likeness to the most alike of those chosen before and of those pinned
        value = (1.0 - rule.weight) * np.exp(odds - odds[0])
        likeness = np.zeros(len(queue))
        for index in pinned:
            np.maximum(likeness, _likeness(others, points[:, index]), out=likeness)
        picks, early, first, left = list[int](), list[int](), 0, np.ones(len(queue), dtype=bool)
        for _ in range(min(rule.first - len(pinned), len(queue))):
            merit = value - rule.weight * likeness
            at = int((merit >= merit.max() - ROUNDING).argmax())
            while not left[first]:
                first += 1
            if at != first:
                early.append(int(queue[at]))
            picks.append(at)
            left[at], value[at] = False, -np.inf
            np.maximum(likeness, _likeness(others, others[:, at]), out=likeness)
        if early:
            self._applied.append(match.apply(early))
        return np.concatenate([queue[picks], queue[left]])

    def _points(self, by: Sequence[str]) -> Float[np.ndarray, "B L"]:
        """Return candidates as points: numbers as shares of the list's range, equal categories at one place."""
        schema = self._manifest.feature_schema
        columns = [schema.index[name] for name in by]
        points = self._features.T[columns].astype(np.float64)
        for column, values in zip(columns, points, strict=True):  # rows of the matrix, which is changed
            if schema.features[column].kind == "numeric":
                missing = np.isnan(values)
                values[:] = values - np.fmin.reduce(values)
                values[:] = values / (np.fmax.reduce(values) or 1.0)
            else:
                missing = values == UNKNOWN_CODE
            values[missing] = -SPACING * np.arange(1, np.count_nonzero(missing) + 1)
        return points

    def _hold_back(self, queue: Int[np.ndarray, " queue"]) -> Int[np.ndarray, " queue"]:
        """Return the candidates beside pins: at each place the first that no cap keeps back, or else the first."""
        # counts never fall while a cap's places last: a candidate that is kept back is looked at again at such an end
        every = [_CapCount(match, self._features, self._manifest.feature_schema) for match in self._of(CapRule)]
        every = caps = [cap for cap in every if self._fits_pins(cap)]
        if not caps:
            return queue
        candidates = queue.tolist()
        waiting, held, placed = deque(range(len(queue))), deque[int](), list[int]()
        holder, ends = dict[int, _CapCount](), {cap.rule.first for cap in caps}
        for place in range(min(len(queue) + len(self._pins), max(ends))):
            if place in ends:
                caps = [cap for cap in caps if cap.rule.first > place]
                waiting.extendleft(reversed(held))
                held.clear()
            if place in self._pins:
                continue
            while waiting:
                at = waiting.popleft()
                full = [cap for cap in caps if cap.is_full(candidates[at])]
                if not full:
                    break
                holder[at] = full[0]
                held.append(at)
            else:
                at = held.popleft()
            placed.append(at)
            for cap in caps:
                cap.count(candidates[at])
        if not holder:
            return queue
        front = [*placed, *held]
        last = max(front)
        while len(front) <= last:  # what was kept back until a cap's end, and has not been placed since
            front.append(waiting.popleft())
        last = -1
        for at in front:
            if at < last:
                holder[at].passed.append(candidates[at])
            last = max(last, at)
        self._applied += [cap.match.apply(cap.passed) for cap in every if cap.passed]
        return np.concatenate([queue[front], queue[len(front) :]])

    def _fits_pins(self, cap: _CapCount) -> bool:
        """Count the pins within a cap's places; return whether the cap can hold."""
        for place in sorted(place for place in self._pins if place < cap.rule.first):
            pin = self._pins[place]
            if cap.is_full(int(pin.candidates[0])):
                what = f"more than {cap.rule.most} of one value are pinned among the first {cap.rule.first} places"
                self._lose(cap.match, what, pin)
                return False
            cap.count(int(pin.candidates[0]))
        return True


class _CapCount:
    """Candidates among a cap's places, by the value of its feature."""

    def __init__(self, match: Match[CapRule], features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> None:
        self.rule, self.match = match.rule, match
        column = schema.index[match.rule.by]
        self._values: list[float] = features[:, column].tolist()
        self._unknown = UNKNOWN_CODE if schema.features[column].kind == "categorical" else None
        self._counts: dict[float, int] = {}
        self.passed: list[int] = []
        """Candidates that were kept back while others passed them."""

    def is_full(self, candidate: int) -> bool:
        """Return whether there are as many of a candidate's value as may be."""
        return self._counts.get(self._values[candidate], 0) >= self.rule.most

    def count(self, candidate: int) -> None:
        """Count a candidate; a missing value or an unknown category is like no other."""
        value = self._values[candidate]
        if value == value and value != self._unknown:  # noqa: PLR0124 - NaN
            self._counts[value] = self._counts.get(value, 0) + 1


def _likeness(points: Float[np.ndarray, "B queue"], point: Float[np.ndarray, " B"]) -> Float[np.ndarray, " queue"]:
    """Return how alike candidates are to another one, from 0 to 1."""
    apart = np.minimum(np.abs(points - point[:, np.newaxis]), 1.0)
    likeness: Float[np.ndarray, " queue"] = 1.0 - apart.sum(axis=0) / len(point)
    return likeness
