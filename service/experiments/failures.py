"""Challengers that fail again and again are not asked any more."""

from __future__ import annotations

import logging
from threading import Lock

from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.experiments.roster import Entry

_log = logging.getLogger("listwright.experiments")


class Failures:
    """Failures in a row of each experiment's challenger, in this worker. Threads may share it.

    Args:
        metrics: where they are counted.
    """

    def __init__(self, metrics: ExperimentMetrics) -> None:
        self._metrics, self._lock = metrics, Lock()
        self._row: dict[str, int] = {}
        self._off: dict[str, str] = {}

    def forget(self) -> None:
        """The file has changed: every challenger is asked again."""
        with self._lock:
            self._row.clear()
            self._off.clear()

    def off(self, name: str) -> str | None:
        """Why an experiment's challenger is not asked; None if it is."""
        return self._off.get(name)

    def succeeded(self, name: str) -> None:
        """The challenger ranked a list."""
        if self._row.get(name):
            self._row[name] = 0

    def failed(self, entry: Entry, why: str) -> None:
        """The challenger failed; the first failure of a row is logged, and the last one."""
        one = entry.definition
        self._metrics.failures.labels(one.name).inc()
        with self._lock:
            row = self._row[one.name] = self._row.get(one.name, 0) + 1
            ends = row >= one.max_failures and one.name not in self._off
            if ends:
                self._off[one.name] = f"its challenger {one.challenger} failed {row} times in a row, at last: {why}"
        if ends:
            _log.error(
                "experiment %s is switched off until its file changes: %s failed %d times in a row: %s",
                one.name,
                one.challenger,
                row,
                why,
            )
        elif row == 1:
            _log.warning("experiment %s: the challenger %s failed: %s", one.name, one.challenger, why)
