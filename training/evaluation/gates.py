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

from listwright.training.evaluation.intervals import ALPHA, FEWEST, bound_mean, lists_needed
from listwright.training.evaluation.protocol import HEADLINE, METRICS, Evaluation, weighted_mean

MOST_SEGMENTS = 50
"""Values of a column that are segments of their own: those with the most lists."""

OTHERS = "(others)"
"""Name of the segment of all other values."""


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
    estimate: tuple[float, float, float]


class Gate(NamedTuple):
    """Lower bound of the gain where two rankers are compared, else of the mean.

    Args:
        metric: One of :data:`listwright.training.evaluation.protocol.METRICS`.
        least: The bound.
    """

    metric: str
    least: float


class GateVerdict(NamedTuple):
    """Result of a gate.

    Args:
        verdict: Whether it holds, is broken, or can be neither said.
        estimate: Gain, or mean of the only ranker, with its 95 % interval.
        lists: Number of lists that count.
        lists_needed: Number of lists like these that decide it with probability 80 %; None where it is decided, or no
            number would do.
        segments: Segments that break it.
    """

    verdict: Literal["holds", "broken", "undecided"]
    estimate: tuple[float, float, float]
    lists: int
    lists_needed: int | None
    segments: tuple[Segment, ...]


def parse_gate(text: str) -> Gate:
    """Return the gate of a text such as ``ndcg@10 >= -0.002``.

    Raises:
        ValueError: naming what is expected.
    """
    parsed = re.fullmatch(r"\s*([a-z@0-9]+)\s*>=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
    if parsed is None:
        raise ValueError(f"{text!r}: expected a metric, >= and a number, such as 'ndcg@10 >= -0.002'")
    if parsed[1] not in METRICS:
        raise ValueError(f"{text!r}: there is no metric {parsed[1]!r}; expected {', '.join(METRICS)}")
    if not math.isfinite(float(parsed[2])):
        raise ValueError(f"{text!r}: expected a finite number")
    return Gate(parsed[1], float(parsed[2]))


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

    def estimate(self, metric: str) -> tuple[float, float, float]:
        """Return the gain of the second ranker over the first, or the mean of the only one, with its 95 % interval."""
        return _Sample(self.evaluation, metric, self.rankers).estimate(ALPHA)

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
            values = {name: {metric: self.evaluation.values[name][metric][lists]} for name in self.rankers}
            part = replace(self.evaluation, values=values, weights=None if weights is None else weights[lists])
            means = tuple(part.mean(metric, name) for name in self.rankers)
            estimate = _Sample(part, metric, self.rankers).estimate(ALPHA / len(self._members))
            segments.append(Segment(column, value, len(lists), means, estimate))
        return segments

    def decide(self, gate: Gate) -> GateVerdict:
        """Return the verdict of a gate.

        It holds if the 95 % interval of all lists begins at or above the bound, and is broken if that interval, or that
        of a segment, ends below; intervals of segments hold together. So where the truth is the bound, a verdict is
        wrong with probability 2.5 % at most by all lists, and 2.5 % by segments (``benchmarks/results/gates.json``).
        """
        sample = _Sample(self.evaluation, gate.metric, self.rankers)
        _, low, high = estimate = sample.estimate(ALPHA)
        broken = tuple(segment for segment in self.segments(gate.metric) if segment.estimate[2] < gate.least)
        verdict: Literal["holds", "broken", "undecided"] = "undecided"
        if broken or high < gate.least:
            verdict = "broken"
        elif low >= gate.least:
            verdict = "holds"
        needed = sample.lists_needed(gate.least) if verdict == "undecided" else math.inf
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

    def estimate(self, alpha: float) -> tuple[float, float, float]:
        """Return the mean with its interval; 0 where no list counts."""
        interval = bound_mean(self._values, self._weights, alpha=alpha, limits=self._limits)
        return weighted_mean(self._values, self._weights), *interval

    def lists_needed(self, least: float) -> float:
        """Return how many lists like these decide on which side of a bound the mean is."""
        if not self.lists:
            return math.inf
        above = lists_needed(self._values, least, self._weights, lowest=self._limits[0])
        return min(above, lists_needed(-self._values, -least, self._weights, lowest=-self._limits[1]))


def facts_of(judgement: Judgement) -> dict[str, Any]:
    """Return everything that was measured as JSON values."""
    evaluation = judgement.evaluation
    gains = {metric: _estimate_facts(judgement.estimate(metric)) for metric in METRICS if len(judgement.rankers) > 1}
    return {
        "lists": evaluation.queries,
        "rows": judgement.rows,
        "empty_queries": evaluation.empty_queries,
        "scope": list(judgement.scope),
        "shared_only": judgement.shared_only,
        "protocol": str(evaluation.protocol),
        "interval": "95 %: of means by the percentile bootstrap over queries, of gains, segments and gates by Gaffke's "
        "bound, which keeps its level for few lists; those of segments hold together",
        "rankers": list(evaluation.rankers),
        "compared": list(judgement.rankers),
        "metrics": [metric.model_dump() for metric in evaluation.metrics()],
        **({"gains": gains} if gains else {}),
        "segments": [_segment_facts(segment) for segment in judgement.segments(HEADLINE)],
        "notes": list(judgement.notes),
    }


def gate_facts(verdict: GateVerdict) -> dict[str, Any]:
    """Return the verdict of a gate as JSON values."""
    segments = [_segment_facts(segment) for segment in verdict.segments]
    return {**verdict._asdict(), "estimate": _estimate_facts(verdict.estimate), "segments": segments}


def _segment_facts(segment: Segment) -> dict[str, Any]:
    return {**segment._asdict(), "estimate": _estimate_facts(segment.estimate)}


def _estimate_facts(estimate: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("mean", "low", "high"), estimate, strict=True))
