"""Liveness and readiness."""

from __future__ import annotations

from fastapi import APIRouter, Request

from listwright.service import paths
from listwright.service.api.service import service_of
from listwright.service.errors import NotReadyError
from listwright.service.problems import DOCUMENTED
from listwright.service.wire.schemas import Health

routes = APIRouter()


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
    if reason := service_of(request).reason_unready():
        raise NotReadyError(reason)
    return Health(status="ok")
