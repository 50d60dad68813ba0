"""Rules of merchandising on one list, after the last stage.

Whatever the order in which they are written, exclusions act first, then factors on the odds, then diversity, then caps
and pins. Candidates that no rule touches keep their order.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import AppliedRule, CandidateList, Ranking
from listwright.ranking.errors import CandidateError, SchemaMismatchError
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.rules import (
    AnyRule,
    BoostRule,
    CapRule,
    Condition,
    DiversifyRule,
    ExcludeRule,
    PinRule,
    check_rules,
    is_number,
    names_of,
    quote,
)

BLOCK = 2**20
"""Values that are compared with conditions at a time, which bounds the memory."""

NOTHING = (math.inf, -math.inf)
"""A range without numbers."""

MOST_FAULTS = 10
"""Rules of a file that an answer names as not applied, because the bundle does not know what they name."""

SPACING = 2.0
"""Distance between missing values: nothing is alike beyond a distance of 1."""

T = TypeVar("T", bound=AnyRule)

Intervals = tuple[int, list[tuple[float, float]]]
"""A column, and the ranges of its values of which one must hold."""


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """A rule on one list.

    Args:
        rule, name: as written; as it is called.
        number: in its source, from 0.
        of_request: whether a request brought it, and not the file.
        candidates: indices of those that it selects; empty for caps and diversity.
    """

    rule: T
    name: str
    number: int
    of_request: bool
    candidates: Sequence[int] = ()

    def apply(self, candidates: Iterable[int]) -> AppliedRule:
        """Return the rule as applied to some candidates."""
        return AppliedRule(self.name, self.rule.action, tuple(candidates))


class RuleSet:
    """Rules of one source, prepared for the lists of one schema.

    Args:
        rules: as they were written.
        schema: of the lists.
        of_request: whether a request brought them. One of a file that the schema does not fit is not applied.

    Raises:
        SchemaMismatchError: if a rule of a request names a feature or a category that the schema has not.
        CandidateError: if two contradict each other whatever the list is, or there are too many conditions or caps.
    """

    def __init__(self, rules: Sequence[AnyRule], schema: FeatureSchema, *, of_request: bool = False) -> None:
        self._rules, self._of_request = rules, of_request
        self._names = names_of(rules, "rule" if of_request else "file rule")
        check_rules(rules, self._names)
        self.faults: list[AppliedRule] = []
        """Rules of a file that are not applied, with the reason."""
        self._for_all: list[Match[Any]] = []
        self._by_id: dict[str, list[int]] = {}
        wheres: dict[int, list[Intervals]] = {}
        for number, rule in enumerate(rules):
            ids: list[str] | None = None
            try:
                if rule.action == "pin":
                    ids = [rule.id]
                elif rule.action == "cap" or rule.action == "diversify":  # noqa: PLR1714 - mypy knows the type by it
                    for feature in [rule.by] if rule.action == "cap" else rule.by:
                        _column(schema, feature)
                    self._for_all.append(Match(rule, self._names[number], number, of_request))
                elif rule.where is None:
                    ids = rule.ids
                else:
                    wheres[number] = [_intervals(schema, *one) for one in rule.where.items()]
            except ValueError as error:
                if of_request:
                    message = f"{self._names[number]!r}: {error}"
                    raise SchemaMismatchError(message, expected=schema.names, path=("rules", number)) from None
                self.faults.append(AppliedRule(self._names[number], rule.action, (), str(error)))
            for one in dict.fromkeys(ids or ()):
                self._by_id.setdefault(one, []).append(number)
        # the ranges of all conditions as columns of one matrix, and where each condition's and each rule's begin
        self._conditional = tuple(wheres)
        conditions = list(chain.from_iterable(wheres.values()))
        ranges = [(column, *ends) for column, several in conditions for ends in several]
        self._columns = np.array([column for column, _, _ in ranges], dtype=np.intp)
        self._ends = np.array([ends for _, *ends in ranges], dtype=np.float32).reshape(-1, 2).T
        self._conditions = [0, *accumulate(len(several) for _, several in conditions)][:-1]
        self._starts = [0, *accumulate(map(len, wheres.values()))][:-1]

    def find(self, candidates: CandidateList) -> Iterator[Match[Any]]:
        """Yield the rules that select a candidate of the list, and all caps and diversity, as they are written."""
        selected: dict[int, list[int]] = {}
        if self._by_id and candidates.ids is not None:
            for index, name in enumerate(candidates.ids):
                if name in self._by_id:
                    for number in self._by_id[name]:
                        selected.setdefault(number, []).append(index)
        elif self._by_id and self._of_request:
            number = next(iter(self._by_id.values()))[0]
            message = f"{self._names[number]!r} names candidates by id, and they have none: send ids, or use where"
            raise CandidateError(message, ("rules", number))
        if self._conditional:
            hits = self._hits(candidates.features)
            for place in np.flatnonzero(hits.any(axis=0)).tolist():
                selected[self._conditional[place]] = np.flatnonzero(hits[:, place]).tolist()
        for number in sorted(selected):
            yield Match(self._rules[number], self._names[number], number, self._of_request, selected[number])
        yield from self._for_all

    def _hits(self, features: Float[np.ndarray, "L D"]) -> Bool[np.ndarray, "L R"]:
        """Return which candidates fulfil the conditions of each rule that has some."""
        low, high = self._ends
        rows = max(1, BLOCK // len(self._columns))
        blocks = []
        for start in range(0, len(features), rows):
            values = features[start : start + rows, self._columns]
            held = np.logical_or.reduceat((values >= low) & (values <= high), self._conditions, axis=1)
            blocks.append(np.logical_and.reduceat(held, self._starts, axis=1))
        return np.concatenate(blocks)


def _column(schema: FeatureSchema, name: str) -> int:
    """Return the column of a feature.

    Raises:
        ValueError: if the schema has none of this name.
    """
    column = schema.index.get(name)
    if column is None:
        raise ValueError(f"the bundle has no feature {quote(name)}: GET /info lists them")
    return column


def _intervals(schema: FeatureSchema, name: str, condition: Condition) -> Intervals:
    """Convert a condition to ranges of numbers in the feature matrix.

    Raises:
        ValueError: if the schema does not have the feature or a category, or the feature is of another kind.
    """
    column = _column(schema, name)
    feature = schema.features[column]
    if condition.values is None:
        if feature.kind == "categorical":
            raise ValueError(f"feature {name!r} is a category: it has no range")
        low = -math.inf if condition.min is None else condition.min
        return column, [(low, math.inf if condition.max is None else condition.max)]
    if feature.kind == "numeric":
        if not all(map(is_number, condition.values)):
            raise ValueError(f"feature {name!r} is numeric: expected numbers, or a range")
        return column, [(float(value), float(value)) for value in condition.values] or [NOTHING]
    codes = [feature.code(value) for value in condition.values]
    for value, code in zip(condition.values, codes, strict=True):
        if code == UNKNOWN_CODE:
            raise ValueError(f"the bundle knows no category {quote(str(value))} of {name!r}: select by ids")
    return column, [(code, code) for code in codes] or [NOTHING]


def apply_rules(
    ranking: Ranking, candidates: CandidateList, manifest: Manifest, rule_sets: Sequence[RuleSet]
) -> Ranking:
    """Return the ranking with its rules applied.

    Args:
        ranking: of any stage.
        candidates: that were ranked.
        manifest: of the bundle, with the temperatures of its scores.
        rule_sets: of this bundle's schema: the file's, then the request's.

    Returns:
        The same ranking where no rule touches a candidate. Else another order: excluded candidates are the last ones,
        and counted in ``excluded``. Scores stay those of the ranker.

    Raises:
        CandidateError: if a rule of the request contradicts another one, with both names, or pins a place beyond the
            list. Where two rules of the file contradict each other on this list, one is not applied: a pin against an
            exclusion, the later of two pins, a cap against pins, the later of two that diversify.
    """
    matches = [one for rules in rule_sets for one in rules.find(candidates)]
    faults = [one for rules in rule_sets for one in rules.faults[:MOST_FAULTS]]
    if not matches and not faults:
        return ranking
    return _Arrangement(ranking, candidates.features, manifest, matches, faults).ranked()


class _Arrangement:
    """One list while rules act on it.

    Args:
        ranking: before rules.
        features: of the candidates.
        manifest: of the bundle.
        matches: rules on this list.
        applied: rules that are not applied; the others are added.
    """

    def __init__(
        self,
        ranking: Ranking,
        features: Float[np.ndarray, "L D"],
        manifest: Manifest,
        matches: Sequence[Match[Any]],
        applied: list[AppliedRule],
    ) -> None:
        self._ranking, self._features, self._manifest = ranking, features, manifest
        self._matches, self._applied = matches, applied
        self._excluders: dict[int, Match[ExcludeRule]] = {}
        self._pins: dict[int, Match[PinRule]] = {}  # by place, from 0

    def ranked(self) -> Ranking:
        """Return the ranking with this order; the same one where nothing was touched."""
        order = self._ranking.order
        self._exclude()
        left = np.ones(len(order), dtype=bool)
        left[list(self._excluders)] = False
        queue = order[left[order]]
        self._reserve(len(queue))
        odds = np.zeros(len(queue))
        if any(type(one.rule) in (BoostRule, DiversifyRule) for one in self._matches):
            queue, odds = self._weigh(queue)
        left[[one.candidates[0] for one in self._pins.values()]] = False
        beside = left[queue]
        queue = self._hold_back(self._diversify(queue[beside], odds[beside]))
        if not self._applied:
            return self._ranking
        visible = np.empty(len(queue) + len(self._pins), dtype=order.dtype)
        free = np.ones(len(visible), dtype=bool)
        for place, one in self._pins.items():
            visible[place], free[place] = one.candidates[0], False
        visible[free] = queue
        left[visible] = True
        final = np.concatenate([visible, order[~left[order]]])
        return replace(self._ranking, order=final, rules=tuple(self._applied), excluded=len(self._excluders))

    def _of(self, kind: type[T]) -> list[Match[T]]:
        return [one for one in self._matches if type(one.rule) is kind]  # isinstance takes far longer

    def _lose(self, loser: Match[Any], message: str, winner: Match[Any] | None = None) -> None:
        """Record that a rule of the file is not applied.

        Raises:
            CandidateError: if it, or the one that it contradicts, is of the request.
        """
        if winner is not None:
            message = f"{winner.name!r} and {loser.name!r} contradict each other: {message}"
        for one in (loser, winner):
            if one is not None and one.of_request:
                raise CandidateError(message, ("rules", one.number))
        self._applied.append(AppliedRule(loser.name, loser.rule.action, (), message))

    def _exclude(self) -> None:
        for one in self._of(ExcludeRule):
            for index in one.candidates:
                self._excluders.setdefault(index, one)
            self._applied.append(one.apply(one.candidates))

    def _reserve(self, length: int) -> None:
        """Reserve the places of pins, in a list of so many candidates."""
        pinned: dict[int, Match[PinRule]] = {}
        for one in self._of(PinRule):
            rule, index, place = one.rule, one.candidates[0], one.rule.place - 1
            if index in self._excluders:
                self._lose(one, f"exclude and pin {quote(rule.id)}", self._excluders[index])
            elif place >= length:
                self._lose(one, f"{one.name!r} pins place {rule.place} of {length}: pin a place up to {length}")
            elif place in self._pins:
                self._lose(one, f"both pin place {rule.place}", self._pins[place])
            elif index in pinned:
                self._lose(one, f"both pin {quote(rule.id)}", pinned[index])
            else:
                self._pins[place] = pinned[index] = one
                self._applied.append(one.apply(one.candidates))

    def _weigh(self, queue: Int[np.ndarray, " queue"]) -> tuple[Int[np.ndarray, " queue"], Float[np.ndarray, " queue"]]:
        """Return the order by boosted odds, and their logarithms."""
        odds, shifts = self._log_odds(queue), np.zeros(len(self._features))
        for one in self._of(BoostRule):
            selected = [index for index in one.candidates if index not in self._excluders]
            if selected:
                shift = math.log(one.rule.factor)
                shifts[selected] += shift if one.rule.action == "boost" else -shift
                self._applied.append(one.apply(selected))
        odds = odds + shifts[queue]
        places = np.argsort(-odds, kind="stable")
        return queue[places], odds[places]

    def _log_odds(self, queue: Int[np.ndarray, " queue"]) -> Float[np.ndarray, " queue"]:
        """Return logarithms of the odds of each place to be chosen, up to a constant, from the best place on.

        The odds are those of the ranker's softmax. Below the cutoff they go on by the first stage's. Where an
        experiment made the order, the k-th place has the k-th highest odds; where nothing was scored, all are equal.
        """
        ranking, temperatures = self._ranking, self._manifest.temperatures
        strategy = ranking.route.strategy if ranking.stage_reached == "second_stage" else "first_stage"
        odds: Float[np.ndarray, " queue"] = ranking.scores[queue] / temperatures.get(strategy, 1.0)
        below = np.isnan(odds)
        if below.all():
            return np.zeros(len(odds))
        if below.any():
            first = ranking.first_stage_scores[queue[below]] / temperatures.get("first_stage", 1.0)
            odds[below] = odds[~below].min() - (first.max() - first)
        return np.sort(odds)[::-1]

    def _diversify(
        self, queue: Int[np.ndarray, " queue"], odds: Float[np.ndarray, " queue"]
    ) -> Int[np.ndarray, " queue"]:
        """Return the candidates beside pins, the first places chosen one by one (Carbonell and Goldstein 1998).

        Each place gets the candidate with the largest (1 - w) r - w s: r is its odds, as a share of the best one's, and
        s its likeness to the most alike of those chosen before and of those pinned. Likeness is the mean over features:
        of categories, whether they are equal; of numbers, 1 less the difference as a share of the list's range. Missing
        values and unknown categories are like no other.
        """
        rules = self._of(DiversifyRule)
        for other in rules[1:]:
            self._lose(other, "both diversify, and one a list is enough", rules[0])
        if not rules or len(queue) == 0:
            return queue
        one = rules[0]
        rule = one.rule
        pinned = [pin.candidates[0] for place, pin in self._pins.items() if place < rule.first]
        points = self._points(rule.by)
        others = points[queue]
        value = (1.0 - rule.weight) * np.exp(odds - odds[0])
        likeness = np.zeros(len(queue))
        for index in pinned:
            np.maximum(likeness, _likeness(others, points[index]), out=likeness)
        picks, early, first, left = list[int](), list[int](), 0, np.ones(len(queue), dtype=bool)
        for _ in range(min(rule.first - len(pinned), len(queue))):
            at = int(np.argmax(value - rule.weight * likeness))
            while not left[first]:
                first += 1
            if at != first:
                early.append(int(queue[at]))
            picks.append(at)
            left[at], value[at] = False, -np.inf
            np.maximum(likeness, _likeness(others, others[at]), out=likeness)
        if early:
            self._applied.append(one.apply(early))
        return np.concatenate([queue[picks], queue[left]])

    def _points(self, by: Sequence[str]) -> Float[np.ndarray, "L B"]:
        """Return candidates as points: numbers as shares of the list's range, equal categories at one place."""
        schema = self._manifest.feature_schema
        columns = [schema.index[name] for name in by]
        points = self._features[:, columns].astype(np.float64)
        for place, column in enumerate(columns):
            values = points[:, place]
            if schema.features[column].kind == "numeric":
                missing = np.isnan(values)
                lowest, highest = np.fmin.reduce(values), np.fmax.reduce(values)
                values -= lowest
                values /= highest - lowest or 1.0
            else:
                missing = values == UNKNOWN_CODE
            values[missing] = -SPACING * np.arange(1, np.count_nonzero(missing) + 1)
        return points

    def _hold_back(self, queue: Int[np.ndarray, " queue"]) -> Int[np.ndarray, " queue"]:
        """Return the candidates beside pins in an order that keeps to the caps.

        At each place stands the first candidate that no cap keeps back; where all are kept back, the first of them.
        Counts never fall while a cap's places last, so a candidate that is kept back is looked at again at such an end.
        """
        every = [_CapCount(one, self._features, self._manifest.feature_schema) for one in self._of(CapRule)]
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
            while waiting and (full := next((cap for cap in caps if cap.is_full(candidates[waiting[0]])), None)):
                holder[waiting[0]] = full
                held.append(waiting.popleft())
            placed.append((waiting or held).popleft())
            for cap in caps:
                cap.count(candidates[placed[-1]])
        if not holder:
            return queue
        order = np.array([*placed, *held, *waiting], dtype=np.intp)
        for at in order[np.maximum.accumulate(order) > order].tolist():
            holder[at].passed.append(candidates[at])
        self._applied += [cap.match.apply(cap.passed) for cap in every if cap.passed]
        return queue[order]

    def _fits_pins(self, cap: _CapCount) -> bool:
        """Count the pins within a cap's places; return whether the cap can hold."""
        for place in sorted(place for place in self._pins if place < cap.rule.first):
            pin = self._pins[place]
            if cap.is_full(pin.candidates[0]):
                what = f"more than {cap.rule.most} of one value are pinned among the first {cap.rule.first} places"
                self._lose(cap.match, what, pin)
                return False
            cap.count(pin.candidates[0])
        return True


class _CapCount:
    """Candidates among a cap's places, by the value of its feature."""

    def __init__(self, match: Match[CapRule], features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> None:
        self.rule, self.match = match.rule, match
        column = schema.index[match.rule.by]
        self._values: list[float] = features[:, column].tolist()
        self._unknown = UNKNOWN_CODE if schema.features[column].kind == "categorical" else None
        self._counts = Counter[float]()
        self.passed: list[int] = []
        """Candidates that were kept back while others passed them."""

    def is_full(self, candidate: int) -> bool:
        """Return whether there are as many of a candidate's value as may be."""
        return self._counts[self._values[candidate]] >= self.rule.most

    def count(self, candidate: int) -> None:
        """Count a candidate; a missing value or an unknown category is like no other."""
        value = self._values[candidate]
        if value == value and value != self._unknown:  # noqa: PLR0124 - NaN
            self._counts[value] += 1


def _likeness(points: Float[np.ndarray, "queue B"], point: Float[np.ndarray, " B"]) -> Float[np.ndarray, " queue"]:
    """Return how alike candidates are to another one, from 0 to 1."""
    likeness: Float[np.ndarray, " queue"] = 1.0 - np.minimum(np.abs(points - point), 1.0).sum(axis=1) / points.shape[1]
    return likeness
