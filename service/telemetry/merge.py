"""Metrics of several processes as if they were of one: packed samples, their sum, Prometheus' text, and metrics of a
process itself.
"""

from __future__ import annotations

import pickle
import platform
import zlib
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

Labels = tuple[tuple[str, str], ...]
Snapshot = dict[str, tuple[str, str, dict[tuple[str, Labels], float]]]
"""Type, help text and samples of each metric, by its name."""

SUMMED = frozenset(
    (
        "listwright_waiting_requests",
        "listwright_working_requests",
        "listwright_buffered_bytes",
        "listwright_open_connections",
        "listwright_ready_workers",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
    )
)
"""Gauges that add up; of all others the largest value counts: they flag that something holds in any process."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # times of creation add up to nothing


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """Return the metrics of a registry at this moment."""
    return {
        metric.name: (
            metric.type,
            metric.documentation,
            {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in metric.samples},
        )
        for metric in registry.collect()
    }


def pack(metrics: Snapshot) -> bytes:
    """Pack metrics for another of our own processes: small enough never to fill a pipe."""
    return zlib.compress(pickle.dumps(metrics), 1)


def unpack(content: bytes) -> Snapshot:
    """Unpack what :func:`pack` made."""
    metrics: Snapshot = pickle.loads(zlib.decompress(content))  # noqa: S301 - from our own worker, through its own pipe
    return metrics


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Add up counters and histograms; gauges, too, or take the largest, see :data:`SUMMED`."""
    whole: Snapshot = {}
    for metrics in snapshots:
        for name, (kind, help_text, samples) in metrics.items():
            into = whole.setdefault(name, (kind, help_text, {}))[2]
            adds = kind != "gauge" or name in SUMMED
            for key, value in samples.items():
                previous = into.get(key, 0.0)
                into[key] = previous + value if adds else max(previous, value)
    return whole


def drop_gauges(metrics: Snapshot) -> Snapshot:
    """Return the metrics that outlive their process: all but gauges."""
    return {name: metric for name, metric in metrics.items() if metric[0] != "gauge"}


def drop_unserved_versions(past: Snapshot, live: Snapshot) -> Snapshot:
    """Drop past samples of versions that no live process has any more."""
    known = {_version(labels) for _, _, samples in live.values() for _, labels in samples}
    return {
        name: (kind, help_text, {key: value for key, value in samples.items() if _version(key[1]) in known | {None}})
        for name, (kind, help_text, samples) in past.items()
    }


def _version(labels: Labels) -> tuple[str, str] | None:
    values = dict(labels)
    return (values["model"], values["version"]) if {"model", "version"} <= values.keys() else None


class _SnapshotCollector:
    """Collector of a snapshot, for prometheus_client."""

    def __init__(self, metrics: Snapshot) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for name, (kind, help_text, samples) in self._metrics.items():
            metric = Metric(name, help_text, kind)
            for (sample, labels), value in samples.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric


def text(metrics: Snapshot) -> bytes:
    """Format metrics as Prometheus' text."""
    return generate_latest(_SnapshotCollector(metrics))


ENGINES = ("lightgbm", "onnxruntime")
"""The libraries that compute; the compiled engine is part of the service's own version."""

START_TIME = "process_start_time_seconds"
"""Metric of the start time; in a service of several workers it is the supervisor's."""


def own_metrics(registry: CollectorRegistry) -> Counter:
    """Register resources of the process (``process_*``), and the count of replaced workers, which is returned.

    The supervisor alone replaces workers; in all other processes the count stays 0.
    """
    ProcessCollector(registry=registry)
    return Counter("listwright_worker_restarts", "Workers that ended and were replaced", registry=registry)


def build_info(registry: CollectorRegistry) -> None:
    """Register the versions of the service, of Python and of the libraries that compute."""
    versions = {"version": version("listwright"), "python": platform.python_version()}
    versions |= {library: version(library) for library in ENGINES}
    gauge = Gauge(
        "listwright_build_info",
        "1, with the versions of the service, Python and the libraries that compute",
        list(versions),
        registry=registry,
    )
    gauge.labels(**versions).set(1)
