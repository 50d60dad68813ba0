"""What the service counts and times: Prometheus metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from listwright.ranking.candidates import Ranking
from listwright.ranking.errors import RoutingError
from listwright.ranking.first_stage import Engine
from listwright.ranking.manifest import Manifest
from listwright.service.hook import PASSED
from listwright.service.telemetry import logs, merge, processes
from listwright.service.telemetry.drift import Drift

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
VERSION = ("model", "version")
"""Labels of what is counted by bundle: of those that are served, or kept for a rollback."""
CANDIDATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

FAULT_LOG_S = 10.0
"""Seconds between two log lines of one kind of routing fault: a hook that hangs would fill the disk."""

_routing_log = logging.getLogger("listwright.routing")

WATCHED = {
    "listwright_waiting_requests": "Requests that wait for their turn",
    "listwright_working_requests": "Requests in work",
    "listwright_buffered_bytes": "Bytes of bodies held, arriving, waiting or in work",
    "listwright_open_connections": "Connections that are open",
    "listwright_ready_workers": "Workers to which traffic may come",
    "listwright_workers": "Workers that should be ready",
}
"""Gauges of the state of a process, and their help texts."""


class Telemetry:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.requests = counter("listwright_requests", "Answered requests", ["path", "status"])
        self.keys = counter("listwright_key_requests", "Requests by whose key they came with", ["key", "outcome"])
        self.degraded = counter(
            "listwright_degraded", "Answers by an earlier stage than asked for", ["stage_reached", "cause"]
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
        self.routing_faults = counter("listwright_routing_faults", "Hooks and routers that could not decide", ["kind"])
        self._fault_log = FaultLog()
        self.seconds = histogram(
            "listwright_stage_seconds", "Time by stage", [*VERSION, "stage", "outcome"], buckets=SECONDS
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
            "listwright_bundle_refused_info", "What should be served and is not", ["model", "version", "reason"]
        )
        self.reloads = counter("listwright_reloads", "Bundles swapped in, and refused", ["model", "outcome"])
        processes.build_info(self.registry)
        processes.own_metrics(self.registry)
        self.events = counter("listwright_events", "Events that were written")
        self.events_refused = counter("listwright_refused_events", "Requests whose events were not written", ["reason"])
        self.events_removed_files = counter(
            "listwright_removed_event_files",
            "Files of events that were removed, to keep their folder within its bounds",
        )
        self.served_records = counter("listwright_served_records", "Records written to the served log", ["sink"])
        self.served_bytes = counter("listwright_served_bytes", "Bytes written to the served log", ["sink"])
        self.served_dropped = counter(
            "listwright_served_dropped", "Records that did not get into the served log", ["reason"]
        )
        self.served_removed_files = counter(
            "listwright_removed_served_files",
            "Files of the served log that were removed, to keep its folder within its bounds",
            ["reason"],
        )
        self.excess_connections = counter("listwright_excess_connections", "Connections beyond the limit")
        self.evicted_connections = counter("listwright_evicted_connections", "Idle connections closed to make room")

    async def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return await asyncio.to_thread(lambda: merge.text(merge.snapshot(self.registry)))

    def serving(
        self,
        served: Mapping[tuple[str, str], Engine],
        kept: Iterable[tuple[str, str]],
        refused: Iterable[tuple[str, str, str]],
    ) -> None:
        """Say what is served now, by name and version, on which engine, and what is not: name, version and reason.

        Versions that are neither served nor kept for a rollback are forgotten: else each swap would leave its series.
        """
        for model, version in self._known - (known := frozenset((*served, *kept))):
            for metric in self.by_version:
                metric.remove_by_labels({"model": model, "version": version})
        self._known = known
        self.drift.keep(known)
        self._bundle.clear()
        for (name, version), engine in served.items():
            self._bundle.labels(name, version, engine).set(1)
        self._refused.clear()
        for name, version, reason in refused:
            self._refused.labels(name, version, reason).set(1)

    def watch(self, values: Mapping[str, Callable[[], float]]) -> None:
        """Show the state of this process, read at each scrape.

        Args:
            values: of the gauges of :data:`WATCHED`, by name.
        """
        for name, value in values.items():
            Gauge(name, WATCHED[name], registry=self.registry).set_function(value)

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
        for fault in route.faults:
            if fault.kind != PASSED:
                self.routing_faults.labels(fault.kind).inc()
                self._fault_log.note(fault)


class _DroppedLines(Collector):
    """The log's own count."""

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks for it."""
        yield CounterMetricFamily("listwright_dropped_log_lines", "Log lines that nobody read", value=logs.dropped())


class FaultLog:
    """Logs routing faults, of each kind one at most in :data:`FAULT_LOG_S`, which counts those since the last.

    For one thread: the event loop's.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}
        self._since: Tally[str] = Tally()

    def note(self, fault: RoutingError) -> None:
        """Log the fault, or only count it."""
        self._since[fault.kind] += 1
        now = self._clock()
        if now - self._said.get(fault.kind, -math.inf) < FAULT_LOG_S:
            return
        self._said[fault.kind] = now
        facts = {"kind": fault.kind, "faults": self._since.pop(fault.kind)}
        _routing_log.warning("%s; the next in turn decided", fault, extra={"facts": facts})
