"""What a process says of itself, held against what the system says of it."""

import sys
from importlib.metadata import version

import psutil
import pytest
from prometheus_client import CollectorRegistry

from listwright.service.telemetry.merge import START_TIME, build_info, own_metrics


def values(registry):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


@pytest.mark.skipif(sys.platform != "linux", reason="prometheus_client looks into /proc")
def test_a_process_says_what_it_takes():
    registry = CollectorRegistry()
    restarts = own_metrics(registry)
    restarts.inc()
    found, process = values(registry), psutil.Process()
    assert found[START_TIME,] == pytest.approx(process.create_time(), abs=2.0), "the clock may have been set since"
    assert found["process_resident_memory_bytes",] == pytest.approx(process.memory_info().rss, rel=0.2)
    assert found["process_open_fds",] == pytest.approx(process.num_fds(), abs=3)
    assert found["process_max_fds",] == process.rlimit(psutil.RLIMIT_NOFILE)[0]
    times = process.cpu_times()
    assert found["process_cpu_seconds_total",] == pytest.approx(times.user + times.system, abs=1.0)
    assert found["listwright_worker_restarts_total",] == 1


def test_the_build_is_named_by_the_versions_that_are_installed():
    registry = CollectorRegistry()
    build_info(registry)
    labels = {name: version(name) for name in ("lightgbm", "onnxruntime")}
    labels |= {"version": version("listwright"), "python": sys.version.split()[0]}
    assert values(registry) == {("listwright_build_info", *sorted(labels.items())): 1.0}
