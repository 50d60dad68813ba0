"""How idle the thread that answers is."""

from __future__ import annotations

from listwright.service.served_log.taken import Taken

KEPT = 0.98
"""Of the sums, from request to request: the last hundred requests or so decide."""


class IdleShare:
    """The share of the time in which the thread had no request, over the last requests.

    A request that came while another one was at work has waited for it: between the two, the thread was not idle.
    """

    def __init__(self) -> None:
        self._answered_at: float | None = None
        self._idle_s = self._all_s = 0.0

    def note(self, taken: Taken) -> None:
        """Count a request; each of them, in the order of their answers."""
        before, self._answered_at = self._answered_at, taken.at
        if before is not None and taken.at > before:  # else the clock of the machine was set back
            came_at = taken.at - taken.milliseconds["total"] / 1000.0
            self._idle_s = KEPT * self._idle_s + max(0.0, came_at - before)
            self._all_s = KEPT * self._all_s + taken.at - before

    @property
    def share(self) -> float:
        """From 0 to 1, which it is before the second request."""
        return self._idle_s / self._all_s if self._all_s else 1.0
