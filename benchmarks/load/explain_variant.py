"""``python -m benchmarks.load.explain_variant``: the service with explanations in a thread of the worker, in the place
of a process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from listwright.service.commands.serve import main
from listwright.service.explaining import explainer
from listwright.service.explaining.explain_process import ExplainTask, Reply, TaskExplainer


class InThread:
    """Explainer in a thread of the service, with the interface of a link to a process.

    Args:
        name: Name of the process that is replaced.
        run: Function of that process.
        hook: Operator's hook as ``module:callable``, or None.
    """

    def __init__(self, name: str, run: Callable[..., None], hook: str | None) -> None:  # noqa: ARG002 - as of the link
        self._tasks = TaskExplainer(hook, lambda: False)
        self.stopped = threading.Event()

    def ask(self, task: ExplainTask, check: Callable[[], None]) -> Reply:  # noqa: ARG002 - as of the link
        """Run a task in the calling thread, and return its result."""
        return self._tasks.answer(task)

    def kill(self) -> None:
        """Do nothing: there is no process to kill."""

    def stop(self) -> None:
        """Refuse further tasks."""
        self.stopped.set()


vars(explainer)["ChildLink"] = InThread

if __name__ == "__main__":
    sys.exit(main([]))
