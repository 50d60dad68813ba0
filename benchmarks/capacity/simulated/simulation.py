"""A discrete-event simulation of replicas behind a balancer.

The model of a replica is one worker of the service, see ``service/admission/gate.py``:

- One event loop reads and admits what has arrived, ranks one list, answers it, and looks again. While it ranks, what
  arrives waits in its sockets. With threads, the loop goes on while they rank.
- A list is refused if the line has no place, or if the last turns say that its own would end too late. The price of a
  refusal is paid by the same loop.
- A list whose turn does not come in time is refused later.
- A loop that slept takes longer for the next list, the longer it slept: meanwhile others had its core and its caches.
- All this may take longer at some times than at others, on each replica: a core of a shared machine is not always as
  fast.

The deadline of the request (10 s by default) is not modelled: the line ends much earlier.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_high

import numpy as np
from jaxtyping import Bool, Float

from benchmarks.capacity.simulated.balancers import Balancer, chooser
from benchmarks.capacity.simulated.worker import Slowness, Worker, steady
from listwright.service.admission.gate import OWN_TURNS, REMEMBERED


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of N lists.

    Args:
        seconds: ``(N,)`` from arrival to answer or refusal.
        answered: ``(N,)`` False where the list was refused.
        began_s, ended_s: the first arrival, and the last answer or refusal.
    """

    seconds: Float[np.ndarray, " N"]
    answered: Bool[np.ndarray, " N"]
    began_s: float
    ended_s: float

    @property
    def refused(self) -> float:
        """Share of the lists."""
        return 1.0 - float(self.answered.mean())

    def percentile_s(self, percent: float) -> float:
        """Seconds, of the answers; NaN where there are none."""
        return float(np.percentile(self.seconds[self.answered], percent)) if self.answered.any() else math.nan


class _Line:
    """The lists of one worker: what its event loop and its gate do with them.

    Args:
        worker: costs and limits.
        ranking_s: of each list, by its number.
        slowness: of the replica.
        due: called with each time at which :meth:`wake` is wanted.
        done: called with list, time, and whether it was answered.
    """

    __slots__ = (
        "_done",
        "_due",
        "_free",
        "_inbox",
        "_line",
        "_loop_free",
        "_next",
        "_ranking_s",
        "_running",
        "_slowness",
        "_turns",
        "_worker",
    )

    def __init__(
        self,
        worker: Worker,
        ranking_s: list[float],
        slowness: Slowness,
        due: Callable[[float], None],
        done: Callable[[int, float, bool], None],
    ) -> None:
        self._worker, self._ranking_s, self._slowness, self._due, self._done = worker, ranking_s, slowness, due, done
        self._free, self._loop_free = max(1, worker.threads), -math.inf
        self._inbox: list[int] = []
        self._line: deque[tuple[int, float]] = deque()  # list, and when it gives up
        self._next: list[tuple[int, float]] = []  # list that has a slot, and since when it was to be had
        self._running: list[tuple[float, float, int]] = []  # end, when its slot was to be had, list
        self._turns: deque[float] = deque(maxlen=REMEMBERED)

    def arrive(self, now: float, number: int) -> None:
        """A list is in the socket."""
        self._inbox.append(number)
        if now >= self._loop_free:
            more_s = self._worker.waking.after(now - self._loop_free) * self._slowness(now)
            self.wake(now + more_s)
        elif self._worker.threads and len(self._inbox) == 1:
            self._due(self._loop_free)  # a loop that ranks wakes by itself

    def wake(self, now: float) -> None:
        """The event loop is free, or a thread has ended a ranking."""
        if now < self._loop_free:
            self._due(self._loop_free)
            return
        while self._running and self._running[0][0] <= now:
            ended, began, number = heapq.heappop(self._running)
            self._turns.append(now - began)
            self._done(number, ended, True)
            self._pass_on(now)
        while self._line and self._line[0][1] < now:
            now = self._refuse(self._line.popleft()[0], now)
        arrived, self._inbox = self._inbox, []
        for number in arrived:
            now = self._admit(number, now)
        turns, self._next = self._next, []
        for number, had in turns:
            end = now + self._ranking_s[number] * self._slowness(now)
            heapq.heappush(self._running, (end, had, number))
            self._due(end)
            if not self._worker.threads:
                now = end
        self._loop_free = now

    def _pass_on(self, now: float) -> None:
        """One slot is free: the first in line has it, even if it comes too late; or the next to come."""
        if self._line:
            self._next.append((self._line.popleft()[0], now))
        else:
            self._free += 1

    def _admit(self, number: int, now: float) -> float:
        if self._free:
            self._free -= 1
            now += self._worker.intake_s * self._slowness(now)
            self._next.append((number, now))
            return now
        patience_s = self._patience_s()
        if patience_s is None:
            return self._refuse(number, now)
        now += self._worker.intake_s * self._slowness(now)
        self._line.append((number, now + patience_s))
        return now

    def _refuse(self, number: int, now: float) -> float:
        now += self._worker.refusal_s * self._slowness(now)
        self._done(number, now, False)
        return now

    def _patience_s(self) -> float | None:
        """How long a list that comes now waits for its turn where no slot is free; None if it is refused."""
        worker, waiting, slots = self._worker, len(self._line), max(1, self._worker.threads)
        if waiting >= worker.places:
            return None
        if worker.patience_s == math.inf:
            return math.inf
        turn_s = median_high(self._turns) if self._turns else 0.0
        wait_s = (slots + waiting + OWN_TURNS) * turn_s / slots
        if wait_s <= worker.patience_s:
            return worker.patience_s - (OWN_TURNS - 1) * turn_s
        return None if waiting >= slots else math.inf


def simulate(
    arrivals: Float[np.ndarray, " N"],
    ranking_s: Float[np.ndarray, " N"],
    worker: Worker,
    *,
    replicas: int = 1,
    balancer: Balancer = "least connections",
    balancers: int = 1,
    slowness: Sequence[Slowness] = (),
    seed: int = 0,
) -> Outcome:
    """What becomes of lists that arrive at these times at so many replicas, each of one worker.

    Args:
        arrivals: ``(N,)`` seconds, ascending.
        ranking_s: ``(N,)`` how long each list is ranked, and answered.
        worker: its other costs, and its limits.
        replicas: R, at least 1.
        balancer: the rule that picks the replica.
        balancers: independent processes of the balancer. Each gets a list at random, and knows of its own lists only.
        slowness: of each replica; none: all are :func:`steady`.
        seed: of the balancers' draws.

    Raises:
        ValueError: if a number is out of its range, or the arrays do not fit together.
    """
    slowness = slowness or [steady] * replicas
    _check(arrivals, ranking_s, replicas, balancers)
    arrived = arrivals.tolist()
    ended, answered = [0.0] * len(arrived), [False] * len(arrived)
    opened = [np.zeros(replicas, dtype=np.int64) for _ in range(balancers)]
    choose = [chooser(balancer, lists, seed + number) for number, lists in enumerate(opened)]
    through = np.random.default_rng(seed).integers(balancers, size=len(arrived)).tolist()
    sent_to = [0] * len(arrived)
    events: list[tuple[float, int]] = []

    def done(number: int, at: float, was_answered: bool) -> None:
        ended[number], answered[number] = at, was_answered
        opened[through[number]][sent_to[number]] -= 1

    def due(replica: int) -> Callable[[float], None]:
        return lambda at: heapq.heappush(events, (at, replica))

    durations = ranking_s.tolist()
    lines = [_Line(worker, durations, slow, due(replica), done) for replica, slow in enumerate(slowness)]
    for number, now in enumerate(arrived):
        while events and events[0][0] <= now:
            at, replica = heapq.heappop(events)
            lines[replica].wake(at)
        replica = sent_to[number] = choose[through[number]]()
        opened[through[number]][replica] += 1
        lines[replica].arrive(now, number)
    while events:
        at, replica = heapq.heappop(events)
        lines[replica].wake(at)
    ends = np.array(ended)
    return Outcome(ends - arrivals, np.array(answered), arrived[0], float(ends.max()))


def _check(
    arrivals: Float[np.ndarray, " N"], ranking_s: Float[np.ndarray, " N"], replicas: int, balancers: int
) -> None:
    if not len(arrivals) or len(arrivals) != len(ranking_s):
        raise ValueError(f"{len(arrivals)} arrivals and {len(ranking_s)} rankings: give as many of both, at least one")
    if replicas < 1 or balancers < 1:
        raise ValueError(f"{replicas} replicas, {balancers} balancers: give at least one of each")
    if (np.diff(arrivals) < 0).any():
        raise ValueError("arrivals go back in time: sort them")
    if not (ranking_s > 0).all():
        raise ValueError(f"a ranking takes {ranking_s.min()} s: give times above 0")
