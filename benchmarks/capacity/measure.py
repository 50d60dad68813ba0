"""What one replica costs: service times of a list, and all that grows with replicas or lists."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks.capacity import arrivals
from benchmarks.capacity.replicas import Generator, Replica, Seen
from benchmarks.capacity.shape import Shape
from benchmarks.capacity.simulation import Waking, Worker
from listwright.service.settings import Settings

PROBES = 200
"""Lists whose answers say how long each step took."""

CALLERS = 12
"""Callers for one replica: so many that lists always wait, and so few that hardly one is refused."""

REFUSED = 0.01
"""Share of the lists of such callers that may be refused, in a slow moment of the machine."""

TRIES = 3
"""Of such callers: a pause of the machine makes replicas refuse lists."""

SPACED = (0.8, 0.6, 0.4, 0.2, 0.1)
"""Loads over the capacity of evenly spaced lists: each finds the replica asleep, longer from load to load."""

LIGHT, HEAVY = 0.4, 3.0
"""Loads over the capacity: where the way of a list is looked at, one of :data:`SPACED`; and for refusals."""

BLOCK = 64
"""Lists in a row whose times are drawn together: a slow moment of the machine meets more than one list."""

LEAST_SHARE = 0.2
"""Of the mean service time, intake excluded: the least that one is taken for. The share of the network in a time
varies, too."""


class NotAnsweredError(Exception):
    """A replica does not answer as it should: says what it answered."""


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Of one list on one core that does nothing else; seconds.

    Args:
        cpu_s: the process takes for one list while it never sleeps: all of it, also what follows the answer.
        took_s: ``(N,)`` as one caller sees each, in their order.
        waking: what the process takes beyond that for a list that finds it asleep.
        woken_s: median of what a caller sees at a load of :data:`LIGHT`.
        intake_s: from a request's first byte until its turn begins, where nothing else waits.
        refusal_s: the process takes for one refusal.
    """

    cpu_s: float
    took_s: Float[np.ndarray, " N"]
    waking: Waking
    woken_s: float
    intake_s: float
    refusal_s: float

    @property
    def typical_s(self) -> float:
        """Median of what the process takes for a list at a load of :data:`LIGHT`."""
        slept_s = (1.0 / LIGHT - 1.0) * self.cpu_s
        return self.cpu_s + self.waking.after(slept_s) + float(np.median(self.took_s) - self.took_s.mean())

    @property
    def around_s(self) -> float:
        """What a caller waits beyond what the process takes. Below 0 where the process works on after its answer."""
        return self.woken_s - self.typical_s

    def taking(self, cpu_s: float) -> ServiceTimes:
        """These with another CPU time of a list, of which the intake is half at most."""
        return replace(self, cpu_s=cpu_s, intake_s=min(self.intake_s, cpu_s / 2))

    def worker(self, *, beside_s: float = 0.0) -> Worker:
        """A replica with the settings that it has by default.

        Args:
            beside_s: others take on its core for each request.
        """
        settings = {name: field.default for name, field in Settings.model_fields.items()}
        return Worker(
            intake_s=self.intake_s + beside_s,
            refusal_s=self.refusal_s + beside_s,
            waking=self.waking,
            threads=settings["threads"],
            places=settings["queue"],
            patience_s=settings["queue_ms"] / 1e3,
        )

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, " M"]:
        """``(count,)`` times of the event loop for one list, intake excluded: of the mean that was measured, and spread
        as what the caller saw, in blocks of :data:`BLOCK` lists that followed each other (moving block bootstrap,
        Künsch 1989).
        """
        spread = self.took_s - self.took_s.mean()
        ranking_s = self.cpu_s - self.intake_s
        whole = np.maximum(ranking_s + spread, LEAST_SHARE * ranking_s)
        whole *= ranking_s / whole.mean()
        block = min(BLOCK, len(whole))
        starts = rng.integers(len(whole) - block + 1, size=-(-count // block))
        drawn: Float[np.ndarray, " M"] = whole[(starts[:, None] + np.arange(block)).ravel()[:count]]
        return drawn


def pooled(times: Sequence[ServiceTimes]) -> ServiceTimes:
    """Means of several measurements, and all times that callers saw."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in times]))

    slept_s, more_s = (
        tuple(np.mean([getattr(one.waking, name) for one in times], axis=0).tolist()) for name in ("slept_s", "more_s")
    )
    return ServiceTimes(
        cpu_s=mean("cpu_s"),
        took_s=np.concatenate([one.took_s for one in times]),
        waking=Waking(slept_s, more_s),
        woken_s=mean("woken_s"),
        intake_s=mean("intake_s"),
        refusal_s=mean("refusal_s"),
    )


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
    """Warm up, then a few callers, then one, then evenly spaced lists, then more than it can answer.

    Raises:
        NotAnsweredError: if a list is not answered by 200.
    """
    intake_s, _ = probe(replica.port, shape)
    generator.callers(replica.port, CALLERS, seconds / 4, [])
    busy = callers(generator, replica.port, CALLERS, seconds, [replica.process])
    cpu_s = busy.cpu_s[0] / len(busy.seconds)
    alone = callers(generator, replica.port, 1, seconds, [replica.process])
    waking, woken_s = _waking(generator, replica, cpu_s, seconds)
    rate = HEAVY / cpu_s
    due = arrivals.draw("poisson", rate, int(rate * seconds), np.random.default_rng(7))
    flood = generator.at(replica.port, due, [replica.process])
    if not flood.refused:
        raise NotAnsweredError(f"{rate:.0f} lists a second, and none was refused: the generator is too slow")
    refusal_s = max(0.0, flood.cpu_s[0] - len(flood.seconds) * cpu_s) / flood.refused
    return ServiceTimes(
        cpu_s=cpu_s,
        took_s=alone.seconds,
        waking=waking,
        woken_s=woken_s,
        intake_s=intake_s,
        refusal_s=refusal_s,
    ).taking(cpu_s)


def _waking(generator: Generator, replica: Replica, cpu_s: float, seconds: float) -> tuple[Waking, float]:
    """What lists take longer after sleeps, and the median of what their callers see at :data:`LIGHT`."""
    slept_s, more_s, woken_s = list[float](), list[float](), 0.0
    for load in SPACED:
        seen = generator.at(replica.port, evenly(load / cpu_s, seconds), [replica.process])
        if not len(seen.seconds):
            raise NotAnsweredError(f"of {seen.asked} lists, none was answered")
        took_s = seen.cpu_s[0] / len(seen.seconds)
        slept_s.append(max(cpu_s / load - took_s, slept_s[-1] if slept_s else 0.0) + 1e-9)
        more_s.append(max(0.0, took_s - cpu_s))
        if load == LIGHT:
            woken_s = float(np.median(seen.seconds))
    return Waking(tuple(slept_s), tuple(more_s)), woken_s


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
