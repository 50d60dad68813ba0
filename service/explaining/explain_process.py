"""The process that explains.

It is a process because a thread would hold the interpreter's lock for seconds, while requests wait. On Linux its
priority is ``SCHED_IDLE``, elsewhere the lowest.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from listwright.service.child_process import answer_messages

if TYPE_CHECKING:
    from listwright.ranking.bundle import Bundle
    from listwright.ranking.explaining.explanation import CandidateExplanation
    from listwright.ranking.router import Hook
    from listwright.ranking.rules.apply import RuleSet

IDLE_S = 600.0
"""Seconds without a task after which the process ends, which frees its memory."""

MOST_BUNDLES = 2
"""Bundles that stay loaded: the most recently used."""

MARGIN, LONGEST_MARGIN_S = 0.05, 0.1
"""Share of the time, and seconds at most, that are left for encoding and sending."""

WHY_LATE = (
    "explanations get only the processor time that rankings leave; ask when there is less to rank, or allow more time, "
    "by timeout_ms and LISTWRIGHT_EXPLAIN_TIMEOUT_MS"
)

HOOK_BUDGET_S, HOOK_THREADS = 1.0, 2
"""Seconds and threads of the hook: more than in a request, as the process has the lowest priority."""


class ExplainTask(NamedTuple):
    """A list, and which of its candidates to explain.

    Args:
        path: Folder of the bundle.
        created_at: Time of creation in the bundle's manifest, to check that the folder still holds the served bundle.
        default_strategy: Strategy that ``auto`` stands for.
        features: Features of the candidates, ``(L, D)`` float32.
        ids: Ids of the candidates, or None.
        context: Context of the request.
        strategy: Strategy of the request.
        specialist: Specialist of the request, or None.
        routing: True if hook and router are used.
        candidates: Indices of the candidates to explain; empty: those at the first ``top_n`` places.
        top_n: Number of places to explain.
        against: Index of the candidate to compare with, or None.
        budget: Number of changed candidates that a stage may score for one explanation; None: the default.
        most_budget: Limit of the settings for the budget.
        by: Time by which the answer must be there, on the clock of ``time.monotonic``, which all processes share.
        rules: Rules of the file and of the request.
        weights: Weights of goals in the request, or None.
        probabilities: True if the answer has probabilities.
    """

    path: str
    created_at: str
    default_strategy: str
    features: Any
    ids: tuple[str, ...] | None
    context: dict[str, Any]
    strategy: str
    specialist: int | None
    routing: bool
    candidates: tuple[int, ...]
    top_n: int
    against: int | None
    budget: int | None
    most_budget: int
    by: float
    rules: tuple[RuleSet, ...] = ()
    weights: dict[str, float] | None = None
    probabilities: bool = False


class ExplainedList(NamedTuple):
    """A ranking with its explanations.

    Args:
        ranking: Ranking of the list, as ``/rerank`` would answer it; the list is ranked once, for all explanations.
        content: Explanations as JSON.
        incomplete: Names of the parts that the deadline cut short or left out, or that failed; ``explanations`` where
            candidates are missing.
        seconds: Seconds by name of the part, summed over the candidates.
    """

    ranking: Any
    content: bytes
    incomplete: tuple[str, ...]
    seconds: dict[str, float]


class Crashed(NamedTuple):
    """An unexpected error, as its traceback."""

    trace: str


Reply = ExplainedList | Exception | Crashed


def run(pipe: Connection, hook: str | None) -> None:
    """Answer tasks until the other end is closed, or none came for :data:`IDLE_S`.

    Args:
        pipe: Pipe that receives an :class:`ExplainTask` and sends a :data:`Reply`.
        hook: ``module:callable`` of the operator, or None.
    """
    answer_messages(pipe, TaskExplainer(hook, abandoned=pipe.poll).answer, IDLE_S)


class TaskExplainer:
    """Explainer of tasks, one after the other.

    Args:
        hook: ``module:callable`` of the operator, or None.
        abandoned: Function that returns whether the answer is no longer awaited.
    """

    def __init__(self, hook: str | None, abandoned: Callable[[], bool]) -> None:
        self._hook_name, self._abandoned = hook, abandoned
        self._hook: Hook | None = None
        self._bundles: dict[tuple[str, str], Bundle] = {}

    def answer(self, task: ExplainTask) -> Reply:
        """Explain a task; any error is returned, not raised."""
        from listwright.ranking import errors  # noqa: PLC0415 - after the priority is lowered
        from listwright.service.errors import ExplanationFailedError, UnexplainedError  # noqa: PLC0415
        from listwright.service.hook import HookError  # noqa: PLC0415

        try:
            return self._explain(task)
        except (errors.ExplanationError, errors.ScoringError) as error:
            return UnexplainedError(f"{error}: {WHY_LATE}" if "deadline" in str(error) else str(error))
        except errors.BundleError as error:
            return ExplanationFailedError(f"the bundle that ranks cannot be loaded again: {error.reason}")
        except HookError as error:
            return ExplanationFailedError(f"the hook cannot be loaded again: {error}")
        except errors.ListwrightError as error:
            return error.with_traceback(None)
        except Exception:  # sent to the worker, which logs it
            return Crashed(traceback.format_exc())

    def _explain(self, task: ExplainTask) -> ExplainedList:
        from listwright.ranking.candidates import CandidateList  # noqa: PLC0415
        from listwright.ranking.deadline import Deadline  # noqa: PLC0415
        from listwright.ranking.errors import ExplanationError  # noqa: PLC0415
        from listwright.ranking.explaining.explain import DEFAULT_BUDGET  # noqa: PLC0415
        from listwright.ranking.explaining.explanation import to_json, with_rules  # noqa: PLC0415
        from listwright.ranking.rules.apply import apply_rules  # noqa: PLC0415

        reranker = self._load(task).reranker
        candidates = CandidateList(task.features, task.ids, task.context)
        names = ("strategy", "specialist", "routing", "weights")
        options: dict[str, Any] = {name: getattr(task, name) for name in names}
        hook, began = self._load_hook(), time.perf_counter()
        deadline = Deadline(began + _left_s(task.by), self._abandoned)
        probability = task.probabilities or any(rules.needs_probability for rules in task.rules)
        ranking = reranker.rerank(candidates, deadline=deadline, hook=hook, probability=probability, **options)
        seconds = {"ranking": time.perf_counter() - began}
        ruled_ranking = apply_rules(ranking, candidates, reranker.manifest, task.rules)
        places = task.candidates or tuple(ruled_ranking.results[: task.top_n].tolist())
        budget = min(DEFAULT_BUDGET if task.budget is None else task.budget, task.most_budget)
        options |= {"against": task.against, "budget": budget, "ranking": ranking}
        explanations: list[CandidateExplanation] = []
        for place in places:  # each in its share of the remaining time
            share_s = _left_s(task.by) / (len(places) - len(explanations))
            deadline = Deadline(time.perf_counter() + share_s, self._abandoned)
            try:
                explanations.append(reranker.explain(candidates, place, deadline=deadline, **options))
            except ExplanationError:
                if not explanations:
                    raise
                break
            for part, value in explanations[-1].seconds.items():
                seconds[part] = seconds.get(part, 0.0) + value
        missing = ("explanations",) if len(explanations) < len(places) else ()
        parts = [*(part for explanation in explanations for part in explanation.incomplete), *missing]
        content = to_json([with_rules(explanation, ruled_ranking) for explanation in explanations])
        return ExplainedList(ruled_ranking, content, tuple(dict.fromkeys(parts)), seconds)

    def _load(self, task: ExplainTask) -> Bundle:
        from pathlib import Path  # noqa: PLC0415

        from listwright.ranking import bundle  # noqa: PLC0415
        from listwright.ranking.errors import BundleError  # noqa: PLC0415

        key = task.path, task.created_at
        task_bundle = self._bundles.pop(key, None)
        if task_bundle is None:
            task_bundle = bundle.load(Path(task.path))
            if task_bundle.manifest.created_at.isoformat() != task.created_at:
                raise BundleError(task_bundle.path, "its folder holds another one by now")
        self._bundles[key] = task_bundle
        while len(self._bundles) > MOST_BUNDLES:
            del self._bundles[next(iter(self._bundles))]
        task_bundle.reranker.answer_with(task.default_strategy)
        return task_bundle

    def _load_hook(self) -> Hook | None:
        if self._hook is None and self._hook_name is not None:
            from listwright.service import hook  # noqa: PLC0415

            called = hook.load(self._hook_name)
            self._hook = hook.IsolatedHook(called, budget_s=HOOK_BUDGET_S, threads=HOOK_THREADS)
        return self._hook


def _left_s(by: float) -> float:
    """Return the seconds for the work, less the margin for encoding and sending."""
    left_s = by - time.monotonic()
    return left_s - min(MARGIN * max(0.0, left_s), LONGEST_MARGIN_S)
