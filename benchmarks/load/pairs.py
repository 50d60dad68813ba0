"""Two services side by side that are asked in turns, so that both meet the same noise of the machine."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.generator import Plan
from benchmarks.load.service import service

CALLERS, MOST_CALLERS = 4, 256
"""Of a closed loop, which measures the peak, and of an open one, which a pause of the machine must not exhaust."""

Outcome = dict[str, Any]


class Pair:
    """The two services.

    Args:
        folder: for plans.
        ports: by name, of the service ``without`` and ``with`` what is measured.
    """

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.folder, self.ports = folder, ports

    def ask(self, name: str, body: Path, media_type: str, seconds: float, rate: float = 0.0) -> Outcome:
        """What comes of asking one of them; without a rate, in a closed loop.

        Raises:
            SystemExit: if an answer is not 200.
        """
        callers = CALLERS if rate == 0.0 else MOST_CALLERS
        plan = Plan(self.ports[name], str(body), seconds, callers, rate=rate, media_type=media_type)
        command = [sys.executable, "-m", "benchmarks.load.generator", str(plan.save(self.folder / "plan.json"))]
        outcome: Outcome = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        if set(outcome["answers"]) != {"200"} or outcome["faults"]:
            raise SystemExit(f"the service {name} it answered {outcome['answers']}, faults {outcome['faults']}")
        return outcome

    def in_turns(
        self, pairs: int, body: Path, media_type: str, seconds: float, rate: float = 0.0
    ) -> list[dict[str, Outcome]]:
        """Pairs of outcomes; which service is first changes from pair to pair."""
        names, found = list(self.ports), []
        for number in range(pairs):
            turns = names if number % 2 == 0 else names[::-1]
            found.append({name: self.ask(name, body, media_type, seconds, rate) for name in turns})
        return found

    def later(self, pairs: int, body: Path, media_type: str, seconds: float, rate: float) -> dict[str, Any]:
        """How much later the 99th percentile is with it than without, as a share: medians over pairs of open loops."""
        loads = self.in_turns(pairs, body, media_type, seconds, rate)
        p99 = {name: [one[name]["milliseconds"]["200"]["p99"] for one in loads] for name in self.ports}
        later = [with_it / without - 1.0 for without, with_it in zip(p99["without"], p99["with"], strict=True)]
        return {
            "rate": round(rate, 1),
            "p99_ms": {name: round(float(np.median(values)), 3) for name, values in p99.items()},
            "later": round(float(np.median(later)), 4),
            "later_quartiles": [round(float(value), 4) for value in np.percentile(later, (25, 75))],
        }

    def metrics(self) -> str:
        """What ``GET /metrics`` of the service with it says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["with"], timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return text


@contextmanager
def pair(folder: Path, served: Path, common: Mapping[str, Any], more: Mapping[str, Any]) -> Iterator[Pair]:
    """Two services of one bundle, of which the second has more settings.

    Args:
        folder: for plans.
        served: the bundle.
        common: settings of both.
        more: settings of the second.
    """
    with ExitStack() as stack:
        ports = {}
        for name, settings in {"without": common, "with": {**common, **more}}.items():
            _, connection, _ = stack.enter_context(service(served, **settings))
            ports[name] = connection.port
            connection.close()
        yield Pair(folder, ports)
