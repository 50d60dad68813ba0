"""The process that ranks with a challenger in the background, while its core is idle.

It is a process because a thread would hold the interpreter's lock while requests wait, and because a challenger that
crashes would end the worker. On Linux its priority is ``SCHED_IDLE``, elsewhere the lowest.
"""

from __future__ import annotations

import resource
import signal
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from listwright.service.child_process import answer_messages

if TYPE_CHECKING:
    from listwright.ranking.bundle import Bundle

MOST_CPU_S = 60.0
"""Seconds of CPU time for one list, loading included; a challenger that takes more hangs, and counts as failed."""


class Question(NamedTuple):
    """A list to rank.

    Args:
        path: Folder of the challenger.
        strategy: Strategy that ``auto`` stands for.
        features: Features of the candidates, ``(L, D)`` float32.
        context: Context of the request.
        routing: True if the challenger's router is used.
        control_order: Control's order, ``(L,)`` candidate indices, best first.
        weights: Weight of each goal in the request; None where it has none.
    """

    path: str
    strategy: str
    features: Any
    context: dict[str, Any]
    routing: bool
    control_order: Any
    weights: dict[str, float] | None = None


class ChallengerRanking(NamedTuple):
    """A challenger's ranking, or its failure.

    Args:
        order: Challenger's order, ``(L,)`` candidate indices, best first; empty if it failed.
        status: ``ok``, ``degraded: REASON`` or ``failed: REASON``.
        agreement: Kendall's tau, RBO and top-1 agreement of the two orders; None if the challenger failed.
        cpu_s: Seconds of CPU time.
    """

    order: tuple[int, ...]
    status: str
    agreement: tuple[float, float, float] | None
    cpu_s: float


def run(pipe: Connection) -> None:
    """Answer questions until the other end is closed.

    Args:
        pipe: Pipe that receives a :class:`Question` and sends a :class:`ChallengerRanking`.
    """
    bundles: dict[str, Bundle] = {}

    def answer_in_time(question: Question) -> ChallengerRanking:
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)  # its signal ends the process
        ranking = answer(question, bundles)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        return ranking

    answer_messages(pipe, answer_in_time)


def answer(question: Question, bundles: dict[str, Bundle]) -> ChallengerRanking:
    """Rank one list; an error of the challenger is part of the answer.

    Args:
        question: List to rank.
        bundles: Loaded bundles, by folder and strategy; the bundle of the question is added.
    """
    from listwright.ranking.candidates import CandidateList  # noqa: PLC0415 - after its priority is lowered
    from listwright.ranking.experiments import agreement  # noqa: PLC0415

    began = _cpu_s()
    try:
        reranker = _load(question, bundles).reranker
        candidates = CandidateList(question.features, None, question.context)
        began = _cpu_s()
        ranking = reranker.rerank(candidates, routing=question.routing, weights=question.weights)
    except Exception as error:  # sent to the worker, which counts and logs it
        return ChallengerRanking((), f"failed: {type(error).__name__}: {error}", None, _cpu_s() - began)
    cpu_s = _cpu_s() - began
    status = f"degraded: {ranking.reason}" if ranking.degraded else "ok"
    return ChallengerRanking(
        tuple(ranking.order.tolist()), status, agreement(question.control_order, ranking.order), cpu_s
    )


def _cpu_s() -> float:
    """Return the CPU time of this process, by getrusage: ``time.process_time`` is off by up to 1 ms beside a timer."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _load(question: Question, bundles: dict[str, Bundle]) -> Bundle:
    from pathlib import Path  # noqa: PLC0415

    from listwright.ranking import bundle  # noqa: PLC0415

    key = f"{question.path} {question.strategy}"
    if key not in bundles:
        challenger = bundle.load(Path(question.path))
        challenger.reranker.answer_with(question.strategy)
        bundles.clear()
        bundles[key] = challenger
    return bundles[key]
