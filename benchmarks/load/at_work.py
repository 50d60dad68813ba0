"""When a process works, and how late requests are meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from benchmarks.load.pairs import BLOCK_S, RESAMPLES

LOOK_S = 0.002
"""Seconds between two looks at a process."""

PAUSE_S = 0.02
"""Seconds without its core for which a process still counts as at work, as requests may have the core."""

QUANTILE = 99


@contextmanager
def spans_of_work(process: int) -> Iterator[list[list[float]]]:
    """Yield the spans in which a process had a core; the list fills meanwhile. Linux only.

    Beginnings and ends are on the machine's clock, a look too long at both ends.
    """
    spans, over = list[list[float]](), threading.Event()
    account = Path(f"/proc/{process}/schedstat")

    def look() -> None:
        core_time, last_look = account.read_text().split()[0], time.perf_counter()
        while not over.wait(LOOK_S):
            now, core_time_now = time.perf_counter(), account.read_text().split()[0]
            if core_time_now != core_time:
                if spans and last_look - spans[-1][1] <= PAUSE_S:
                    spans[-1][1] = now
                else:
                    spans.append([last_look, now])
            core_time, last_look = core_time_now, now

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield spans
    finally:
        over.set()
        looking.join()


def beside(answers: Float[np.ndarray, "N 2"], spans: list[list[float]]) -> Bool[np.ndarray, " N"]:
    """Return whether each request was on its way while the process worked.

    Args:
        answers: ``(N, 2)`` time at which each request was due, and seconds until its answer.
        spans: Beginning and end of each span of work, in order.
    """
    begins, ends = np.array(spans, dtype=np.float64).reshape(-1, 2).T
    due, done = answers[:, 0], answers.sum(axis=1)
    met: Bool[np.ndarray, " N"] = np.searchsorted(begins, done) > np.searchsorted(ends, due)
    return met


def lateness(answers: Float[np.ndarray, "N 2"], at_work: Bool[np.ndarray, " N"], *, stall_ms: float) -> dict[str, Any]:
    """Measure how much later the 99th percentile is for the requests beside the process.

    Seconds with an answer above ``stall_ms`` are left out, as pauses of the machine. The result counts them, and those
    whose first late answer was beside the process, and has the percentiles of all seconds. The interval is of 95 %:
    blocks of ``BLOCK_S`` are drawn again.
    """
    answers, at_work = answers[order := np.argsort(answers[:, 0])], at_work[order]
    ms, since = answers[:, 1] * 1e3, answers[:, 0] - answers[0, 0]
    late = np.flatnonzero(ms > stall_ms)
    stalled, firsts = np.unique(since[late].astype(int), return_index=True)
    undisturbed = ~np.isin(since.astype(int), stalled)
    with_stalls = {"p99_ms_with_stalls": _percentiles(ms, at_work, QUANTILE)}
    stalls = {
        "stalled_seconds": len(stalled),
        "of": int(since[-1]) + 1,
        "begun_beside": int(at_work[late[firsts]].sum()),
        "share_beside": round(float(at_work.mean()), 4),
    }
    ms, at_work, block_of = ms[undisturbed], at_work[undisturbed], (since[undisturbed] / BLOCK_S).astype(int)
    blocks = [np.flatnonzero(block_of == number) for number in np.unique(block_of)]
    rng = np.random.default_rng(0)
    samples = [
        np.concatenate([blocks[n] for n in rng.integers(len(blocks), size=len(blocks))]) for _ in range(RESAMPLES)
    ]
    low, high = np.percentile([_later(ms[rows], at_work[rows]) for rows in samples], (2.5, 97.5))
    return {
        **stalls,
        "requests": len(ms),
        "p50_ms": _percentiles(ms, at_work, 50),
        "p99_ms": _percentiles(ms, at_work, QUANTILE),
        **with_stalls,
        "later": round(_later(ms, at_work), 4),
        "later_95": [round(float(low), 4), round(float(high), 4)],
    }


def _percentiles(ms: Float[np.ndarray, " N"], at_work: Bool[np.ndarray, " N"], q: float) -> dict[str, float]:
    groups = {"all": ms, "away": ms[~at_work], "beside": ms[at_work]}
    return {name: round(float(np.percentile(times, q)), 3) for name, times in groups.items()}


def _later(ms: Float[np.ndarray, " N"], at_work: Bool[np.ndarray, " N"]) -> float:
    """Return the share by which the percentile of all requests is above that of those away from the process."""
    return float(np.percentile(ms, QUANTILE) / np.percentile(ms[~at_work], QUANTILE) - 1.0)
