"""Prometheus metrics of the service, and the drift of its lists from the training data.

Drift is computed in a thread of its own, once the answer is sent, for one list at most in :data:`EVERY_S`, so that it
costs neither latency nor throughput.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import numpy as np
from jaxtyping import Float, Int
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from listwright.ranking.candidates import Ranking
from listwright.ranking.features import QUANTILE_LEVELS, FeatureSchema, count_categories, mostly_unknown
from listwright.ranking.first_stage import Engine
from listwright.ranking.manifest import Manifest
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import AnomalyStage, ProbabilityStage
from listwright.service.hook import PASSED
from listwright.service.telemetry import logs, merge

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
VERSION = ("model", "version")
"""Labels of what is counted by bundle: of those that are served, or kept for a rollback."""
CANDIDATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

FAULT_LOG_S = 10.0
"""Seconds between two log lines of one kind of routing fault: a hook that hangs would fill the disk."""

_routing_log = logging.getLogger("listwright.routing")


class Telemetry:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.requests = counter("listwright_requests", "Answered requests", ["path", "status"])
        self.keys = counter(
            "listwright_key_requests",
            "Requests by the name of their key; outcome: admitted, rate_limited, unauthorized, forbidden",
            ["key", "outcome"],
        )
        self.degraded = counter(
            "listwright_degraded",
            "Answers by an earlier stage than requested; cause: failure, deadline",
            ["stage_reached", "cause"],
        )
        self.ignored = counter(
            "listwright_ignored_features",
            "Features that the bundle does not know, each once per request, where they are ignored",
            ["model", "version"],
        )
        self.late = counter(
            "listwright_late_answers", "Answers that were ready after their deadline", ["stage_reached"]
        )
        self.routes = counter(
            "listwright_routes", "Rankings by ranker and who chose it", ["strategy", "decided_by", "specialist"]
        )
        self.routing_faults = counter(
            "listwright_routing_faults", "Faults of hooks and routers that were to choose a specialist", ["kind"]
        )
        self.rules = counter(
            "listwright_rules",
            "Rules of merchandising, by list; outcome: applied, not_applied",
            ["model", "action", "outcome"],
        )
        self._faults = logs.Repeats(FAULT_LOG_S)
        self.seconds = histogram(
            "listwright_stage_seconds",
            "Time by stage, from parse and queue to probability and total; outcome: ok, degraded",
            [*VERSION, "stage", "outcome"],
            buckets=SECONDS,
        )
        self.route_seconds = histogram(
            "listwright_route_seconds",
            "Time from a request's first byte to its ranking, by ranker and who chose it",
            [*VERSION, "strategy", "decided_by", "outcome"],
            buckets=SECONDS,
        )
        self.by_version: list[MetricWrapperBase] = [self.seconds, self.route_seconds]
        self.drift = Drift()
        self.registry.register(self.drift)
        self.registry.register(_DroppedLines())
        self._known: frozenset[tuple[str, str]] = frozenset()
        self.candidates = histogram("listwright_candidates", "List lengths", buckets=CANDIDATES)
        self._bundle = gauge("listwright_bundle_info", "The served bundles", ["model", "version", "engine"])
        self._refused = gauge(
            "listwright_bundle_refused_info",
            "1 for each bundle that should be served and was refused",
            ["model", "version", "reason"],
        )
        self.reloads = counter(
            "listwright_reloads", "Changes of bundles; outcome: swapped, refused", ["model", "outcome"]
        )
        self.store_failures = counter(
            "listwright_store_failures", "Looks at the models folder that its store at a URL did not answer"
        )
        merge.build_info(self.registry)
        merge.own_metrics(self.registry)
        self.events = counter("listwright_events", "Events that were written")
        self.events_refused = counter(
            "listwright_refused_events",
            "Requests whose events were not written; reason: invalid, full, late, disk",
            ["reason"],
        )
        self.events_removed_files = counter(
            "listwright_removed_event_files",
            "Files of events that were removed, to keep their folder within its bounds",
        )
        self.log_records = counter("listwright_served_records", "Records written to the served log", ["sink"])
        self.log_bytes = counter("listwright_served_bytes", "Bytes written to the served log", ["sink"])
        self.log_dropped = counter(
            "listwright_served_dropped", "Records that did not get into the served log", ["reason"]
        )
        self.log_removed_files = counter(
            "listwright_removed_served_files",
            "Files of the served log that were removed, to keep its folder within its bounds; reason: age, bytes",
            ["reason"],
        )
        self.excess_connections = counter("listwright_excess_connections", "Connections beyond the limit")
        self.evicted_connections = counter("listwright_evicted_connections", "Idle connections closed to make room")

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await asyncio.to_thread(lambda: merge.text(merge.snapshot(self.registry)))

    def set_bundles(
        self,
        engines: Mapping[tuple[str, str], Engine],
        previous: Iterable[tuple[str, str]],
        refused: Iterable[tuple[str, str, str]],
    ) -> None:
        """Set the served bundles, by name and version, with their engine, and the refused ones, with the reason.

        Versions that are neither served nor kept for a rollback are forgotten: else each swap would leave its series.
        """
        for model, version in self._known - (known := frozenset((*engines, *previous))):
            for metric in self.by_version:
                metric.remove_by_labels({"model": model, "version": version})
        self._known = known
        self.drift.keep(known)
        self._bundle.clear()
        for (name, version), engine in engines.items():
            self._bundle.labels(name, version, engine).set(1)
        self._refused.clear()
        for name, version, reason in refused:
            self._refused.labels(name, version, reason).set(1)

    def watch(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Add gauges of the state of this process, by name: the help text, and what is called at each scrape."""
        for name, (text, value) in gauges.items():
            Gauge(name, text, registry=self.registry).set_function(value)

    def observe(self, ranking: Ranking, manifest: Manifest, milliseconds: Mapping[str, float]) -> None:
        """Count one ranking by a bundle and its time by step."""
        route, bundle = ranking.route, (manifest.name, manifest.version)
        outcome = "degraded" if ranking.degraded else "ok"
        self.candidates.observe(len(ranking.order))
        if bundle in self._known:  # an answer may outlive its bundle, whose series are then gone
            for step, value in milliseconds.items():
                self.seconds.labels(*bundle, step, outcome).observe(value / 1000.0)
            total_s = milliseconds["total"] / 1000.0
            self.route_seconds.labels(*bundle, route.strategy, route.decided_by, outcome).observe(total_s)
        if ranking.degraded:
            self.degraded.labels(ranking.stage_reached, "deadline" if ranking.late else "failure").inc()
        specialist = "none" if route.specialist is None else str(route.specialist)
        self.routes.labels(route.strategy, route.decided_by, specialist).inc()
        for rule in ranking.rules:
            self.rules.labels(manifest.name, rule.action, "applied" if rule.reason is None else "not_applied").inc()
        for fault in route.faults:
            if fault.kind != PASSED:
                self.routing_faults.labels(fault.kind).inc()
                if count := self._faults.note(fault.kind):
                    facts = {"kind": fault.kind, "faults": count}
                    _routing_log.warning("%s; the next in turn decided", fault, extra={"facts": facts})


class _DroppedLines(Collector):
    """Collector of the number of dropped log lines."""

    def collect(self) -> Iterator[Metric]:
        """Yield the counter (prometheus_client's hook)."""
        yield CounterMetricFamily(
            "listwright_dropped_log_lines",
            "Log lines that were dropped because their reader was too slow",
            value=logs.dropped(),
        )


EVERY_S = 0.1
"""Seconds from one list that is looked at to the next, of one process."""

KINDS = ("missing", "below", "above", "unknown")
"""Kinds of values that training saw seldom or never; the second and third of numbers, the last of categories."""

ENOUGH = 100
"""Categories of a column after which mostly unknown ones are logged."""

ANOMALY = tuple(round(0.3 + 0.025 * step, 3) for step in range(21))
"""Upper bounds of the buckets of anomaly scores; an Isolation Forest gives about 0.5 to ordinary queries."""

STRANGE = QUANTILE_LEVELS.index(0.99)
"""One training query in a hundred scored above this quantile."""

Bundle = tuple[str, str]
"""Name and version."""

_log = logging.getLogger("listwright.drift")


def unusual(features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Int[np.ndarray, "4 D"]:
    """Count, per feature, values of a list that are missing, below or above all but 0.1 % of training's, or unknown."""
    lowest, highest = schema.training_range
    categorical = list(schema.categorical)
    there, unknown = count_categories(features[:, categorical])
    counts: Int[np.ndarray, "4 D"] = np.zeros((4, len(schema)), dtype=np.int64)
    counts[:3] = np.stack([np.isnan(features), features < lowest, features > highest]).sum(axis=1)
    counts[:, categorical] = np.stack([len(features) - there, 0 * there, 0 * there, unknown])
    return counts


@dataclass
class _Tally:
    """Drift of one bundle so far. Holds its schema, and nothing else of it."""

    schema: FeatureSchema
    anomaly: AnomalyStage | None
    probability: ProbabilityStage | None
    values: Int[np.ndarray, "4 D"]
    candidates: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(ANOMALY) + 1))
    scores: float = 0.0
    strange: int = 0
    expected: float = 0.0
    in_log: set[str] = field(default_factory=set)

    def add(self, counts: Int[np.ndarray, "4 D"], candidates: int, score: float | None, expected: float) -> None:
        self.values += counts
        self.candidates += candidates
        self.expected += expected
        if score is not None and self.anomaly is not None:
            self.buckets[bisect_left(ANOMALY, score)] += 1
            self.scores += score
            self.strange += bool(self.anomaly.quantiles) and score > self.anomaly.quantiles[STRANGE]

    def mostly_unknown(self) -> list[str]:
        """Return sentences about mostly unknown columns, each column once."""
        values = self.values[:, list(self.schema.categorical)]
        counts = np.stack([self.candidates - values[0], values[3]])
        counts[:, counts[0] < ENOUGH] = 0
        sentences = mostly_unknown(counts, self.schema)
        new = sentences.keys() - self.in_log
        self.in_log |= new
        return [sentences[name] for name in sorted(new)]


class Drift:
    """Drift by bundle, and its Prometheus collector.

    Args:
        thread: Thread that compares the lists.
        clock: Clock in seconds.
    """

    def __init__(self, thread: Executor | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._thread = thread or ThreadPoolExecutor(1, "drift")
        self._clock = clock
        self._next = -np.inf
        self._lock = Lock()
        self._known: frozenset[Bundle] = frozenset()
        self._tallies: dict[Bundle, _Tally] = {}

    def keep(self, known: frozenset[Bundle]) -> None:
        """Forget all bundles but these."""
        with self._lock:
            self._known = known
            self._tallies = {bundle: tally for bundle, tally in self._tallies.items() if bundle in known}

    def note(
        self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"], reranker: Reranker
    ) -> None:
        """Compare a list with the training data soon, if one is due. From the event loop's thread.

        Args:
            features: Features of the candidates, ``(L, D)``.
            first_scores: Scores of the first stage, ``(L,)``; NaN if it failed.
            reranker: Reranker of the bundle.
        """
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._thread.submit(self._look, features, first_scores, reranker)

    def _look(self, features: np.ndarray, first_scores: np.ndarray, reranker: Reranker) -> None:
        try:
            manifest = reranker.manifest
            relative = reranker.relative
            schema = manifest.feature_schema if relative is None else relative.schema
            counts = unusual(features if relative is None else relative.widened(features), schema)
            score = None
            if reranker.anomaly is not None and np.isfinite(first_scores).all():
                score = reranker.anomaly.of(features, first_scores)
            calibration = None if manifest.probability is None else reranker.calibration
            expected = 0.0 if calibration is None else calibration.expected(features)
            bundle = (manifest.name, manifest.version)
            with self._lock:
                if bundle not in self._known:  # an answer may outlive its bundle
                    return
                if bundle not in self._tallies:
                    stages = (manifest.anomaly, manifest.probability)
                    self._tallies[bundle] = _Tally(schema, *stages, np.zeros_like(counts))
                self._tallies[bundle].add(counts, len(features), score, expected)
                unknown = self._tallies[bundle].mostly_unknown()
            for sentence in unknown:
                _log.warning("bundle %s/%s: in requests, %s", *bundle, sentence)
        except Exception:  # no caller waits for this thread, so the log has it
            _log.exception("a list could not be compared with the training data")

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of drift (prometheus_client's hook)."""
        of = ["model", "version"]
        candidates = CounterMetricFamily(
            "listwright_drift_candidates", "Candidates compared with the training data", labels=of
        )
        values = CounterMetricFamily(
            "listwright_drift_values",
            "Values of these candidates that training saw seldom or never; kind: missing, below, above, unknown",
            labels=[*of, "feature", "kind"],
        )
        scores = HistogramMetricFamily("listwright_anomaly_score", "Anomaly scores of queries", labels=of)
        strange = CounterMetricFamily(
            "listwright_anomalous_queries",
            "Queries with a higher anomaly score than 99 % of the training queries",
            labels=of,
        )
        quantiles = GaugeMetricFamily(
            "listwright_anomaly_training_quantile", "Training queries' anomaly scores", labels=[*of, "quantile"]
        )
        probability = SummaryMetricFamily(
            "listwright_probability", "Probabilities of these candidates to be relevant", labels=of
        )
        expected = GaugeMetricFamily(
            "listwright_probability_mean_expected",
            "Share of relevant candidates in the lists that the probabilities were fitted on",
            labels=of,
        )
        with self._lock:
            for bundle, tally in self._tallies.items():
                candidates.add_metric(bundle, tally.candidates)
                for column, feature in enumerate(tally.schema.features):
                    for kind in (0, 3) if feature.kind == "categorical" else (0, 1, 2):
                        values.add_metric((*bundle, feature.name, KINDS[kind]), int(tally.values[kind, column]))
                if tally.probability is not None:
                    probability.add_metric(bundle, tally.candidates, tally.expected)
                    expected.add_metric(bundle, tally.probability.mean)
                if tally.anomaly is None:
                    continue
                bounds = (*map(str, ANOMALY), "+Inf")
                scores.add_metric(
                    bundle, list(zip(bounds, np.cumsum(tally.buckets).tolist(), strict=True)), tally.scores
                )
                strange.add_metric(bundle, tally.strange)
                for level, at in zip(QUANTILE_LEVELS, tally.anomaly.quantiles, strict=False):
                    quantiles.add_metric((*bundle, str(level)), at)
        yield from (candidates, values, scores, strange, quantiles, probability, expected)
