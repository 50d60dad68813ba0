"""Liveness and readiness: the endpoints of probes, and what makes a process unready."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel

from listwright.ranking.candidates import CandidateList, Route
from listwright.ranking.reranker import Reranker
from listwright.service import paths
from listwright.service.bundles.models import Current
from listwright.service.errors import NotReadyError
from listwright.service.problems import DOCUMENTED

RUN = 20
"""Degraded answers one after another that make a run."""

REST_S = 10.0
"""A run is over this long after its last answer: without traffic nothing else could end it."""

OWN_LENGTH = 10
"""Candidates of a list of zeros, which every bundle ranked when it was loaded."""

_log = logging.getLogger("listwright.service")

routes = APIRouter()


class DegradedRun:
    """Run of degraded answers since the last whole one. For one thread, the event loop's.

    Args:
        clock: Clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.length = 0
        """Degraded answers of the run so far."""
        self._last = 0.0

    def note(self, *, degraded: bool, is_own_fault: Callable[[], bool] = lambda: True) -> None:
        """Count one more answer.

        Args:
            degraded: True if the answer is degraded.
            is_own_fault: Function that returns whether the service is at fault, not the request; it is called at the
                end of a run only.
        """
        if not degraded:
            self.length = 0
            return
        now = self._clock()
        self.length = self.length + 1 if now - self._last < REST_S else 1
        self._last = now
        if self.length == RUN and not is_own_fault():
            self.length = 0
            _log.warning("the last %d answers were degraded because of their requests: a list of zeros is not", RUN)
        elif self.length == RUN:
            _log.warning("the last %d answers were degraded: /readyz says 503", RUN)

    @property
    def lasts(self) -> bool:
        """Whether :data:`RUN` answers in a row were degraded, the last one within :data:`REST_S`."""
        return self.length >= RUN and self._clock() - self._last < REST_S


def fails_on_zeros(reranker: Reranker, route: Route) -> bool:
    """Return whether the ranker that a route names degrades a list of zeros, too."""
    candidates = CandidateList(np.zeros((OWN_LENGTH, len(reranker.schema)), dtype=np.float32))
    return reranker.rerank(candidates, strategy=route.strategy, specialist=route.specialist, routing=False).degraded


class Readiness:
    """Readiness of a process for traffic.

    Args:
        current: Holder of the served models, which are None until the first bundles are loaded.

    Attributes:
        draining: Event that is set once the process takes no new traffic.
        degraded: Count of the latest answers that were degraded, one after another.
    """

    def __init__(self, current: Current) -> None:
        self._current = current
        self.draining, self.degraded = threading.Event(), DegradedRun()

    @property
    def reason_unready(self) -> str | None:
        """Reason why the process is not ready for traffic; None if it is."""
        models = self._current.models
        if models is None:
            return "no bundle is loaded yet"
        names = ", ".join(models.current)
        if self.draining.is_set():
            return f"draining: {names} takes no new traffic"
        if self.degraded.lasts:
            return f"the last {RUN} answers of {names} were degraded: see the log for reasons"
        return None

    def check(self) -> None:
        """Raise NotReadyError, with the reason, unless the process is ready."""
        if reason := self.reason_unready:
            raise NotReadyError(reason)


class Health(BaseModel):
    """State of the process."""

    status: Literal["ok"]


@routes.get(
    paths.LIVE,
    operation_id="livez",
    summary="Liveness",
    tags=["health"],
    response_model=Health,
    response_description="The process answers",
)
async def livez() -> Health:
    """200 as long as the process answers at all."""
    return Health(status="ok")


@routes.get(
    paths.READY,
    operation_id="readyz",
    summary="Readiness",
    tags=["health"],
    response_model=Health,
    response_description="Ready for traffic",
    responses={503: DOCUMENTED[503]},
)
async def readyz(request: Request) -> Health:
    """200 with bundles that are checked and warm; 503 before, while draining, and after a run of degraded answers.

    A bundle that is refused later on changes nothing here, as the one before serves on: see /info.
    """
    readiness: Readiness = request.app.service.readiness
    readiness.check()
    return Health(status="ok")
