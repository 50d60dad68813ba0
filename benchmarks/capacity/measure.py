"""What one replica costs: service times of a list, and all that grows with replicas or lists."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass
from statistics import median

import numpy as np
from jaxtyping import Float

from benchmarks.capacity import arrivals
from benchmarks.capacity.replicas import Generator, Replica, Seen
from benchmarks.capacity.shape import Shape
from benchmarks.capacity.simulation import Worker
from listwright.service.settings import Settings

PROBES = 200
"""Lists whose answers say how long each step took."""

LIGHT, HEAVY = 0.5, 3.0
"""Loads over the capacity of what is asked: of evenly spaced lists, which find the replica asleep; and for refusals."""

LEAST_SHARE = 0.2
"""Of the mean service time: the least that one is taken for. The share of the network in a time varies, too."""


class NotAnsweredError(Exception):
    """A replica does not answer as it should: says what it answered."""


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Of one list on one core that does nothing else; seconds.

    Args:
        cpu_s: the process takes for one list, at one list after the other: all of it, also what follows the answer.
        took_s: ``(N,)`` as the caller sees each.
        wake_s: the process takes beyond that for a list that finds it asleep.
        woken_s: median of what the caller of such a list sees.
        intake_s: from a request's first byte until its turn begins, where nothing else waits.
        refusal_s: the process takes for one refusal.
    """

    cpu_s: float
    took_s: Float[np.ndarray, " N"]
    wake_s: float
    woken_s: float
    intake_s: float
    refusal_s: float

    @property
    def typical_s(self) -> float:
        """Median of what the process takes for a list that finds it asleep."""
        return self.cpu_s + self.wake_s + float(np.median(self.took_s) - self.took_s.mean())

    @property
    def around_s(self) -> float:
        """What a caller waits beyond what the process takes. Below 0 where the process works on after its answer."""
        return self.woken_s - self.typical_s

    def worker(self, *, beside_s: float = 0.0) -> Worker:
        """A replica with the settings that it has by default.

        Args:
            beside_s: others take on its core for each request.
        """
        settings = {name: field.default for name, field in Settings.model_fields.items()}
        return Worker(
            intake_s=self.intake_s + beside_s,
            refusal_s=self.refusal_s + beside_s,
            wake_s=self.wake_s,
            threads=settings["threads"],
            places=settings["queue"],
            patience_s=settings["queue_ms"] / 1e3,
        )

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, " M"]:
        """``(count,)`` times of the event loop for one list, intake excluded: of the mean that was measured, and spread
        as what the caller saw.
        """
        spread = self.took_s - self.took_s.mean()
        whole = np.maximum(self.cpu_s + spread, LEAST_SHARE * self.cpu_s) - self.intake_s
        whole *= (self.cpu_s - self.intake_s) / whole.mean()
        return rng.choice(whole, count)


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


def service_times(generator: Generator, replica: Replica, shape: Shape, seconds: float) -> ServiceTimes:
    """Warm up, then one caller, then evenly spaced lists, then more than it can answer.

    Raises:
        NotAnsweredError: if a list is not answered by 200.
    """
    intake_s, _ = probe(replica.port, shape)
    generator.one_caller(replica.port, seconds / 4, [])
    alone = answered(generator.one_caller(replica.port, seconds, [replica.process]))
    cpu_s = alone.cpu_s[0] / len(alone.seconds)
    spaced = generator.at(replica.port, evenly(LIGHT / cpu_s, seconds), [replica.process])
    if not len(spaced.seconds):
        raise NotAnsweredError(f"of {spaced.asked} lists, none was answered")
    wake_s = max(0.0, spaced.cpu_s[0] / len(spaced.seconds) - cpu_s)
    rate = HEAVY / cpu_s
    due = arrivals.draw("poisson", rate, int(rate * seconds), np.random.default_rng(7))
    flood = generator.at(replica.port, due, [replica.process])
    if not flood.refused:
        raise NotAnsweredError(f"{rate:.0f} lists a second, and none was refused: the generator is too slow")
    refusal_s = max(0.0, flood.cpu_s[0] - len(flood.seconds) * cpu_s) / flood.refused
    return ServiceTimes(
        cpu_s=cpu_s,
        took_s=alone.seconds,
        wake_s=wake_s,
        woken_s=float(np.median(spaced.seconds)),
        intake_s=min(intake_s, cpu_s / 2),
        refusal_s=refusal_s,
    )


def evenly(rate: float, seconds: float) -> Float[np.ndarray, " N"]:
    """``rate`` lists a second for so long, at equal distances."""
    return np.arange(1, max(2, int(rate * seconds))) / rate


def answered(seen: Seen) -> Seen:
    """The same.

    Raises:
        NotAnsweredError: unless all was answered by 200.
    """
    if seen.refused or seen.other or not len(seen.seconds):
        raise NotAnsweredError(f"of {seen.asked} lists, {seen.refused} were refused and {seen.other} failed")
    return seen


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
