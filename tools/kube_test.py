"""``python tools/kube_test.py``: two pods of the rendered chart behind haproxy, replaced and killed under load.

1. A rolling restart with one pod more than two, as the chart's Deployment asks for. haproxy retries nothing. No request
   may fail.
2. SIGKILL of a pod. haproxy tries a connection that was refused at the other pod, but never sends a request twice. A
   caller may lose the request that was being worked on, and one more: the kernel closes a dying process's connections
   one by one, and may still accept a new one before it closes the listening socket. No request that begins after the
   death may fail.
3. The same with the client of ``client/``, which tries again. No call may fail.

tools/kube-smoke.sh builds the images and calls it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import chart
from kube_pods import Pod

from benchmarks.load import drain
from listwright_client import Client, ListwrightError

VALUES = chart.FOLDER.parents[1] / "tools" / "kube-smoke.yaml"
BUNDLE = chart.FOLDER.parents[1] / "models" / "demo" / "1"
REQUESTS = 600
NOTICED_S = 10 * drain.CHECK_MS / 1000
"""Time in which haproxy has noticed whoever came or went."""

REDISPATCH = "retries 3\n    option redispatch 1"
"""Of connections that cannot be made; ``retry-on`` is left at this, its default."""


class RetryingCallers(drain.Callers):
    """Threads that send requests by one client, with its retries."""

    def __init__(self, port: int, rows: list[list[float | None]], count: int = drain.CALLERS) -> None:
        self.asked_again = 0
        self._rows, self._lock = rows, threading.Lock()
        self._client = Client(f"http://127.0.0.1:{port}", timeout=60.0)
        super().__init__(port, b"", count)

    def end(self, at_least: int) -> Counter[str]:
        """See the base class."""
        outcomes = super().end(at_least)
        self._client.close()
        return outcomes

    def _ask(self) -> None:
        while not self._end.is_set():
            try:
                ranking = self._client.rerank(self._rows)
                outcome, attempts = "200", ranking.attempts
            except ListwrightError as error:
                outcome, attempts = str(error), error.attempts
            with self._lock:
                self.outcomes[outcome] += 1
                self.asked_again += attempts > 1


@contextmanager
def pods(folder: Path) -> Iterator[list[Pod]]:
    """Start two pods and yield them, ready, with a third that is not started."""
    objects = chart.render(chart.merge_values([VALUES]))
    places = [Pod(objects, f"listwright-smoke-{number}", drain.free_port(), folder) for number in range(3)]
    try:
        for pod in places:
            pod.remove()
        for pod in places[:2]:
            pod.start()
        yield places
    finally:
        for pod in places:
            pod.remove()


def rolling_restart(places: list[Pod], body: bytes) -> str:
    """Replace both pods, one at a time: the new one is ready before the old one ends."""
    first, second, free = places
    with drain.behind_haproxy(places) as port:
        time.sleep(NOTICED_S)
        callers = drain.Callers(port, body)
        codes = []
        for old, new in ((first, free), (second, first)):
            new.start()
            time.sleep(NOTICED_S)
            codes.append(old.stop())
        outcomes = callers.end(REQUESTS)
    places[:] = [free, first, second]
    check(codes == [0, 0], f"pods ended with exit codes {codes}")
    return report_lost("rolling restart of two pods", outcomes, allowed=0)


def kill(places: list[Pod], callers_at: Callable[[int], drain.Callers | RetryingCallers]) -> Counter[str]:
    """Kill the first pod under load, replace it by a new one, and count the outcomes."""
    victim, _, free = places
    with drain.behind_haproxy(places, REDISPATCH) as port:
        time.sleep(NOTICED_S)
        callers = callers_at(port)
        while callers.requests < REQUESTS // 4:
            time.sleep(0.01)
        victim.kill()
        died = time.monotonic()
        free.start()
        outcomes = callers.end(max(REQUESTS, callers.requests + REQUESTS // 4))
    late = sum(began > died for began in callers.lost_began)
    check(late == 0, f"killed pod: {late} requests lost that began after its death: {dict(outcomes)}")
    victim.remove()
    places[:] = [free, places[1], victim]
    return outcomes


def report_lost(what: str, outcomes: Counter[str], *, allowed: int) -> str:
    """Check how many requests a part has lost, and return a line about it.

    Raises:
        SystemExit: if more was lost than may be.
    """
    lost = outcomes.total() - outcomes["200"]
    check(lost <= allowed, f"{what}: {lost} of {outcomes.total()} requests lost, {allowed} may be: {dict(outcomes)}")
    return f"{what}: {outcomes.total()} requests, {lost} lost"


def check(good: bool, fault: str) -> None:
    """End the test where something is not as it should be."""
    if not good:
        raise SystemExit(f"Kubernetes test: {fault}")


def main() -> int:
    """Run the three parts; 0 if all hold."""
    body = drain.golden_body(BUNDLE)
    rows = json.loads(body)["features"]
    with tempfile.TemporaryDirectory() as folder, pods(Path(folder)) as places:
        print(rolling_restart(places, body), flush=True)
        served = places[1].files("/logs/served")
        check(any(".avro" in name for name in served), f"the pod's volume has no served records: {served}")
        runs = places[1].info()["experiments"]["experiments"]
        check(
            [(experiment["name"], experiment["running"]) for experiment in runs] == [("places", True)],
            f"the experiment: {runs}",
        )
        outcomes = kill(places, lambda port: drain.Callers(port, body))
        print(report_lost("killed pod, no retries", outcomes, allowed=2 * drain.CALLERS), flush=True)
        retrying: list[RetryingCallers] = []

        def asking(port: int) -> RetryingCallers:
            retrying.append(RetryingCallers(port, rows))
            return retrying[0]

        outcomes = kill(places, asking)
        line = report_lost("killed pod, the client's retries", outcomes, allowed=0)
        print(f"{line}, {retrying[0].asked_again} asked again", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
