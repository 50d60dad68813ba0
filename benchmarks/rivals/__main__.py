"""``python -m benchmarks.rivals [OPTIONS]``: ours and what people would use instead, on one bundle's files.

Each server in turn: start it in its own environment, see that it ranks a list as we do, warm it up, find its peak with
clients that wait, then raise a constant arrival rate until it no longer keeps to the limit. Then ours and the best
rival in turns. The generator of the load has a core to itself, unless it shares the server's. Whatever does not
install, start or agree is skipped with a line. ``docs/benchmarks.md`` says what the figures show and what they do not.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import wide_bundle
from benchmarks.rivals import report, turns
from benchmarks.rivals.contenders import OURS, RIVALS
from benchmarks.rivals.cores import IndivisibleError, divided, shared
from benchmarks.rivals.environments import BUILD, NotInstallableError, prepare
from benchmarks.rivals.measure import CANDIDATES, CLIENTS, QUICK, WHOLE, Bench, DisagreementError, measure
from benchmarks.rivals.processes import NotServingError
from benchmarks.rivals.report import Result
from listwright.ranking import bundle
from listwright.ranking.errors import ListwrightError
from listwright_lab import machine


def main() -> int:
    """Run the command line; write ``rivals.json`` and ``.svg`` to the results, or to ``build/rivals`` if quick."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five minutes: does everything run?")
    parser.add_argument("--limit-ms", type=float, default=50.0, help="99th percentile that counts as served")
    parser.add_argument("--shared", action="store_true", help="the generator takes its time from the server's cores")
    parser.add_argument("--seconds", type=int, default=WHOLE.step_s, help="of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=WHOLE.rounds, help="in turns (default: %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that it ends as Ctrl-C does
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        bench = _bench(options)
    except IndivisibleError as error:
        print(f"error: the generator can have no core to itself: {error}; use --shared", file=sys.stderr)
        return 1
    except NotInstallableError as error:
        print(f"error: without k6 nothing can be measured: {error}", file=sys.stderr)
        return 1
    results: list[Result] = []
    skipped: dict[str, str] = {}
    in_turns: dict[str, object] | None = None
    complete = False
    try:
        for result in _measure_all(bench, skipped):
            results.append(result)
        in_turns = _in_turns(bench, results)
        complete = True
    except KeyboardInterrupt:
        print("interrupted: what follows is what was measured until then", file=sys.stderr)
    finally:
        _publish(bench, results, in_turns, skipped, complete=complete)
    return 0 if complete and any(result.ours for result in results) else 1


def _bench(options: argparse.Namespace) -> Bench:
    cores = shared() if options.shared else divided()
    k6 = prepare("k6") / "k6"
    whole = replace(WHOLE, step_s=options.seconds, rounds=options.rounds)
    return Bench(k6, _bundle(), cores, QUICK if options.quick else whole, options.limit_ms)


def _bundle() -> Path:
    """Return the bundle of 136 features; fitted once, as it takes a minute."""
    folder = BUILD / "wide" / "1"
    try:
        bundle.load(folder)
    except ListwrightError:
        print("fitting a bundle of 136 features", flush=True)
        return wide_bundle.build(folder)
    return folder


def _measure_all(bench: Bench, skipped: dict[str, str]) -> Iterator[Result]:
    """Measure rivals first: ours is also measured within the best rival's own percentile."""
    rivals: list[Result] = []
    for contender in (*RIVALS, OURS):
        for request_format in contender.formats:
            limits = [bench.limit_ms]
            best = report.best_rival(rivals, bench.limit_ms)
            if contender is OURS and best is not None and best[1].step.p99_ms is not None:
                limits.append(best[1].step.p99_ms)
            name = f"{contender.title}, {request_format.name}"
            print(name, end=" ", flush=True)
            try:
                result = measure(bench, contender, request_format, limits)
            except (NotInstallableError, NotServingError, DisagreementError) as error:
                skipped[name] = str(error)
                print(f"skipped: {error}", flush=True)
                continue
            if not result.ours:
                rivals.append(result)
            yield result


def _in_turns(bench: Bench, results: list[Result]) -> dict[str, object] | None:
    """Measure in turns with the rival that sustained most; None if none sustained anything, or ours is absent."""
    best = report.best_rival(results, bench.limit_ms)
    if best is None or not any(result.ours for result in results):
        return None
    rival, there = best
    contender = next(candidate for candidate in RIVALS if candidate.title == rival.title)
    return turns.in_turns(bench, contender, there)


def _publish(
    bench: Bench,
    results: list[Result],
    in_turns: dict[str, object] | None,
    skipped: dict[str, str],
    *,
    complete: bool,
) -> None:
    """Write the results; a quick or interrupted run does not replace a whole one."""
    quick = bench.plan is QUICK
    folder = machine.RESULTS if complete and not quick else BUILD
    name = "rivals" if bench.cores.apart else "rivals_shared"
    headline = report.headline(results, bench.limit_ms)
    lines = [
        *report.table(results, bench.limit_ms),
        *report.sentences(headline, bench.limit_ms),
        *([] if in_turns is None else turns.sentences(in_turns)),
        *report.disturbed(results),
    ]
    print("\n".join([*lines, *(f"skipped: {name}: {why}" for name, why in skipped.items())]))
    written: dict[str, object] = {
        "complete": complete,
        "limit_ms": bench.limit_ms,
        "candidates": CANDIDATES,
        "features": wide_bundle.FEATURES,
        "cores_of_the_server": sorted(bench.cores.servers),
        "cores_of_the_generator": sorted(bench.cores.generator),
        "workers": bench.cores.workers,
        "clients_at_peak": CLIENTS,
        "seconds_per_step": bench.plan.step_s,
        "load_average_after": round(os.getloadavg()[0], 2),
        "headline": headline,
        "in_turns": in_turns,
        "servers": [result.report(bench.limit_ms) for result in results],
        "skipped": skipped,
    }
    command = ["python -m benchmarks.rivals"]
    command += ["--shared"] * (not bench.cores.apart) + ["--quick"] * quick
    if not quick:
        for option, value, usual in (
            ("seconds", bench.plan.step_s, WHOLE.step_s),
            ("rounds", bench.plan.rounds, WHOLE.rounds),
        ):
            command += [f"--{option} {value}"] * (value != usual)
    print(machine.save(name, " ".join(command), written, folder=folder))
    if results:
        print(report.draw(results, bench.limit_ms, folder / f"{name}.svg"))


if __name__ == "__main__":
    sys.exit(main())
