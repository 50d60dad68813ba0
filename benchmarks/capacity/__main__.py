"""``python -m benchmarks.capacity``: how many replicas a load needs, what they cost, and what breaks first.

It measures what one list costs a replica of one worker on one core, with real processes. Then it simulates replicas
behind a balancer, and looks for the fewest that keep to the 99th percentile.

With --validate, the same arrivals go to real and to simulated replicas: to one, and to two behind haproxy. A second
result has the simulation beside the measurement.

examples:
  python -m benchmarks.capacity
  python -m benchmarks.capacity --validate
  python -m benchmarks.capacity --candidates 1000 --features 40 --p99-ms 100
  python -m benchmarks.capacity --bundle models/demo/1 --format 'columnar JSON' --price 0.03
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil

from benchmarks import machine
from benchmarks.capacity import curves, limits, validation
from benchmarks.capacity.measured import rounds
from benchmarks.capacity.measured.costs import NotAnsweredError
from benchmarks.capacity.measured.rounds import Rounds
from benchmarks.capacity.measured.shape import BUILD, FORMATS, Shape, ShapeError, shape
from benchmarks.capacity.measured.traces import TraceError
from benchmarks.capacity.plan import Target, UnreachableError, plan
from benchmarks.capacity.service_times import pooled
from benchmarks.capacity.simulated.balancers import BALANCERS
from benchmarks.rivals.cores import IndivisibleError

PRICE = 0.05
"""Of one core for one hour, in any currency: an assumption, of the order of what clouds ask on demand."""

ERRORS = (ShapeError, UnreachableError, NotAnsweredError, TraceError, IndivisibleError)


def main(arguments: list[str] | None = None) -> int:
    """Command line; writes ``capacity.json`` and ``.svg``, or ``capacity_validation.json``, to ``benchmarks/results``,
    or to ``build/capacity`` if quick.
    """
    options = _options(arguments)
    try:
        if shutil.which("haproxy") is None:
            raise ShapeError("haproxy is not on the PATH: install it, e.g. apt-get install haproxy")
        asked = shape(options.bundle, options.candidates, options.features, options.format)
        count, seconds = (1, 2.0) if options.quick else (options.rounds, options.seconds)
        loads = rounds.planned() if options.validate else []
        found = rounds.measured(asked, rounds.cores(), loads, count=count, seconds=seconds)
        result = _validated(options, asked, found) if options.validate else _planned(options, asked, found)
    except (*ERRORS, TimeoutError, subprocess.CalledProcessError, psutil.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    folder = BUILD if options.quick else machine.RESULTS
    name = "capacity_validation" if options.validate else "capacity"
    print(machine.save(name, _command(options), result, folder=folder))
    if not options.validate:
        print(curves.figure(result, folder / "capacity.svg"))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--candidates", type=int, default=100, help="of each list (100)")
    parser.add_argument("--features", type=int, help="of each candidate (136, or the bundle's)")
    parser.add_argument("--bundle", type=Path, help="what is served; default: a bundle that is fitted here, to noise")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the requests (npy)")
    parser.add_argument("--p99-ms", type=_positive, default=50.0, help="99th percentile to keep to (50)")
    parser.add_argument("--balancer", choices=BALANCERS, default=rounds.DEFAULT, help=f"({rounds.DEFAULT})")
    parser.add_argument("--price", type=_positive, default=PRICE, help=f"of one core for one hour ({PRICE})")
    parser.add_argument(
        "--validate", action="store_true", help="compare the simulation with real replicas, and plan nothing"
    )
    parser.add_argument("--rounds", type=_count, default=3, help="of all measured loads (3)")
    parser.add_argument("--seconds", type=_positive, default=24.0, help="of each load in each round (24)")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: does everything run?")
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give at least 1")
    return value


def _command(options: argparse.Namespace) -> str:
    """As it is given again, without this machine's folders."""
    words = [f"--candidates {options.candidates} --format '{options.format}'"]
    if not options.validate:
        words += [f"--p99-ms {options.p99_ms:g} --balancer '{options.balancer}' --price {options.price:g}"]
    words += ["--quick"] if options.quick else [f"--rounds {options.rounds} --seconds {options.seconds:g}"]
    words += ["--validate"] if options.validate else []
    words += ["--bundle DIR"] if options.bundle else [f"--features {options.features}"] if options.features else []
    return " ".join(["python -m benchmarks.capacity", *words])


def _shape(asked: Shape) -> dict[str, object]:
    return {
        "bundle": asked.identity,
        "candidates": asked.candidates,
        "features": asked.features,
        "format": asked.format,
    }


def _validated(options: argparse.Namespace, asked: Shape, found: Rounds) -> dict[str, object]:
    others = found.pooled_others()
    print("simulating", flush=True)
    return {
        "shape": _shape(asked),
        "machine_speed": found.speeds,
        "seconds": 2.0 if options.quick else options.seconds,
        "haproxy_ms_per_list": round(others.haproxy_s * 1e3, 4),
        "generator_ms_per_list": round(others.generator_s * 1e3, 4),
        **validation.report(found),
    }


def _planned(options: argparse.Namespace, asked: Shape, found: Rounds) -> dict[str, object]:
    times, haproxy_s = pooled(found.alone), found.pooled_others().haproxy_s
    assert found.footprint is not None
    target = Target(times, options.p99_ms / 1e3, times.around_s + haproxy_s, options.balancer)
    print("simulating", flush=True)
    rows = plan(target, options.price)
    for row in rows:
        rate, replicas = int(str(row["lists_per_second"])), int(str(row["replicas"]))
        row["breaks"] = limits.breaks_first(limits.demands(rate, replicas, found.footprint, haproxy_s))
    took_s = np.concatenate(found.took_s)
    p50, p99 = np.percentile(took_s, (50, 99)) * 1e3
    slow = np.percentile(times.slowness.ratios, (1, 50, 99))
    return {
        "shape": _shape(asked),
        "machine_speed": found.speeds,
        "p99_ms": options.p99_ms,
        "balancer": options.balancer,
        "price_per_core_hour": options.price,
        "service": {
            "cpu_ms_per_list": round(times.cpu_s * 1e3, 4),
            "slowness": [round(float(ratio), 3) for ratio in slow],
            "slept_ms": [round(slept_s * 1e3, 3) for slept_s in times.waking.slept_s],
            "waking_ms": [round(more_s * 1e3, 4) for more_s in times.waking.more_s],
            "of_which_intake_ms": round(times.intake_s * 1e3, 4),
            "refusal_ms": round(times.refusal_s * 1e3, 4),
            "alone_p50_ms": round(float(p50), 3),
            "alone_p99_ms": round(float(p99), 3),
            "around_ms": round(target.around_s * 1e3, 3),
            "haproxy_ms_per_list": round(haproxy_s * 1e3, 4),
            "lists": len(times.spread),
        },
        "footprint": asdict(found.footprint),
        "limits": [asdict(limit) for limit in limits.LIMITS],
        "plan": rows,
        "curves": curves.curves(target),
    }


if __name__ == "__main__":
    sys.exit(main())
