"""The fewest replicas that keep to a target, what they cost, and what breaks first."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.capacity import curves, limits, plan
from benchmarks.capacity.measured.costs import Footprint
from benchmarks.capacity.plan import SPARE, Target, UnreachableError
from benchmarks.capacity.service_times import ServiceTimes, pooled
from benchmarks.capacity.simulated.balancers import BALANCERS
from benchmarks.capacity.simulated.worker import Stretches, Waking

CELL = 6
TIMES = ServiceTimes(
    cpu_s=0.002,
    spread=np.linspace(0.8, 1.2, 50),
    slowness=Stretches((0.0, 1.0), (0.9, 1.1), 2.0),
    waking=Waking((0.001, 0.01), (0.0001, 0.0001)),
    around_s=0.0002,
    intake_s=0.0003,
    refusal_s=0.0002,
)
FOUND = Footprint(
    body_bytes=50_000,
    answer_bytes=500,
    log_bytes=400.0,
    series=600,
    bundle_bytes=10**7,
    ready_s=3.0,
    resident_mb=200.0,
)


def target(p99_ms=20.0, balancer="least connections"):
    return Target(TIMES, p99_ms / 1e3, TIMES.around_s, balancer)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(plan, "LISTS", {"poisson": 20_000, "bursty": 60_000})
    monkeypatch.setattr(plan, "FINE", 0.05)
    monkeypatch.setattr(plan, "CELL", CELL)


def test_one_replica_fewer_does_not_carry_the_load():
    rate = 2_000.0
    most = plan.cell_rate(target(), "poisson")
    fewest = plan.needed(target(), rate, "poisson", most)
    assert math.ceil(rate * TIMES.cpu_s) <= fewest < CELL
    assert target().carried(rate, fewest, "poisson")
    assert not target().carried(rate, fewest - 1, "poisson")


def test_beyond_a_cell_replicas_grow_in_proportion():
    most = plan.cell_rate(target(), "poisson")
    assert plan.needed(target(), 10 * most, "poisson", most) == 10 * CELL
    assert 0.6 * CELL / TIMES.cpu_s < most < CELL / TIMES.cpu_s


def test_a_tighter_target_and_a_worse_balancer_carry_less():
    assert plan.cell_rate(target(4.0), "poisson") < plan.cell_rate(target(40.0), "poisson")
    assert plan.cell_rate(target(20.0, "random"), "poisson") < plan.cell_rate(target(20.0), "poisson")
    assert plan.cell_rate(target(), "bursty") < plan.cell_rate(target(), "poisson")


def test_a_target_below_what_one_list_takes_is_refused_by_name():
    with pytest.raises(
        UnreachableError, match=r"--p99-ms 1: a light load has a 99th percentile of 2\.\d ms; give more"
    ):
        plan.cell_rate(target(1.0), "poisson")


def test_a_machine_that_is_slow_at_times_carries_less():
    halting = replace(TIMES, slowness=Stretches((0.0, 0.2), (3.0, 6 / 7), 1.0))  # as much work in a second
    assert plan.cell_rate(replace(target(), times=halting), "poisson") < 0.9 * plan.cell_rate(target(), "poisson")


def test_the_plan_has_each_rate_and_its_cost():
    rows = plan.plan(target(), 0.5)
    assert [row["lists_per_second"] for row in rows] == [*plan.RATES, *plan.RATES]
    for row in rows:
        assert row["replicas"] == row["replicas_needed"] + SPARE
        assert row["cost_per_hour"] == row["replicas"] * 0.5
        lists_an_hour = row["lists_per_second"] * 3600
        assert row["cost_per_million_lists"] == pytest.approx(row["replicas"] * 0.5 / lists_an_hour * 1e6, abs=1e-5)
        assert 0.0 < row["utilisation"] < 1.0 / (1.0 + plan.MARGIN)


def test_demands_are_products_of_what_was_measured():
    asked = limits.demands(1e5, 200, FOUND, haproxy_s=0.0001)
    assert asked == {
        "balancer": pytest.approx(10.0),
        "network": pytest.approx(1e5 * 50_500 * 8 / 1e9),
        "log": pytest.approx(40.0),
        "metrics": 120_000.0,
        "bundle copies": pytest.approx(200 * 0.01),
        "roll-out": pytest.approx(200 * (3.0 + 1.0)),
    }


def test_what_breaks_first_is_furthest_over_its_limit():
    found = limits.breaks_first(limits.demands(1e5, 200, FOUND, haproxy_s=0.0001))
    assert found["first"] == "network"
    assert found["broken"] == ["network"]
    assert found["over_limit"]["balancer"] == pytest.approx(10.0 / 16.0)
    assert limits.breaks_first(limits.demands(1e3, 3, FOUND, haproxy_s=0.0001))["broken"] == []


def test_drawn_times_have_the_measured_mean_and_spread():
    drawn = TIMES.draw(50_000, np.random.default_rng(1))
    assert drawn.mean() + TIMES.intake_s == pytest.approx(TIMES.cpu_s, rel=0.005)
    assert drawn.std() == pytest.approx((TIMES.cpu_s - TIMES.intake_s) * TIMES.spread.std(), rel=0.05)


def test_replicas_are_slow_at_different_times():
    each = TIMES.replicas(200, np.random.default_rng(2))
    assert 0.3 < np.mean([one(0.0) == 0.9 for one in each]) < 0.7
    assert {one(0.0) + one(1.0) for one in each} == {2.0}


def test_rounds_are_pooled():
    other = replace(TIMES, cpu_s=0.006, spread=np.ones(10), slowness=Stretches((0.0,), (1.0,), 4.0))
    both = pooled([TIMES, other])
    assert both.cpu_s == pytest.approx(0.004)
    assert len(both.spread) == 60
    assert both.slowness.span_s == 6.0
    assert [both.slowness(at) * both.cpu_s for at in (0.5, 1.5, 2.5, 5.9, 6.5)] == pytest.approx(
        [0.0018, 0.0022, 0.006, 0.006, 0.0018]
    )


def test_the_worker_has_the_defaults_of_the_service():
    worker = TIMES.worker()
    assert (worker.threads, worker.places, worker.patience_s) == (0, 64, 0.1)
    assert (worker.intake_s, worker.refusal_s) == (TIMES.intake_s, TIMES.refusal_s)


def test_curves_and_their_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(curves, "LISTS", 2_000)
    points = curves.curves(target())
    assert len(points) == 2 * len(BALANCERS) * len(curves.LOADS)
    path = curves.figure({"curves": points, "p99_ms": 20.0}, tmp_path / "capacity.svg")
    text = path.read_text(encoding="utf-8")
    assert all(balancer in text for balancer in BALANCERS)
    at = {(p["arrivals"], p["balancer"], p["load"]): p for p in points}
    assert at["poisson", "random", 0.8]["p99_ms"] > at["poisson", "least connections", 0.8]["p99_ms"]
    assert at["poisson", "random", 1.2]["refused"] > 0.02
