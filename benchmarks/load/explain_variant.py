"""``python -m benchmarks.load.explain_variant``: the service with explanations in a thread of the worker, in the place
of a process.
"""

from __future__ import annotations

import sys

from listwright.ranking.deadline import Deadline
from listwright.service.commands.serve import main
from listwright.service.explaining import explainer
from listwright.service.explaining.explain_process import Crashed, ExplainedList, ExplainTask, TaskExplainer


class InThread:
    """Explainer in a thread of the service, not in a process of its own.

    Args:
        hook: Operator's hook as ``module:callable``, or None.
    """

    def __init__(self, hook: str | None) -> None:
        self._tasks = TaskExplainer(hook, lambda: False)

    def ask(self, task: ExplainTask, deadline: Deadline) -> ExplainedList:  # noqa: ARG002 - as of the process
        """Run a task in a thread and return its result."""
        reply = self._tasks.answer(task)
        if isinstance(reply, Crashed):
            raise RuntimeError(reply.trace)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def kill(self) -> None:
        """Do nothing: there is no process to kill."""

    close = kill


vars(explainer)["ProcessLink"] = InThread

if __name__ == "__main__":
    sys.exit(main([]))
