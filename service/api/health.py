"""Whether the process answers, and whether traffic may come."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from listwright.service import paths
from listwright.service.admission.readiness import RUN
from listwright.service.bundles.served import Models, Served
from listwright.service.errors import NotReadyError
from listwright.service.problems import DOCUMENTED
from listwright.service.wire.schemas import Health

routes = APIRouter()


@routes.get(
    paths.LIVE,
    operation_id="livez",
    summary="Does the process answer?",
    tags=["health"],
    response_model=Health,
    response_description="It does",
)
async def livez() -> Health:
    """200 as long as the process answers at all."""
    return Health(status="ok")


@routes.get(
    paths.READY,
    operation_id="readyz",
    summary="May traffic come?",
    tags=["health"],
    response_model=Health,
    response_description="It may",
    responses={503: DOCUMENTED[503]},
)
async def readyz(request: Request, models: Served) -> Health:
    """200 with bundles that are checked and warm; 503 before, while draining, and after a run of degraded answers.

    A bundle that is refused later on changes nothing here, as the one before serves on: see /info.
    """
    if reason := unready(request.app.state, models):
        raise NotReadyError(reason)
    return Health(status="ok")


def unready(state: Any, models: Models | None) -> str | None:
    """Why no traffic may come to what is served; None if it may."""
    if models is None:
        return "no bundle is loaded yet"
    names = ", ".join(models.current)
    if state.draining.is_set():
        return f"draining: {names} takes no new traffic"
    if state.degraded.lasts:
        return f"the last {RUN} answers of {names} were degraded: see the log for reasons"
    return None
