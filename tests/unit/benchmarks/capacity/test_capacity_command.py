"""The command: what it refuses, and that it runs with real replicas."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import machine
from benchmarks.capacity import __main__ as command
from benchmarks.capacity import curves, plan
from benchmarks.capacity.measured import costs, rounds, shape
from benchmarks.load.generator import Plan, _due

DEMO = Path(__file__).resolve().parents[4] / "models" / "demo" / "1"

needs_haproxy = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="two replicas need two cores"
)


@needs_haproxy
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--candidates", "0"], "--candidates 0: give at least 1"),
        (["--features", "0"], "--features 0: give at least 1"),
        (["--bundle", "nowhere/1"], "--bundle nowhere/1: "),
        (["--bundle", str(DEMO), "--features", "99"], "--features 99: the bundle "),
    ],
)
def test_a_shape_that_cannot_be_measured_is_refused_by_name(arguments, said, capsys):
    assert command.main(arguments) == 1
    assert f"error: {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--p99-ms", "-1"], "-1: give a number above 0"),
        (["--price", "nan"], "nan: give a number above 0"),
        (["--rounds", "0"], "0: give at least 1"),
        (["--balancer", "best"], "invalid choice: 'best'"),
    ],
)
def test_options_out_of_range_are_refused_by_name(arguments, said, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err


def test_without_haproxy_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert command.main([]) == 1
    assert "haproxy is not on the PATH: install it, e.g. apt-get install haproxy" in capsys.readouterr().err


@pytest.mark.parametrize("format_name", shape.FORMATS)
def test_a_bundle_with_categories_has_a_body_in_every_format(format_name):
    found = shape.shape(DEMO, 7, None, format_name)
    assert (found.candidates, found.features) == (7, 12)
    assert found.bundle_bytes == sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file())
    assert len(found.body) > 7 * 12


def test_requests_are_due_at_a_rate_or_at_the_times_of_a_file(tmp_path):
    assert _due(Plan(1, "", 2.0, 1, rate=2.0)) == [0.0, 0.5, 1.0, 1.5]
    np.save(tmp_path / "due.npy", np.array([0.25, 0.5]))
    assert _due(Plan(1, "", 0.0, 1, due=str(tmp_path / "due.npy"))) == [0.25, 0.5]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """The command on the demo, and the result that it writes."""
    monkeypatch.setattr(command, "BUILD", tmp_path)
    monkeypatch.setattr(plan, "LISTS", {"poisson": 4_000, "bursty": 8_000})
    monkeypatch.setattr(plan, "FINE", 0.1)
    for module in (plan, costs):  # on a busy machine even a light load is refused in part
        monkeypatch.setattr(module, "REFUSED", 1.0)
    monkeypatch.setattr(curves, "LISTS", 1_000)

    def ran(name, *more):
        asked = ["--quick", "--bundle", str(DEMO), "--candidates", "50", "--p99-ms", "60000", *more]
        assert command.main(asked) == 0
        assert [path.stem for path in tmp_path.glob("*.json")] == [name]
        return json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))

    return ran


@pytest.mark.nightly
@needs_haproxy
@needs_cores
def test_it_plans(quick, tmp_path):
    result = quick("capacity")
    assert result["command"].endswith("--quick --bundle DIR")
    assert result["shape"]["features"] == 12
    assert result["service"]["cpu_ms_per_list"] > 0
    assert result["footprint"]["log_bytes"] > 100
    assert result["footprint"]["series"] > 100
    assert len(result["plan"]) == 2 * len(plan.RATES)
    assert (tmp_path / "capacity.svg").stat().st_size > 1000
    assert tmp_path != machine.RESULTS


@pytest.mark.nightly
@needs_haproxy
@needs_cores
def test_it_compares_the_simulation_with_real_replicas(quick):
    result = quick("capacity_validation", "--validate")
    assert result["command"].endswith("--quick --validate --bundle DIR")
    rows = result["rows"]
    assert len(rows) == len(rounds.planned())
    assert min(row["lists"] for row in rows) > 100
    assert {one["loads"] for one in result["verdicts"]} == {2, len(rows)}
    for row in rows:
        assert row["trace_driven"]["p50_ms"] > 0
