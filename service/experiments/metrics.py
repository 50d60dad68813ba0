"""What is counted of experiments."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
AGREEMENT = (-0.5, 0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Some values are below 0, so there is no sum of them: it would not only grow."""


class ExperimentMetrics:
    """Counters and gauges of experiments; made only where there is a file of them.

    Args:
        registry: of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Requests()
        registry.register(self.requests)
        self.failures = Counter(
            "listwright_experiment_failures", "Failures of a challenger", ["experiment"], registry=registry
        )
        self.shadow_seconds = Histogram(
            "listwright_shadow_seconds",
            "Seconds of a core that a challenger takes for a list in the background",
            ["experiment"],
            buckets=SECONDS,
            registry=registry,
        )
        self.agreement = Histogram(
            "listwright_shadow_agreement",
            "Agreement of a shadowed challenger with what was shown",
            ["experiment", "measure"],
            buckets=AGREEMENT,
            registry=registry,
        )
        self.running = Gauge(
            "listwright_experiment_running", "1 if an experiment runs", ["experiment", "kind"], registry=registry
        )
        self.off = Gauge(
            "listwright_experiment_off",
            "1 if an experiment of the file does not run",
            ["experiment", "kind"],
            registry=registry,
        )
        self.refused = Gauge(
            "listwright_experiments_refused", "1 if the file of experiments is not used", registry=registry
        )


class Requests(Collector):
    """Requests by experiment and outcome: counted before an answer, so in one call. A counter of the library is six."""

    def __init__(self) -> None:
        self._lock, self._counted = Lock(), Tally[tuple[str, str]]()

    def count(self, experiment: str, outcome: str) -> None:
        """A request came to an outcome. From any thread."""
        with self._lock:
            self._counted[experiment, outcome] += 1

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks for it."""
        said = "Requests in an experiment, by what came of them"
        found = CounterMetricFamily("listwright_experiment_requests", said, labels=["experiment", "outcome"])
        with self._lock:
            counted = self._counted.copy()
        for labels, count in counted.items():
            found.add_metric(labels, count)
        yield found
