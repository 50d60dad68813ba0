"""How much more of a core some requests take, and how much later the 99th percentile of a load is then.

Between two open loops, the machine changes by more than some microseconds a request do. So the core's time is
measured, in short turns, and the rest is computed: the requests of one open loop are answered once more, one after the
other, each with so much more work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.ndimage import median_filter

from benchmarks.load.pairs import RESAMPLES

TURN = 20
"""Requests of one kind, before those of the other kind have their turn; one more goes before, and is not looked at."""

QUANTILE = 99

ABOUT = 101
"""Number of requests whose median says how fast the core is."""


def core_seconds(process: int) -> float:
    """Return the seconds of a core that the threads of a process have had. Linux only."""
    accounts = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(account.read_text().split()[0]) for account in accounts) / 1e9


def more_work(ask: Callable[[str], None], core_time: Callable[[], float], pairs: int) -> dict[str, Any]:
    """Measure by which share a request ``with`` something takes more of a core than one ``without`` it.

    The share is the median over pairs of turns, whose order a coin says; the interval is of 95 % (bootstrap).

    Args:
        ask: Function that sends a request of a kind, and waits for its answer.
        core_time: Function that returns the seconds of a core that the service has had.
        pairs: Number of pairs of turns.
    """
    rng, kinds = np.random.default_rng(0), ("without", "with")
    seconds = np.empty((pairs, 2))
    for pair in seconds:
        for kind in rng.permutation(2):
            ask(kinds[kind])
            before = core_time()
            for _ in range(TURN):
                ask(kinds[kind])
            pair[kind] = (core_time() - before) / TURN
    share = seconds[:, 1] / seconds[:, 0] - 1.0
    medians = np.median(rng.choice(share, (RESAMPLES, pairs)), axis=1)
    return {
        "requests": pairs * TURN,
        "core_us": {kind: round(float(np.median(of)) * 1e6, 1) for kind, of in zip(kinds, seconds.T, strict=True)},
        "more": round(float(np.median(share)), 4),
        "more_95": [round(float(value), 4) for value in np.percentile(medians, (2.5, 97.5))],
    }


def answered_again(answers: Float[np.ndarray, "N 2"], more: float) -> Float[np.ndarray, " N"]:
    """Simulate the seconds of one worker's answers if each request took so much longer.

    The worker has a request from when it was due, or the one before was answered, until its answer (Lindley 1952). This
    is more than the core's time, so the result is rather too late.

    Args:
        answers: ``(N, 2)`` time at which each request was due, in order, and seconds until its answer.
        more: Additional work of a request, as a share of the median of the requests around it: a slower core is slower
            with all work, while a pause is as long with more of it.
    """
    due, done = answers[:, 0], np.sort(answers.sum(axis=1))
    busy = done - np.maximum(due, np.concatenate([[-np.inf], done[:-1]]))
    busy += more * median_filter(busy, ABOUT)
    worked = np.cumsum(busy)
    seconds: Float[np.ndarray, " N"] = worked + np.maximum.accumulate(due - worked + busy) - due
    return seconds


def later_by(answers: Float[np.ndarray, "N 2"], work: dict[str, Any], *, stall_ms: float) -> dict[str, Any]:
    """Estimate how much later the 99th percentile of a load is if each request takes so much more work.

    Seconds with an answer above ``stall_ms`` are left out, as pauses of the machine.

    Args:
        answers: ``(N, 2)`` time at which each request without the work was due, and seconds until its answer.
        work: Result of :func:`more_work`.
        stall_ms: Milliseconds of an answer that count as a pause of the machine.
    """
    answers = answers[np.argsort(answers[:, 0])]
    second = (answers[:, 0] - answers[0, 0]).astype(int)
    stalled = np.unique(second[answers[:, 1] * 1e3 > stall_ms])
    undisturbed = ~np.isin(second, stalled)

    def p99(more: float) -> float:
        return float(np.percentile(answered_again(answers, more)[undisturbed], QUANTILE)) * 1e3

    without, with_it = p99(0.0), p99(work["more"])
    return {
        "p99_ms": {"without": round(without, 3), "with": round(with_it, 3)},
        "later": round(with_it / without - 1.0, 4),
        "later_95": [round(p99(more) / without - 1.0, 4) for more in work["more_95"]],
        "stalled_seconds": len(stalled),
        "of": int(second[-1]) + 1,
    }
