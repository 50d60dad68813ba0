"""What a challenger takes of its core is measured, also while the timer runs that ends one that hangs."""

import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

from listwright.service.experiments import shadow_process
from listwright.service.experiments.shadow_process import Question, answer

TAKES_S = 0.002


def spinning(candidates, *, routing):
    assert routing
    until = time.thread_time() + TAKES_S
    while time.thread_time() < until:
        pass
    return SimpleNamespace(order=np.arange(len(candidates)), degraded=False, reason=None)


@pytest.mark.parametrize("timer_s", [0.0, 60.0])
def test_the_time_of_a_short_list_is_measured(monkeypatch, timer_s):
    bundle = SimpleNamespace(reranker=SimpleNamespace(rerank=spinning))
    monkeypatch.setattr(shadow_process, "_loaded", lambda *_: bundle)
    question = Question("none", "auto", np.ones((3, 2), np.float32), {}, True, np.arange(3))
    signal.setitimer(signal.ITIMER_PROF, timer_s)
    try:
        found = [answer(question, {}) for _ in range(10)]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    assert [one.status for one in found] == ["ok"] * 10
    assert min(one.cpu_s for one in found) >= 0.9 * TAKES_S
