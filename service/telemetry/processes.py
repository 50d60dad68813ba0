"""What a process says of itself: what it is made of, what it takes, and how often workers were replaced."""

from __future__ import annotations

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.process_collector import ProcessCollector

ENGINES = ("lightgbm", "onnxruntime")
"""The libraries that compute; the compiled engine is part of the service's own version."""

START_TIME = "process_start_time_seconds"
"""Of a service with several workers it is its supervisor's."""


def own_metrics(registry: CollectorRegistry) -> Counter:
    """Register what the process takes (``process_*``), and the count of replaced workers, which is returned.

    The supervisor alone replaces workers; in all other processes the count stays 0.
    """
    ProcessCollector(registry=registry)
    return Counter("listwright_worker_restarts", "Workers that ended and were replaced", registry=registry)


def build_info(registry: CollectorRegistry) -> None:
    """Register the versions of the service, of Python and of the libraries that compute."""
    versions = {"version": version("listwright"), "python": platform.python_version()}
    versions |= {library: version(library) for library in ENGINES}
    gauge = Gauge("listwright_build_info", "What the service is made of", list(versions), registry=registry)
    gauge.labels(**versions).set(1)
