"""A load generator in a process of its own: ``python -m benchmarks.load.generator PLAN.json`` prints what came back, as
JSON.

Closed loop: so many callers, each asks again once it is answered. Open loop: a request every so often, or at the times
of a file, whatever becomes of the earlier ones. Its time counts from when it was due, so that a slow service is not
asked less, nor forgiven.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import uvloop

GIVE_UP_S = 30.0
DEGRADED = b'"status":"degraded"'


@dataclass(frozen=True)
class Plan:
    """Requests to send, and their timing.

    Args:
        port: Port of the service on this machine.
        body: File with the body of every request.
        seconds: Duration in seconds.
        callers: Number of callers of a closed loop; in an open one, largest number of connections at a time.
        rate: Requests a second of an open loop; 0 for a closed one.
        patient: Whether a refused caller of a closed loop waits as long as ``Retry-After`` says.
        due: ``.npy`` file of the seconds at which the requests of an open loop are due, instead of a rate.
        answers: ``.npy`` file for the answers of 200: time at which each was due, by the machine's clock, and seconds.
        calm_ms: Milliseconds of a fast answer: after an open loop one caller asks until it gets three in a row; 0 for
            no such caller.
        media_type: Media type of body and answer.
        target: Method and path.
        other_port: Port of a second service, or of the same one under another request id, which an open loop asks in
            turns with the first; 0 for none. A coin, the same in each run, says which has the first turn of a pair.
        turn_s: Seconds of a turn.
        settle_s: Seconds at the beginning of a turn that are not measured: work of the last turn may go on there.
        turns: File for the milliseconds of answers of 200, for each pair of turns of both services, as JSON.
        request_ids: Request ids of the first service and of the second; empty if the service makes them.
    """

    port: int
    body: str
    seconds: float
    callers: int
    rate: float = 0.0
    patient: bool = True
    due: str = ""
    answers: str = ""
    calm_ms: float = 0.0
    media_type: str = "application/json"
    target: str = "POST /rerank"
    other_port: int = 0
    turn_s: float = 1.0
    settle_s: float = 0.0
    turns: str = ""
    request_ids: tuple[str, ...] = ()

    @property
    def ports(self) -> list[int]:
        """Ports of the services."""
        return [self.port, self.other_port] if self.other_port else [self.port]

    def turn(self, after_s: float) -> tuple[int, int | None]:
        """Return the service to send to after so many seconds, and its pair of turns; None while it settles."""
        if not self.other_port:
            return 0, 0
        number, into_s = divmod(after_s, self.turn_s)
        pair, second = divmod(int(number), 2)
        side = second ^ random.Random(pair).getrandbits(1)
        return side, None if into_s < self.settle_s else pair

    def save(self, path: Path) -> Path:
        """Write the plan for another process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


class Answer(NamedTuple):
    """Status and time of an answer."""

    status: int
    retry_after_s: float
    degraded: bool


class Caller(asyncio.Protocol):
    """Kept-alive connection of a caller."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    async def ask(self, request: bytes, port: int) -> Answer:
        """Send and wait; connects if necessary."""
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, "127.0.0.1", port)
        assert self._transport is not None
        self._received.clear()
        self._answer = loop.create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._answer, GIVE_UP_S)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface's
        """Fail the answer that is awaited."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("closed before the answer"))

    def data_received(self, data: bytes) -> None:
        """Collect the bytes of the answer."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        status, *lines = bytes(self._received[:end]).lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        if len(self._received) >= end + 4 + int(headers[b"content-length"]):
            degraded = DEGRADED in self._received[-1000:]
            self._answer.set_result(Answer(int(status.split()[1]), float(headers.get(b"retry-after", 0)), degraded))


@dataclass
class Outcome:
    """Answers of one service so far."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    answered: list[tuple[float, float]] = field(default_factory=list)
    turns: dict[int, list[float]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    degraded: int = 0
    cpu_before_s: float = field(default_factory=time.process_time)

    async def ask(self, caller: Caller, request: bytes, port: int, due: float, turn: int | None = 0) -> Answer | None:
        """Send a request that was due at a time, and count what becomes of it."""
        try:
            answer = await caller.ask(request, port)
        except (OSError, TimeoutError) as error:
            self.faults[type(error).__name__] += 1
            return None
        took_s = time.perf_counter() - due
        self.seconds.setdefault(answer.status, []).append(took_s)
        if answer.status == 200:
            self.answered.append((due, took_s))
        if turn is not None and answer.status == 200:
            self.turns.setdefault(turn, []).append(round(took_s * 1e3, 3))
        self.degraded += answer.degraded
        return answer

    def summary(self, began_s: float, took_s: float) -> dict[str, object]:
        """Summarise counts, rates, and quantiles of the times by status; ``began`` is by the machine's clock."""
        return {
            "began": began_s,
            "seconds": round(took_s, 2),
            "answers": {str(status): len(times) for status, times in sorted(self.seconds.items())},
            "degraded": self.degraded,
            "faults": dict(self.faults),
            "accepted_per_second": round(len(self.seconds.get(200, ())) / took_s, 1),
            "milliseconds": {str(status): _quantiles(times) for status, times in sorted(self.seconds.items())},
            "generator_cpu_share": round((time.process_time() - self.cpu_before_s) / took_s, 4),
        }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    names = {"p50": 50, "p99": 99, "p99_9": 99.9, "max": 100}
    return {name: round(float(np.percentile(seconds, q)) * 1e3, 2) for name, q in names.items()}


async def closed(plan: Plan, requests: list[bytes]) -> dict[str, object]:
    """Send requests by so many callers, each in a closed loop."""
    outcome, began = Outcome(), time.perf_counter()

    async def call() -> None:
        caller = Caller()
        while (due := time.perf_counter()) < began + plan.seconds:
            answer = await outcome.ask(caller, requests[0], plan.port, due)
            if answer is not None and plan.patient and answer.retry_after_s:
                await asyncio.sleep(min(answer.retry_after_s, max(0.0, began + plan.seconds - time.perf_counter())))

    await asyncio.gather(*(call() for _ in range(plan.callers)))
    _save(outcome, plan)
    return outcome.summary(began, time.perf_counter() - began)


async def open_loop(plan: Plan, requests: list[bytes]) -> dict[str, object]:
    """Send so many requests a second, or at the times of a file.

    A thread waits for these times, as timers of the event loop are a millisecond coarse.
    """
    ports = plan.ports
    outcomes, began = [Outcome() for _ in ports], time.perf_counter()
    idle = [[Caller() for _ in range(plan.callers)] for _ in ports]
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    async def call(side: int, due: float, turn: int | None) -> None:
        caller = idle[side].pop()
        await outcomes[side].ask(caller, requests[side], ports[side], due, turn)
        idle[side].append(caller)

    for number, after_s in enumerate(_due(plan)):
        due, (side, turn) = began + after_s, plan.turn(after_s)
        if (ahead := due - time.perf_counter()) > 0:
            await (loop.run_in_executor(None, time.sleep, ahead) if plan.due else asyncio.sleep(ahead))
        elif number % 10 == 0:
            await asyncio.sleep(0)  # behind: still let answers in
        if len(tasks) >= plan.callers:
            outcomes[side].faults["no free connection"] += 1
            continue
        task = loop.create_task(call(side, due, turn))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    sent_s = time.perf_counter() - began
    calm_after_s = await _calm(plan, requests[0]) if plan.calm_ms else None
    await asyncio.gather(*tasks)
    _save(outcomes[0], plan)
    summaries = [outcome.summary(began, sent_s) for outcome in outcomes]
    if len(ports) == 1:
        return {**summaries[0], "calm_after_seconds": calm_after_s}
    turns = [outcome.turns for outcome in outcomes]
    pairs = [[by_pair[pair] for by_pair in turns] for pair in sorted(turns[0]) if pair in turns[1]]
    Path(plan.turns).write_text(json.dumps(pairs), encoding="utf-8")
    return {"services": summaries}


def _due(plan: Plan) -> list[float]:
    """Return the seconds from the beginning at which each request is due."""
    if plan.due:
        due: list[float] = np.load(plan.due, allow_pickle=False).tolist()
        return due
    return [number / plan.rate for number in range(round(plan.rate * plan.seconds))]


def _save(outcome: Outcome, plan: Plan) -> None:
    if plan.answers:
        np.save(plan.answers, np.array(outcome.answered, dtype=np.float64).reshape(-1, 2))


async def _calm(plan: Plan, request: bytes) -> float:
    """Wait until a caller has been answered fast three times in a row; return the seconds."""
    caller, began, fast = Caller(), time.perf_counter(), 0
    while fast < 3 and time.perf_counter() - began < GIVE_UP_S:
        sent_at = time.perf_counter()
        answer = await caller.ask(request, plan.port)
        in_time = (time.perf_counter() - sent_at) * 1e3 <= plan.calm_ms
        fast = fast + 1 if answer.status == 200 and in_time else 0
    return round(time.perf_counter() - began, 3)


def _requests(plan: Plan) -> list[bytes]:
    """Build the request to each service."""
    body = Path(plan.body).read_bytes()
    lines = (
        f"{plan.target} HTTP/1.1",
        "Host: x",
        f"Content-Type: {plan.media_type}",
        f"Accept: {plan.media_type}",
        f"Content-Length: {len(body)}",
    )
    headers = [[f"X-Request-ID: {name}"] for name in plan.request_ids] or [[]] * len(plan.ports)
    return ["\r\n".join((*lines, *more)).encode() + b"\r\n\r\n" + body for more in headers]


def main() -> None:
    """Run the command line."""
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    run = open_loop if plan.rate or plan.due else closed
    print(json.dumps(uvloop.run(run(plan, _requests(plan)))))


if __name__ == "__main__":
    main()
