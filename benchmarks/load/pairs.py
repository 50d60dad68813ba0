"""Two services side by side that are asked in turns, so that both meet the same noise of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.load.generator import Plan
from benchmarks.load.service import metrics_of, service
from benchmarks.wide_bundle import RANKER

TURN_S, SETTLE_S = 0.25, 0.05
"""Seconds of a turn of each service where one generator asks both, and of its beginning, which is not measured: the
other service may still work there. A shared machine is mostly as fast in the next turn."""

STALL_MS = 50.0
"""Milliseconds of an answer that count as a pause of the machine: its pair of turns is left out. The service may be the
cause, too, so the result counts such turns of each service, and has the percentiles of all turns."""

MOST_REFUSED = 0.005
"""Largest share of refused requests: in a pause of the machine the queue is full."""

RESAMPLES, BLOCK_S = 2000, 10.0
"""Samples of the bootstrap, and seconds of its blocks, in which the machine is about equally fast."""

CALLERS, MOST_CALLERS = 4, 256
"""Callers of a closed loop, which measures the peak, and of an open one, which a pause must not exhaust."""

Outcome = dict[str, Any]
Turns = Sequence[tuple[np.ndarray, np.ndarray]]
"""Milliseconds of the answers in pairs of turns, each without what is measured, and with it."""


class Pair:
    """Two services, one ``without`` and one ``with`` the measured feature.

    Args:
        folder: Folder for plans.
        ports: Ports of the services, by the names ``without`` and ``with``.
        request_ids: Request ids by name, from which one service that is both knows which requests are ``with`` it.
    """

    def __init__(self, folder: Path, ports: Mapping[str, int], request_ids: Mapping[str, str] | None = None) -> None:
        self.folder, self.ports, self._request_ids = folder, ports, request_ids or {}

    def ask(self, name: str, body: Path, media_type: str, seconds: float, rate: float = 0.0) -> Outcome:
        """Load one of the services and return the outcome; without a rate, in a closed loop.

        Raises:
            SystemExit: if answers are not 200, but for a share of :data:`MOST_REFUSED`.
        """
        callers = CALLERS if rate == 0.0 else MOST_CALLERS
        plan = Plan(self.ports[name], str(body), seconds, callers, rate=rate, media_type=media_type)
        outcome = self._run_generator(replace(plan, request_ids=self._ids([name])))
        _check(name, outcome)
        return outcome

    def answers(self, name: str, body: Path, media_type: str, seconds: float, rate: float) -> Float[np.ndarray, "N 2"]:
        """Load one service at a rate; return when each request was due, by the machine's clock, and its seconds.

        Raises:
            SystemExit: see :meth:`ask`.
        """
        path = self.folder / "answers.npy"
        plan = Plan(self.ports[name], str(body), seconds, MOST_CALLERS, rate=rate, media_type=media_type)
        _check(name, self._run_generator(replace(plan, answers=str(path), request_ids=self._ids([name]))))
        times: Float[np.ndarray, "N 2"] = np.load(path, allow_pickle=False)
        return times

    def _ids(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._request_ids[name] for name in names if name in self._request_ids)

    def _run_generator(self, plan: Plan) -> Outcome:
        command = [sys.executable, "-m", "benchmarks.load.generator", str(plan.save(self.folder / "plan.json"))]
        outcome: Outcome = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        return outcome

    def in_turns(
        self, pairs: int, body: Path, media_type: str, seconds: float, rate: float = 0.0
    ) -> list[dict[str, Outcome]]:
        """Return pairs of outcomes; which service is first changes from pair to pair."""
        names, outcomes = list(self.ports), []
        for number in range(pairs):
            turns = names if number % 2 == 0 else names[::-1]
            outcomes.append({name: self.ask(name, body, media_type, seconds, rate) for name in turns})
        return outcomes

    def later(self, pairs: int, body: Path, media_type: str, seconds: float, rate: float) -> dict[str, Any]:
        """Measure by which share the 99th percentile is later with it than without.

        It is the median over pairs of open loops.
        """
        loads = self.in_turns(pairs, body, media_type, seconds, rate)
        p99 = {name: [load[name]["milliseconds"]["200"]["p99"] for load in loads] for name in self.ports}
        later = [with_it / without - 1.0 for without, with_it in zip(p99["without"], p99["with"], strict=True)]
        return {
            "rate": round(rate, 1),
            "p99_ms": {name: round(float(np.median(values)), 3) for name, values in p99.items()},
            "later": round(float(np.median(later)), 4),
            "later_quartiles": [round(float(value), 4) for value in np.percentile(later, (25, 75))],
        }

    def alternating(
        self,
        body: Path,
        media_type: str,
        seconds: float,
        rate: float,
        *,
        turn_s: float = TURN_S,
        settle_s: float = SETTLE_S,
        stall_ms: float = STALL_MS,
    ) -> dict[str, Any]:
        """Measure the 99th percentiles of both at a rate, where one generator takes them in turns.

        The intervals are of 95 %: pairs of turns are drawn again, in blocks of :data:`BLOCK_S` (moving block bootstrap,
        Künsch 1989).

        Args:
            body: File with the body of every request.
            media_type: Media type of the body.
            seconds: Duration of both together, in seconds.
            rate: Requests a second.
            turn_s: Seconds of each turn.
            settle_s: Seconds at the beginning of a turn that are not measured: the other service may still work there.
            stall_ms: Milliseconds of an answer that count as a pause, see :data:`STALL_MS`.

        Raises:
            SystemExit: if answers are not 200, but for a share of :data:`MOST_REFUSED`; if no pair is without a stall.
        """
        without, with_it = self.ports.values()
        plan = Plan(without, str(body), seconds, MOST_CALLERS, rate=rate, media_type=media_type)
        turns = self.folder / "turns.json"
        plan = replace(plan, other_port=with_it, turn_s=turn_s, settle_s=settle_s, turns=str(turns))
        outcome = self._run_generator(replace(plan, request_ids=self._ids(self.ports)))
        for name, service_outcome in zip(self.ports, outcome["services"], strict=True):
            _check(name, service_outcome)
        every = [(np.array(first), np.array(second)) for first, second in json.loads(turns.read_bytes())]
        stalled = np.array([[turn.max() > stall_ms for turn in pair] for pair in every])
        pairs = [pair for pair, stalls in zip(every, stalled, strict=True) if not stalls.any()]
        if not pairs:
            raise SystemExit(f"each of {len(every)} pairs of turns has an answer above {stall_ms:g} ms: lower the load")
        block = max(1, min(len(pairs), round(BLOCK_S / (2.0 * turn_s))))
        rng, p99 = np.random.default_rng(0), _p99(pairs)
        samples = np.array([_p99(_resample(pairs, block, rng)) for _ in range(RESAMPLES)])
        return {
            "rate": round(rate, 1),
            "turns": len(every),
            "pairs": len(pairs),
            "stalled": dict(zip(self.ports, stalled.sum(axis=0).tolist(), strict=True)),
            "refused": {
                name: part["answers"].get("429", 0) for name, part in zip(self.ports, outcome["services"], strict=True)
            },
            "turn_s": turn_s,
            "p99_ms": dict(zip(self.ports, p99.round(3).tolist(), strict=True)),
            "later_ms": round(float(p99[1] - p99[0]), 3),
            "later_ms_95": _interval(samples[:, 1] - samples[:, 0], 3),
            "later": round(float(p99[1] / p99[0] - 1.0), 4),
            "later_95": _interval(samples[:, 1] / samples[:, 0] - 1.0, 4),
            "p99_ms_with_stalls": dict(zip(self.ports, _p99(every).round(3).tolist(), strict=True)),
        }

    def metrics(self) -> str:
        """Return ``GET /metrics`` of the service with it."""
        return metrics_of(self.ports["with"])


def _check(name: str, outcome: Outcome) -> None:
    answers = outcome["answers"]
    refused = answers.get("429", 0)
    if outcome["faults"] or not {"200"} <= set(answers) <= {"200", "429"} or refused > MOST_REFUSED * answers["200"]:
        raise SystemExit(f"the service {name} it answered {answers}, faults {outcome['faults']}")


def _p99(pairs: Turns) -> np.ndarray:
    """Return ``(2,)`` percentiles of all turns of each service together."""
    return np.array([np.percentile(np.concatenate(turns), 99) for turns in zip(*pairs, strict=True)])


def _resample(pairs: Turns, block: int, rng: np.random.Generator) -> Turns:
    """Draw about as many pairs of turns, in blocks that followed each other, with replacement."""
    starts = rng.integers(len(pairs) - block + 1, size=-(-len(pairs) // block))
    return [pairs[start + place] for start in starts for place in range(block)][: len(pairs)]


def _interval(values: np.ndarray, digits: int) -> list[float]:
    return [round(float(value), digits) for value in np.percentile(values, (2.5, 97.5))]


@contextmanager
def pair(folder: Path, served: Path, common: Mapping[str, Any], more: Mapping[str, Any]) -> Iterator[Pair]:
    """Start two services of the wide bundle, of which the second has more settings.

    Args:
        folder: Folder for plans.
        served: Folder of the bundle.
        common: Settings of both services.
        more: Further settings of the second service.
    """
    with ExitStack() as stack:
        ports = {}
        for name, settings in {"without": common, "with": {**common, **more}}.items():
            _, connection, _ = stack.enter_context(service(served, ranker=RANKER, **settings))
            ports[name] = connection.port
            connection.close()
        yield Pair(folder, ports)
