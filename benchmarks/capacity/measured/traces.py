"""Traces of replicas: what each list took, by the log of its replica and by the system's account of the process.

The log says when each list was answered, and how long it was ranked. The system says for how long the process ran, a
few times a second. That time is shared out to the lists in between, by their ranking.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from benchmarks.capacity.measured.replicas import Replica, Seen
from benchmarks.capacity.simulated.worker import Stretches

EVERY_S = 0.1
"""How often the system is asked."""

LEAST = 16
"""Lists, at least, that share the time of the process: the first and the last of them may be cut in two."""

CUT_S = 0.001
"""Times of a log are cut to so many seconds."""

LOGGED = 0.98
"""Share of the answers that must be in the logs."""


class TraceError(Exception):
    """A trace cannot be taken, or has too few lists: says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The lists that one replica answered or refused.

    Args:
        at_s: ``(N,)`` seconds from the beginning of the load to the log line of an answered list, ascending.
        ranking_s: ``(N,)`` of both stages, by the service's own clock.
        refused_at_s: ``(M,)`` to the log line of a refused one, ascending.
        asked_s: ``(A,)`` when the system was asked, ascending.
        ran_s: ``(A,)`` for how long the process had run by then.
    """

    at_s: Float[np.ndarray, " N"]
    ranking_s: Float[np.ndarray, " N"]
    refused_at_s: Float[np.ndarray, " M"]
    asked_s: Float[np.ndarray, " A"]
    ran_s: Float[np.ndarray, " A"]

    def took_s(self, refusal: float = 0.0) -> Float[np.ndarray, " N"]:
        """``(N,)`` time of the process for each answered list.

        Args:
            refusal: time of a refusal over that of a list.

        Raises:
            TraceError: if there are fewer than :data:`LEAST` lists.
        """
        means_s, place = self._stretches(refusal)
        took_s: Float[np.ndarray, " N"] = means_s[place] * self.spread()
        return took_s

    def spread(self) -> Float[np.ndarray, " N"]:
        """``(N,)`` ranking time of each list over the mean of its stretch."""
        _, place = self._stretches(0.0)
        means_s = np.bincount(place, self.ranking_s) / np.maximum(np.bincount(place), 1)
        spread: Float[np.ndarray, " N"] = self.ranking_s / means_s[place]
        return spread

    def _stretches(self, refusal: float) -> tuple[Float[np.ndarray, " S"], Int[np.ndarray, " N"]]:
        """``(S,)`` mean time of a list in each stretch, and ``(N,)`` the stretch of each list: those before the first
        and after the last count to these.
        """
        edges = self._edges()
        cuts = np.searchsorted(self.at_s, self.asked_s[edges])
        answered, refused = np.diff(cuts), np.diff(np.searchsorted(self.refused_at_s, self.asked_s[edges]))
        place = np.searchsorted(cuts, np.arange(len(self.at_s)), side="right") - 1
        return np.diff(self.ran_s[edges]) / (answered + refusal * refused), np.clip(place, 0, len(answered) - 1)

    def _edges(self) -> list[int]:
        """Of :attr:`asked_s`, with at least :data:`LEAST` answered lists from one to the next."""
        before = np.searchsorted(self.at_s, self.asked_s)
        edges = [0]
        for number in range(1, len(before)):
            if before[number] - before[edges[-1]] >= LEAST:
                edges.append(number)
        if len(edges) == 1:
            raise TraceError(f"a replica answered {len(self.at_s)} lists: give more --seconds, and not --quick")
        return edges

    def slowness(self, refusal: float, typical_s: float) -> Stretches:
        """At each time, how long lists took in that stretch over a typical one; after the last, as in it.

        The next list in the log would not do: at any time, it is more often a long one (inspection paradox).

        Args:
            refusal: time of a refusal over that of a list.
            typical_s: time of a typical list.
        """
        begins_s = self.asked_s[self._edges()[:-1]]
        ratios = self._stretches(refusal)[0] / typical_s
        return Stretches(tuple(begins_s.tolist()), tuple(ratios.tolist()))

    def looped(self, typical_s: float) -> Stretches:
        """:meth:`slowness` without refusals, which begins anew after the last stretch."""
        edges, found = self._edges(), self.slowness(0.0, typical_s)
        first_s = float(self.asked_s[edges[0]])
        begins_s = tuple(begin - first_s for begin in found.begins_s)
        return Stretches(begins_s, found.ratios, float(self.asked_s[edges[-1]]) - first_s)

    def totals(self, refusal: float = 0.0) -> tuple[float, float]:
        """Seconds that the process ran between the first question and the last, and lists meanwhile."""
        if len(self.asked_s) < 2:
            raise TraceError(f"a load of less than {2 * EVERY_S:g} s: give more --seconds")
        ends = self.asked_s[[0, -1]]
        answered, refused = np.diff(np.searchsorted(self.at_s, ends)), np.diff(np.searchsorted(self.refused_at_s, ends))
        return float(self.ran_s[-1] - self.ran_s[0]), float(answered[0] + refusal * refused[0])


def mean_s(traces: Sequence[Trace], refusal: float = 0.0) -> float:
    """Mean time of a list in all traces.

    Args:
        traces: of any replicas and loads.
        refusal: time of a refusal over that of a list.

    Raises:
        TraceError: if there is no list.
    """
    ran_s, lists = np.sum([trace.totals(refusal) for trace in traces], axis=0)
    if not lists:
        raise TraceError("a replica answered 0 lists: give more --seconds, and not --quick")
    return float(ran_s / lists)


def traced(load: Callable[[], Seen], replicas: Sequence[Replica]) -> tuple[Seen, list[Trace]]:
    """A load, and what each replica did meanwhile.

    Raises:
        TraceError: if the system keeps no account, or a log lacks lists.
    """
    sizes = [replica.log.stat().st_size for replica in replicas]
    with _accounts([replica.process.pid for replica in replicas]) as accounts:
        seen = load()
    asked_s, *ran_s = _within(np.array(accounts), seen.began_s, seen.began_s + seen.took_s).T
    asked_s -= seen.began_s
    traces = [
        Trace(*_read(replica.log, size, seen.began_s), asked_s, ran)
        for replica, size, ran in zip(replicas, sizes, ran_s, strict=True)
    ]
    logged = sum(len(trace.at_s) for trace in traces)
    if logged < LOGGED * len(seen.seconds):
        raise TraceError(f"of {len(seen.seconds)} answers, {logged} are in the logs: use a quieter machine")
    return seen, traces


def _within(accounts: Float[np.ndarray, "A C"], began_s: float, ended_s: float) -> Float[np.ndarray, "B C"]:
    """Without those from before and after the load."""
    begin, end = np.searchsorted(accounts[:, 0], [began_s, ended_s])
    return accounts[begin:end]


@contextmanager
def _accounts(pids: Sequence[int]) -> Iterator[list[list[float]]]:
    """A row for each :data:`EVERY_S`: the machine's clock, and how long each process ran."""
    rows, failed, stop = list[list[float]](), list[TraceError](), threading.Event()

    threads = [dict[str, int]() for _ in pids]

    def row() -> list[float]:
        return [time.perf_counter(), *map(_ran_s, pids, threads)]

    def watch() -> None:
        try:
            while not stop.wait(EVERY_S):
                rows.append(row())
        except TraceError as error:  # of another thread: raised below
            failed.append(error)

    rows.append(row())
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield rows
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _ran_s(pid: int, threads: dict[str, int]) -> float:
    """All threads, by Linux's account in nanoseconds; that of ``/proc/PID/stat`` is in hundredths of a second.

    Args:
        pid: of the process.
        threads: what each thread had at its last reading; a thread that ended keeps it.
    """
    folder = Path(f"/proc/{pid}/task")
    try:
        for thread in folder.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                threads[thread.name] = int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    except OSError as error:
        raise TraceError(f"{folder} cannot be read: the replica ended, or this is not Linux") from error
    if not threads:
        raise TraceError(f"{folder}/*/schedstat is missing: use a kernel with CONFIG_SCHED_INFO")
    return sum(threads.values()) / 1e9


def _read(
    log: Path, size: int, began_s: float
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"], Float[np.ndarray, " M"]]:
    """Times and ranking times of answers, and times of refusals: of what was written after so many bytes.

    Args:
        log: of the replica.
        size: bytes before the load.
        began_s: of the machine's clock; a log has the time of day.

    Raises:
        TraceError: if an answer has no time of its first stage.
    """
    day_s = time.time() - time.perf_counter()
    with log.open("rb") as file:
        file.seek(size)
        whole = (line for line in file if line.endswith(b"\n"))  # the last one may be half written
        lines = [json.loads(line) for line in whole if b'"path": "/rerank"' in line]
    answered, refused = list[tuple[float, float]](), list[float]()
    for line in lines:
        at_s = datetime.fromisoformat(line["time"]).timestamp() + CUT_S / 2 - day_s - began_s
        if at_s < 0:  # of an earlier try
            continue
        if line["status"] == HTTPStatus.OK:
            stages = line["timings_ms"]
            if "first_stage" not in stages:
                raise TraceError(f"an answer has no time of a first stage, but of {', '.join(stages)}: see its bundle")
            answered.append((at_s, (stages["first_stage"] + stages.get("second_stage", 0.0)) / 1e3))
        elif line["status"] == HTTPStatus.TOO_MANY_REQUESTS:
            refused.append(at_s)
    both = np.array(sorted(answered, key=lambda pair: pair[0]), dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1], np.array(sorted(refused))
