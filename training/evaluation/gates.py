"""Gains, segments and gates of measured rankings, with intervals that keep their level for few lists."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import RecipeError
from listwright.ranking.manifest import Metric
from listwright.training.evaluation.intervals import ALPHA, FEWEST, bound_mean, lists_needed
from listwright.training.evaluation.protocol import HEADLINE, METRICS, Estimate, Evaluation, weighted_mean
from listwright.training.evaluation.reliability import RELIABILITY, StatedProbabilities

MOST_SEGMENTS = 50
"""Values of a column that are segments of their own: those with the most lists."""

OTHERS = "(others)"
"""Name of the segment of all other values."""


Verdict = Literal["holds", "broken", "undecided"]
"""Whether a gate holds, is broken, or can be neither said."""


class Segment(NamedTuple):
    """Lists with one value in a column.

    Args:
        column: Name of the column.
        value: Value of the column.
        lists: Number of lists.
        means: Mean of each compared ranker, in their order.
        estimate: Gain, or mean of the only ranker, with its interval: 95 % for all segments together.
    """

    column: str
    value: str
    lists: int
    means: tuple[float, ...]
    estimate: Estimate


class Gate(NamedTuple):
    """Bound of the gain where two rankers are compared, else of the mean: from below, or from above of a metric of
    probabilities.

    Args:
        metric: Name of the metric.
        bound: The bound.
    """

    metric: str
    bound: float

    def verdict(self, estimate: Estimate) -> Verdict:
        """Return whether an interval lies on the better side of the bound."""
        worst, best, bound = estimate.low, estimate.high, self.bound
        if self.metric in RELIABILITY:
            worst, best, bound = -best, -worst, -bound
        return "broken" if best < bound else "holds" if worst >= bound else "undecided"


class GateVerdict(NamedTuple):
    """Result of a gate.

    Args:
        verdict: Verdict by all lists and by the segments.
        estimate: Gain, or mean of the only ranker, with its 95 % interval.
        lists: Number of lists that count.
        lists_needed: Number of lists like these that decide it with probability 80 %; None where it is decided, no
            number would do, or the metric is no mean over lists.
        segments: Segments that break it.
    """

    verdict: Verdict
    estimate: Estimate
    lists: int
    lists_needed: int | None
    segments: tuple[Segment, ...]


def goal_metric(goal: str) -> str:
    """Return the name of the NDCG by a goal."""
    return f"{HEADLINE}[{goal}]"


def parse_gate(text: str, goals: Sequence[str] = ()) -> Gate:
    """Return the gate of a text such as ``ndcg@10 >= -0.002``.

    Args:
        text: The text; metrics of probabilities have ``<=``.
        goals: Names of the goals whose ``ndcg@10[NAME]`` may be bounded.

    Raises:
        ValueError: naming what is expected.
    """
    parsed = re.fullmatch(r"\s*(.+?)\s*([<>]=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
    if parsed is None:
        raise ValueError(f"{text!r}: expected a metric, >= or <= and a number, such as 'ndcg@10 >= -0.002'")
    metric, relation, bound = parsed[1], parsed[2], float(parsed[3])
    if metric not in (known := (*METRICS, *RELIABILITY, *map(goal_metric, goals))):
        remedy = "" if "[" not in metric else "; name the column with --goal"
        raise ValueError(f"{text!r}: there is no metric {metric!r}; expected {', '.join(known)}{remedy}")
    better, expected = ("lower", "<=") if metric in RELIABILITY else ("higher", ">=")
    if relation != expected:
        raise ValueError(f"{text!r}: {better} is better: give {metric} {expected} {parsed[3]}")
    if not math.isfinite(bound):
        raise ValueError(f"{text!r}: expected a finite number")
    return Gate(metric, bound)


@dataclass(frozen=True)
class Judgement:
    """Result of a judgement.

    Args:
        evaluation: Values of every list, by ranker: input order, first stages, bundles, a run.
        rankers: Name of the ranker that is judged; or of two, of which the second is compared with the first.
        values: Values of every list, by column of :attr:`Judging.by`.
        rows: Number of candidates.
        scope: Sentences on what was measured, where it is not all of the files as TREC's tools read them.
        notes: Sentences on the data.
        shared_only: Whether only candidates that a run has, too, were measured.
    """

    evaluation: Evaluation
    rankers: tuple[str, ...]
    values: Mapping[str, Sequence[str]]
    rows: int
    scope: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared_only: bool = False

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that all judged rankers have."""
        first, *others = (self.evaluation.values[name] for name in self.rankers)
        names = tuple(name for name in first if all(name in values for values in others))
        return (*names, "ece") if "log_loss" in names else names

    def estimate(self, metric: str) -> Estimate:
        """Return the gain of the second ranker over the first, or the mean of the only one, with its 95 % interval."""
        return _sample(self.evaluation, metric, self.rankers).estimate(ALPHA)

    @cached_property
    def _members(self) -> list[tuple[str, str, Int[np.ndarray, " M"]]]:
        """Return column, value and lists of every segment."""
        members = []
        for column, values in self.values.items():
            array = np.array(values, dtype=object)
            own = [value for value, count in Counter(values).most_common(MOST_SEGMENTS) if count >= FEWEST]
            members += [(column, value, np.flatnonzero(array == value)) for value in own]
            rest = np.flatnonzero([value not in own for value in values])
            if len(rest):
                members.append((column, OTHERS, rest))
        return members

    def segments(self, metric: str) -> list[Segment]:
        """Return the segments of all columns: values with at least :data:`FEWEST` lists, and all others together."""
        segments, weights = [], self.evaluation.weights
        for column, value, lists in self._members:
            own = {name: self.evaluation.values[name] for name in self.rankers}
            values = {name: {kind: of[lists] for kind, of in own[name].items() if kind == metric} for name in own}
            stated = {name: self.evaluation.stated[name].select(lists) for name in own if metric in RELIABILITY}
            of_lists = None if weights is None else weights[lists]
            part = replace(self.evaluation, values=values, weights=of_lists, stated=stated)
            means = tuple(stated[name].ece if metric == "ece" else part.mean(metric, name) for name in self.rankers)
            estimate = _sample(part, metric, self.rankers).estimate(ALPHA / len(self._members))
            segments.append(Segment(column, value, len(lists), means, estimate))
        return segments

    def decide(self, gate: Gate) -> GateVerdict:
        """Return the verdict of a gate.

        It holds if the 95 % interval of all lists lies on the better side of the bound, and is broken if that interval,
        or that of a segment, lies on the other; intervals of segments hold together. So where the truth is the bound, a
        verdict is wrong with probability 2.5 % at most by all lists, and 2.5 % by segments
        (``benchmarks/results/gates.json``).

        Raises:
            RecipeError: if a ranker has no such metric.
        """
        for name in self.rankers:
            if gate.metric in RELIABILITY and name not in self.evaluation.stated:
                raise RecipeError(f"--gate {gate.metric}: {name} states no probabilities: leave the gate out")
        sample = _sample(self.evaluation, gate.metric, self.rankers)
        estimate = sample.estimate(ALPHA)
        broken = tuple(part for part in self.segments(gate.metric) if gate.verdict(part.estimate) == "broken")
        verdict = "broken" if broken else gate.verdict(estimate)
        needed = sample.lists_needed(gate.bound) if verdict == "undecided" else math.inf
        return GateVerdict(verdict, estimate, sample.lists, None if math.isinf(needed) else math.ceil(needed), broken)


class _Sample:
    """The gains of the second ranker over the first, or the values of the only one, on the lists that count."""

    def __init__(self, evaluation: Evaluation, metric: str, rankers: tuple[str, ...]) -> None:
        over = rankers[0] if len(rankers) > 1 else None
        self._values, self._weights = evaluation.select_counted(metric, rankers[-1], over)
        self.lists = len(self._values) if self._weights is None else int(np.count_nonzero(self._weights))
        # against a truncated ideal a list may have more than 1
        most = max(1.0, *(float(np.nanmax(evaluation.values[name][metric], initial=0.0)) for name in rankers))
        self._limits = (0.0 if over is None else -most), most

    def estimate(self, alpha: float) -> Estimate:
        """Return the mean with its interval; 0 where no list counts."""
        interval = bound_mean(self._values, self._weights, alpha=alpha, limits=self._limits)
        return Estimate(weighted_mean(self._values, self._weights), *interval)

    def lists_needed(self, least: float) -> float:
        """Return how many lists like these decide on which side of a bound the mean is."""
        if not self.lists:
            return math.inf
        above = lists_needed(self._values, least, self._weights, lowest=self._limits[0])
        return min(above, lists_needed(-self._values, -least, self._weights, lowest=-self._limits[1]))


class _ErrorSample:
    """The expected calibration error of the only ranker, or how much larger that of the second is."""

    def __init__(self, stated: Sequence[StatedProbabilities]) -> None:
        self._stated, self.lists = stated, int(np.count_nonzero(stated[0].weights))

    def estimate(self, alpha: float) -> Estimate:
        """Return the error with its interval; of a difference, from an interval of each."""
        own, *others = reversed(self._stated)
        if not others:
            return Estimate(own.ece, *own.error_interval(alpha))
        (low, high), (first_low, first_high) = (of.error_interval(alpha / 2.0) for of in (own, *others))
        return Estimate(own.ece - others[0].ece, low - first_high, high - first_low)

    def lists_needed(self, _bound: float) -> float:
        """Return infinity: nothing is known."""
        return math.inf


def _sample(evaluation: Evaluation, metric: str, rankers: tuple[str, ...]) -> _Sample | _ErrorSample:
    if metric == "ece":
        return _ErrorSample([evaluation.stated[name] for name in rankers])
    return _Sample(evaluation, metric, rankers)


def facts_of(judgement: Judgement) -> dict[str, Any]:
    """Return everything that was measured as JSON values."""
    evaluation = judgement.evaluation
    paired = len(judgement.rankers) > 1
    gains = {metric: judgement.estimate(metric)._asdict() for metric in judgement.metrics if paired}
    further = [name for name in judgement.metrics if name not in METRICS]
    errors = [
        Metric(ranker=name, name="ece", mean=of.ece, low=low, high=high, n=len(of.lengths))
        for name, of in evaluation.stated.items()
        for low, high in [of.error_interval()]
    ]
    return {
        "lists": evaluation.queries,
        "rows": judgement.rows,
        "empty_queries": evaluation.empty_queries,
        "scope": list(judgement.scope),
        "shared_only": judgement.shared_only,
        "protocol": str(evaluation.protocol),
        "interval": "95 %: of means by the percentile bootstrap over queries, of gains, segments and gates by Gaffke's "
        "bound, which keeps its level for few lists; those of segments hold together; of ECE by what chance gives",
        "rankers": list(evaluation.rankers),
        "compared": list(judgement.rankers),
        "metrics": [metric.model_dump() for metric in (*evaluation.metrics(), *errors)],
        **({"reliability": {name: of.facts() for name, of in evaluation.stated.items()}} if evaluation.stated else {}),
        **({"gains": gains} if gains else {}),
        "segments": as_json(judgement.segments(HEADLINE)),
        "further_segments": {name: as_json(judgement.segments(name)) for name in further},
        "notes": list(judgement.notes),
    }


def as_json(value: Any) -> Any:
    """Return a verdict, a segment, an estimate or several of them as JSON values."""
    if hasattr(value, "_asdict"):
        return {name: as_json(part) for name, part in value._asdict().items()}
    return [as_json(part) for part in value] if isinstance(value, list | tuple) else value
