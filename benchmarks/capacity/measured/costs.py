"""What one replica costs: a refusal, and all that grows with replicas or lists."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks.capacity.measured.replicas import Generator, Replica, Seen
from benchmarks.capacity.measured.shape import Shape
from benchmarks.capacity.measured.traces import Trace, mean_s, traced
from benchmarks.capacity.simulated import arrivals

PROBES = 200
"""Lists whose answers say how long each step took."""

CALLERS = 12
"""Callers for one replica: so many that lists always wait, and so few that hardly one is refused."""

REFUSED = 0.01
"""Share of the lists of such callers that may be refused, in a slow moment of the machine."""

TRIES = 3
"""Of such callers: a pause of the machine makes replicas refuse lists."""

HEAVY = 3.0
"""Load over the capacity, for refusals."""


class NotAnsweredError(Exception):
    """A replica does not answer as it should: says what it answered."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What grows with lists or with replicas.

    Args:
        body_bytes, answer_bytes: of a request and its answer, without heads.
        log_bytes: of the log line of one list.
        series: that one replica shows in ``/metrics``, after lists and refusals.
        bundle_bytes: of all files of the bundle.
        ready_s: of a replica, from its start until it is ready.
        resident_mb: of a replica after all loads.
    """

    body_bytes: int
    answer_bytes: int
    log_bytes: float
    series: int
    bundle_bytes: int
    ready_s: float
    resident_mb: float


def refusal(generator: Generator, replica: Replica, seconds: float, busy: Sequence[Trace]) -> float:
    """Time of a refusal over that of a list, by far more lists than a replica can answer.

    Args:
        generator: of the load.
        replica: that refuses.
        seconds: of the load.
        busy: of the replica just before.

    Raises:
        NotAnsweredError: if no list is refused.
    """
    cpu_s = mean_s(busy)
    rate = HEAVY / cpu_s
    due = arrivals.draw("poisson", rate, int(rate * seconds), np.random.default_rng(7))
    flood, (trace,) = traced(partial(generator.at, replica.port, due, [replica.process]), [replica])
    if not flood.refused:
        raise NotAnsweredError(f"{rate:.0f} lists a second, and none was refused: the generator is too slow")
    ranking_s = np.concatenate([one.ranking_s for one in busy])
    slower = float(trace.ranking_s.mean() / ranking_s.mean())  # a shared machine is not always as fast
    return max(0.0, flood.cpu_s[0] / slower / cpu_s - len(flood.seconds)) / flood.refused


def evenly(rate: float, seconds: float) -> Float[np.ndarray, " N"]:
    """``rate`` lists a second for so long, at equal distances."""
    return np.arange(1, max(2, int(rate * seconds))) / rate


def callers(generator: Generator, port: int, count: int, seconds: float, watched: Sequence[psutil.Process]) -> Seen:
    """What so many callers see that ask one list after the other; once more where the machine paused.

    Raises:
        NotAnsweredError: unless all was answered by 200, but for a share of :data:`REFUSED`, in one of :data:`TRIES`.
    """
    for _ in range(TRIES):
        seen = generator.callers(port, count, seconds, watched)
        if seen.refused <= REFUSED * seen.asked and not seen.other and len(seen.seconds):
            return seen
        print(f"of {seen.asked} lists, {seen.refused} were refused and {seen.other} failed", file=sys.stderr)
    raise NotAnsweredError(
        f"of {seen.asked} lists, {seen.refused} were refused and {seen.other} failed, in each of {TRIES} tries:"
        " use a quieter machine"
    )


def probe(port: int, shape: Shape) -> tuple[float, int]:
    """Median seconds from first byte to turn, by the service's own clock, and bytes of an answer.

    Raises:
        NotAnsweredError: if a list is not answered by 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    intake_ms, size = [], 0
    for _ in range(PROBES):
        connection.request(
            "POST", "/rerank", shape.body, {"Content-Type": shape.media_type, "Accept": shape.media_type}
        )
        response = connection.getresponse()
        size = len(content := response.read())
        if response.status != http.HTTPStatus.OK:
            raise NotAnsweredError(
                f"a list was answered by {response.status}: {content[:300].decode(errors='replace')}"
            )
        steps = _steps(response.headers["Server-Timing"])
        intake_ms.append(steps.pop("total") - sum(steps.values()))
    connection.close()
    return median(intake_ms) / 1e3, size


def _steps(header: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"([\w-]+);dur=([\d.]+)", header)}


def footprint(replica: Replica, shape: Shape, answer_bytes: int) -> Footprint:
    """Of a replica that has answered and refused lists."""
    lines = [line for line in replica.log.read_bytes().splitlines() if b'"path": "/rerank"' in line]
    return Footprint(
        body_bytes=len(shape.body),
        answer_bytes=answer_bytes,
        log_bytes=round(sum(len(line) + 1 for line in lines) / len(lines), 1),
        series=series(replica.port),
        bundle_bytes=shape.bundle_bytes,
        ready_s=round(replica.ready_s, 2),
        resident_mb=round(replica.process.memory_info().rss / 1e6, 1),
    )


def series(port: int) -> int:
    """Samples in ``/metrics``: Prometheus keeps a series for each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))
