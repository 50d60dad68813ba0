"""Rules of merchandising on one list, after the last stage.

Whatever the order in which they are written, exclusions act first, then factors on the odds, then diversity, then caps
and pins. Candidates that no rule touches keep their order.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import AppliedRule, CandidateList, Ranking
from listwright.ranking.errors import CandidateError
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.rules import (
    AnyRule,
    Boost,
    Cap,
    Condition,
    Diversify,
    Exclude,
    Pin,
    Range,
    check_rules,
    is_number,
    names_of,
    quote,
)

BLOCK = 2**20
"""Values that are compared with conditions at a time, which bounds the memory."""

T = TypeVar("T", bound=AnyRule)


class Condensed(NamedTuple):
    """Conditions of many rules as arrays: M values and ranges, of conditions, of rules.

    Args:
        columns, low, high: ``(M,)`` of each value or range, its feature and both ends.
        conditions: where the values of each condition begin.
        rules: where the conditions of each rule begin.
        numbers: of these rules.
    """

    columns: Int[np.ndarray, " M"]
    low: Float[np.ndarray, " M"]
    high: Float[np.ndarray, " M"]
    conditions: Int[np.ndarray, " C"]
    rules: Int[np.ndarray, " R"]
    numbers: tuple[int, ...]

    def hits(self, features: Float[np.ndarray, "L D"]) -> Bool[np.ndarray, "L R"]:
        """Return which candidates each rule selects."""
        rows = max(1, BLOCK // len(self.columns))
        blocks = []
        for start in range(0, len(features), rows):
            values = features[start : start + rows, self.columns]
            within = (values >= self.low) & (values <= self.high)
            blocks.append(
                np.logical_and.reduceat(np.logical_or.reduceat(within, self.conditions, axis=1), self.rules, axis=1)
            )
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


class _Match(NamedTuple):
    """A rule on one list.

    Args:
        rule, name: as written; as it is called.
        number: in its source, from 0.
        of_request: whether a request brought it, and not the file.
        candidates: indices of those that it selects; empty for caps and diversity.
    """

    rule: AnyRule
    name: str
    number: int
    of_request: bool
    candidates: Sequence[int] = ()

    def apply(self, candidates: Iterable[int]) -> AppliedRule:
        """Return the rule as applied to some candidates."""
        return AppliedRule(self.name, self.rule.action, tuple(candidates))


@dataclass(frozen=True)
class RuleSet:
    """Rules of one source, prepared for the lists of one schema.

    Args:
        rules: as they were written.
        schema: of the lists.
        of_request: whether a request brought them. One of a file that the schema does not fit is not applied.

    Raises:
        CandidateError: if a rule of a request names a feature or a category that the schema has not, if two contradict
            each other whatever the list is, or if there are too many conditions or caps; at the path of the rule.
    """

    rules: Sequence[AnyRule]
    schema: FeatureSchema
    of_request: bool = False
    names: tuple[str, ...] = field(init=False)
    faults: Mapping[int, str] = field(init=False)
    """Why rules of a file are not applied, by number."""
    _by_id: Mapping[str, list[int]] = field(init=False)
    _condensed: Condensed | None = field(init=False)

    def __post_init__(self) -> None:
        check_rules(self.rules, names := names_of(self.rules, "rule" if self.of_request else "file rule"))
        faults, by_id, wheres = dict[int, str](), dict[str, list[int]](), dict[int, list[_Intervals]]()
        for number, rule in enumerate(self.rules):
            try:
                if isinstance(rule, Cap | Diversify):
                    for feature in [rule.by] if isinstance(rule, Cap) else rule.by:
                        _column(self.schema, feature)
                elif not isinstance(rule, Pin) and rule.where is not None:
                    wheres[number] = [_intervals(self.schema, *one) for one in rule.where.items()]
            except ValueError as error:
                if self.of_request:
                    raise CandidateError(f"{names[number]!r}: {error}", ("rules", number)) from None
                faults[number] = str(error)
                continue
            ids = [rule.id] if isinstance(rule, Pin) else rule.ids if isinstance(rule, Exclude | Boost) else None
            for one in dict.fromkeys(ids or ()):
                by_id.setdefault(one, []).append(number)
        values = {"names": names, "faults": faults, "_by_id": by_id, "_condensed": _condense(wheres)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def find(self, candidates: CandidateList) -> Iterator[_Match]:
        """Yield the rules that select a candidate of the list, and caps and diversity, as they are written."""
        selected = self._select(candidates)
        for number, rule in enumerate(self.rules):
            if isinstance(rule, Cap | Diversify):
                if number not in self.faults:
                    yield _Match(rule, self.names[number], number, self.of_request)
            elif number in selected:
                yield _Match(rule, self.names[number], number, self.of_request, selected[number])

    def _select(self, candidates: CandidateList) -> dict[int, list[int]]:
        """Return the candidates of each rule that selects any, by its number."""
        selected: dict[int, list[int]] = {}
        if self._by_id and candidates.ids is not None:
            for index, name in enumerate(candidates.ids):
                for number in self._by_id.get(name, ()):
                    selected.setdefault(number, []).append(index)
        elif self._by_id and self.of_request:
            number = next(iter(self._by_id.values()))[0]
            message = f"{self.names[number]!r} names candidates by id, and they have none: send ids, or use where"
            raise CandidateError(message, ("rules", number))
        if self._condensed is None:
            return selected
        hits = self._condensed.hits(candidates.features)
        for place in np.flatnonzero(hits.any(axis=0)).tolist():
            selected[self._condensed.numbers[place]] = np.flatnonzero(hits[:, place]).tolist()
        return selected


_Intervals = tuple[int, list[tuple[float, float]]]
"""A column, and the ranges of its values of which one must hold."""


def _column(schema: FeatureSchema, name: str) -> int:
    """Return the column of a feature.

    Raises:
        ValueError: if the schema has none of this name.
    """
    column = schema.index.get(name)
    if column is None:
        raise ValueError(f"the bundle has no feature {quote(name)}: GET /info lists them")
    return column


def _intervals(schema: FeatureSchema, name: str, condition: Condition) -> _Intervals:
    """Convert a condition to ranges of numbers in the feature matrix.

    Raises:
        ValueError: if the schema does not have the feature or a category, or the feature is of another kind.
    """
    column = _column(schema, name)
    feature = schema.features[column]
    if feature.kind == "categorical":
        if isinstance(condition, Range):
            raise ValueError(f"feature {name!r} is a category: it has no range")
        codes = [feature.code(value) for value in condition]
        for value, code in zip(condition, codes, strict=True):
            if code == UNKNOWN_CODE:
                raise ValueError(f"the bundle knows no category {quote(str(value))} of {name!r}: select by ids")
        return column, [(code, code) for code in codes] or [_NOTHING]
    if isinstance(condition, Range):
        low, high = condition
        return column, [(-math.inf if low is None else low, math.inf if high is None else high)]
    if not all(map(is_number, condition)):
        raise ValueError(f"feature {name!r} is numeric: expected numbers, or a range {{min, max}}")
    return column, [(float(value), float(value)) for value in condition] or [_NOTHING]


_NOTHING = (math.inf, -math.inf)


def _condense(wheres: Mapping[int, list[_Intervals]]) -> Condensed | None:
    """Return the conditions of rules, by number, as arrays; None where there are none."""
    if not wheres:
        return None
    conditions = list(chain.from_iterable(wheres.values()))
    flat = [(column, *interval) for column, intervals in conditions for interval in intervals]
    columns, low, high = zip(*flat, strict=True)
    return Condensed(
        np.array(columns),
        np.array(low, dtype=np.float32),
        np.array(high, dtype=np.float32),
        _starts(len(intervals) for _, intervals in conditions),
        _starts(map(len, wheres.values())),
        tuple(wheres),
    )


def _starts(lengths: Iterable[int]) -> Int[np.ndarray, " N"]:
    """Return where parts begin that stand one behind the other."""
    ends = np.cumsum(list(lengths))
    return np.concatenate([[0], ends[:-1]])


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
    lost = [
        AppliedRule(rules.names[number], rules.rules[number].action, (), reason)
        for rules in rule_sets
        for number, reason in rules.faults.items()
    ]
    if not matches and not lost:
        return ranking
    return _Arrangement(ranking, candidates, manifest, matches, lost).ranked()


class _Arrangement:
    """One list while rules act on it."""

    def __init__(
        self,
        ranking: Ranking,
        candidates: CandidateList,
        manifest: Manifest,
        matches: Sequence[_Match],
        applied: list[AppliedRule],
    ) -> None:
        self._ranking, self._features, self._manifest = ranking, candidates.features, manifest
        self._matches, self._applied = matches, applied
        self._excluders: dict[int, _Match] = {}
        self._pins: dict[int, _Match] = {}  # by place, from 0

    def ranked(self) -> Ranking:
        """Return the ranking with this order; the same one where nothing was touched."""
        ranking, order = self._ranking, self._ranking.order
        self._exclude()
        visible = order
        if self._excluders:
            visible = order[[index not in self._excluders for index in order.tolist()]]
        self._pin(len(visible))
        queue, odds = self._weigh(visible)
        if self._pins:
            free = ~np.isin(queue, [one.candidates[0] for one in self._pins.values()])
            queue, odds = queue[free], odds[free]
        queue = self._diversify(queue, odds)
        placed = self._arrange(queue)
        if not self._applied:
            return ranking
        last = [index for index in order.tolist() if index in self._excluders]
        return replace(
            ranking,
            order=np.concatenate([placed, np.array(last, dtype=order.dtype)]),
            rules=tuple(self._applied),
            excluded=len(self._excluders),
        )

    def _of(self, kind: type[T]) -> Iterator[tuple[T, _Match]]:
        return ((one.rule, one) for one in self._matches if isinstance(one.rule, kind))

    def _lose(self, loser: _Match, winner: _Match, what: str) -> None:
        """Record that a rule of the file is not applied.

        Raises:
            CandidateError: if one of both is of the request.
        """
        message = f"{winner.name!r} and {loser.name!r} contradict each other: {what}"
        for one in (loser, winner):
            if one.of_request:
                raise CandidateError(message, ("rules", one.number))
        self._applied.append(AppliedRule(loser.name, loser.rule.action, (), message))

    def _exclude(self) -> None:
        for _, one in self._of(Exclude):
            for index in one.candidates:
                self._excluders.setdefault(index, one)
            self._applied.append(one.apply(one.candidates))

    def _pin(self, visible: int) -> None:
        """Reserve the places of pins."""
        of_candidate: dict[int, _Match] = {}
        for rule, one in self._of(Pin):
            index, place = one.candidates[0], rule.place - 1
            if index in self._excluders:
                self._lose(one, self._excluders[index], f"exclude and pin {quote(rule.id)}")
            elif place >= visible:
                message = f"{one.name!r} pins place {rule.place}, and {visible} candidates are left: pin a higher place"
                if one.of_request:
                    raise CandidateError(message, ("rules", one.number))
                self._applied.append(AppliedRule(one.name, rule.action, (), message))
            elif place in self._pins:
                self._lose(one, self._pins[place], f"both pin place {rule.place}")
            elif index in of_candidate:
                self._lose(one, of_candidate[index], f"both pin {quote(rule.id)}")
            else:
                self._pins[place] = of_candidate[index] = one
                self._applied.append(one.apply(one.candidates))

    def _weigh(self, visible: Int[np.ndarray, " S"]) -> tuple[Int[np.ndarray, " S"], Float[np.ndarray, " S"]]:
        """Return the order by boosted odds, and their logarithms."""
        if not any(isinstance(one.rule, Boost | Diversify) for one in self._matches):
            return visible, np.zeros(len(visible))
        shift, boosts = np.zeros(len(self._features)), False
        for rule, one in self._of(Boost):
            selected = [index for index in one.candidates if index not in self._excluders]
            if selected:
                shift[selected] += math.log(rule.factor) if rule.action == "boost" else -math.log(rule.factor)
                self._applied.append(one.apply(selected))
                boosts = True
        odds = self._log_odds(visible)
        if not boosts:
            return visible, odds
        odds += shift[visible]
        places = np.argsort(-odds, kind="stable")
        return visible[places], odds[places]

    def _log_odds(self, visible: Int[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
        """Return logarithms of the odds of each place to be chosen, up to a constant, from the best place on.

        The odds are those of the ranker's softmax. Below the cutoff they go on by the first stage's. Where an
        experiment made the order, the k-th place has the k-th highest odds; where nothing was scored, all are equal.
        """
        ranking, temperatures = self._ranking, self._manifest.temperatures
        strategy = ranking.route.strategy if ranking.stage_reached == "second_stage" else "first_stage"
        odds: Float[np.ndarray, " S"] = ranking.scores[visible] / temperatures.get(strategy, 1.0)
        below = np.isnan(odds)
        if below.all():
            return np.zeros(len(odds))
        if below.any():
            first = ranking.first_stage_scores[visible[below]] / temperatures.get("first_stage", 1.0)
            odds[below] = odds[~below].min() - (first.max() - first)
        return np.sort(odds)[::-1]

    def _diversify(self, queue: Int[np.ndarray, " Q"], odds: Float[np.ndarray, " Q"]) -> Int[np.ndarray, " Q"]:
        """Return the candidates beside pins, the first places chosen one by one (Carbonell and Goldstein 1998).

        Each place gets the candidate with the largest (1 - w) r - w s: r is its odds, as a share of the best one's, and
        s its likeness to the most alike of those chosen before and of those pinned. Likeness is the mean over features:
        of categories, whether they are equal; of numbers, 1 less the difference as a share of the list's range. Missing
        values and unknown categories are like no other.
        """
        chosen = None
        for rule, one in self._of(Diversify):
            if chosen is None:
                chosen = rule, one
            else:
                self._lose(one, chosen[1], "both diversify: one a list is enough")
        if chosen is None or len(queue) == 0:
            return queue
        rule, one = chosen
        pinned = [pin.candidates[0] for place, pin in self._pins.items() if place < rule.first]
        points = self._points(np.concatenate([queue, pinned]).astype(np.intp), rule.by)
        value = (1.0 - rule.weight) * np.exp(odds - odds[0])
        alike = np.zeros(len(queue))
        for at in range(len(queue), len(points)):
            _raise_likeness(alike, points, at)
        picks, first, early = list[int](), 0, list[int]()
        left = np.ones(len(queue), dtype=bool)
        for _ in range(min(rule.first - len(pinned), len(queue))):
            at = int(np.argmax(value - rule.weight * alike))
            while not left[first]:
                first += 1
            if at != first:
                early.append(int(queue[at]))
            picks.append(at)
            left[at], value[at] = False, -np.inf
            _raise_likeness(alike, points, at)
        if early:
            self._applied.append(one.apply(early))
        return np.concatenate([queue[picks], queue[left]])

    def _points(self, indices: Int[np.ndarray, " P"], by: Sequence[str]) -> Float[np.ndarray, "P B"]:
        """Return candidates as points: numbers as shares of the list's range, equal categories at one place."""
        schema = self._manifest.feature_schema
        columns = [schema.index[name] for name in by]
        points = self._features[:, columns].astype(np.float64)
        for place, column in enumerate(columns):
            values = points[:, place]
            if schema.features[column].kind == "numeric":
                there = ~np.isnan(values)
                lowest, highest = values[there].min(initial=np.inf), values[there].max(initial=-np.inf)
                values -= lowest
                values /= highest - lowest or 1.0
            else:
                there = values != UNKNOWN_CODE
            values[~there] = _FAR * np.arange(1, np.count_nonzero(~there) + 1)
        chosen: Float[np.ndarray, "P B"] = points[indices]
        return chosen

    def _arrange(self, queue: Int[np.ndarray, " Q"]) -> Int[np.ndarray, " S"]:
        """Return candidates by place: pins where they are pinned, the others in order, as far as caps allow it.

        At each place stands the first candidate that no cap keeps back; where all are kept back, the first of them.
        """
        caps = [_CapCount(rule, one, self._features, self._manifest.feature_schema) for rule, one in self._of(Cap)]
        caps = [cap for cap in caps if self._fits_pins(cap)]
        if caps:
            queue = self._hold_back(queue, caps)
        order = np.empty(len(queue) + len(self._pins), dtype=queue.dtype)
        free = np.ones(len(order), dtype=bool)
        for place, one in self._pins.items():
            order[place], free[place] = one.candidates[0], False
        order[free] = queue
        return order

    def _fits_pins(self, cap: _CapCount) -> bool:
        """Count the pins within a cap's places; return whether the cap can hold."""
        for place in sorted(place for place in self._pins if place < cap.rule.first):
            pin = self._pins[place]
            if cap.is_full(pin.candidates[0]):
                what = f"the pins among the first {cap.rule.first} places are more than {cap.rule.most} of one value"
                self._lose(cap.match, pin, what)
                return False
            cap.count(pin.candidates[0])
        return True

    def _hold_back(self, queue: Int[np.ndarray, " Q"], caps: list[_CapCount]) -> Int[np.ndarray, " Q"]:
        """Return the candidates beside pins in an order that keeps to the caps.

        Counts never fall while a cap's places last, so that a candidate is looked at once for each different end.
        """
        waiting, held, placed = deque(queue.tolist()), deque[_Held](), list[int]()
        every, total, passed = caps, len(queue) + len(self._pins), 0
        for place in range(min(total, max(cap.rule.first for cap in caps))):
            if any(cap.rule.first == place for cap in caps):
                caps = [cap for cap in caps if cap.rule.first > place]
                waiting.extendleft(one.candidate for one in reversed(held))
                _note_passed(held, passed)
                held.clear()
            if place in self._pins:
                continue
            while waiting and (full := next((cap for cap in caps if cap.is_full(waiting[0])), None)) is not None:
                held.append(_Held(waiting.popleft(), full, passed))
            if waiting:
                placed.append(waiting.popleft())
                passed += 1
            else:
                placed.append(held[0].candidate)
                _note_passed([held.popleft()], passed)
            for cap in caps:
                cap.count(placed[-1])
        _note_passed(held, passed)
        self._applied += [cap.match.apply(cap.passed) for cap in every if cap.passed]
        return np.array([*placed, *(one.candidate for one in held), *waiting], dtype=queue.dtype)


class _CapCount:
    """Candidates among a cap's places, by the value of its feature."""

    def __init__(self, rule: Cap, match: _Match, features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> None:
        self.rule, self.match = rule, match
        column = schema.index[rule.by]
        self._values: list[float] = features[:, column].tolist()
        self._categorical = schema.features[column].kind == "categorical"
        self._counts = Counter[float]()
        self.passed: dict[int, None] = {}
        """Candidates that were kept back while others passed them."""

    def is_full(self, candidate: int) -> bool:
        """Return whether there are as many of a candidate's value as may be."""
        return self._counts[self._values[candidate]] >= self.rule.most

    def count(self, candidate: int) -> None:
        """Count a candidate; a missing value or an unknown category is like no other."""
        value = self._values[candidate]
        if not (math.isnan(value) or (self._categorical and value == UNKNOWN_CODE)):
            self._counts[value] += 1


class _Held(NamedTuple):
    """A candidate that a cap keeps back, and how many had been placed in order by then."""

    candidate: int
    cap: _CapCount
    passed: int


def _note_passed(held: Iterable[_Held], passed: int) -> None:
    """Note at the caps which candidates others have passed."""
    for one in held:
        if one.passed < passed:
            one.cap.passed[one.candidate] = None


_FAR = -2.0
"""Distance from one missing value to the next; from [0, 1] and from all codes it is larger, too."""


def _raise_likeness(alike: Float[np.ndarray, " Q"], points: Float[np.ndarray, "P B"], at: int) -> None:
    """Raise the likeness of candidates to that of one point, where it is higher."""
    distances = np.minimum(np.abs(points[: len(alike)] - points[at]), 1.0)
    np.maximum(alike, 1.0 - distances.mean(axis=1), out=alike)
