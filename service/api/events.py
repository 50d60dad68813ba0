"""``POST /ubi/events``: the log of what people did with ranked lists."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, Field

from listwright.ranking.deadline import Deadline
from listwright.ranking.served_log.events import MAX_EVENTS
from listwright.service import paths
from listwright.service.admission.body import Limit, hold_body
from listwright.service.api.routing import PlainRoute, service_of
from listwright.service.problems import DOCUMENTED
from listwright.service.wire.examples import EVENTS
from listwright.service.wire.negotiation import media_type_of, unsupported
from listwright.service.wire.schemas import check_query

MAX_BODY = Limit(256 * 2**10, "(send fewer events at a time)")
"""Limit of a body, small because requests to rank wait for the interpreter while it is validated."""

_REFUSALS = (400, 408, 413, 415, 422, 429)

_BODY: dict[str, Any] = {
    "schema": {"type": "array", "maxItems": MAX_EVENTS, "items": {"$ref": "#/components/schemas/Event"}},
    "examples": EVENTS,
}

routes = APIRouter(route_class=PlainRoute)


class Accepted(BaseModel):
    """Events that outlive the process."""

    accepted: Annotated[int, Field(ge=0, description="events of this request that are written")]


@routes.post(
    paths.EVENTS,
    operation_id="events",
    summary="Log events",
    tags=["events"],
    status_code=202,
    response_model=Accepted,
    response_description="The events are with the operating system: they outlive the process",
    responses={
        **{status: DOCUMENTED[status] for status in _REFUSALS},
        404: DOCUMENTED[404] | {"description": "The service keeps no events: LISTWRIGHT_EVENTS_LOG is not set"},
        503: DOCUMENTED[503] | {"description": "The events could not be written: send them again"},
    },
    openapi_extra={"requestBody": {"content": {"application/json": _BODY}, "required": True}},
)
async def events(request: Request) -> Response:
    """Write an array of events, or one event alone, in the words of User Behavior Insights (UBI 1.3.0).

    Further fields are kept as they are. All events of a request are written, or none. Send events again after a 503 or
    without an answer: a join counts events of one query and one `event_id` once.
    """
    service = service_of(request)
    log = service.events
    if log is None:
        raise HTTPException(404)
    check_query(request)
    if media_type_of(request) != "application/json":
        raise unsupported(request, "application/json")
    deadline = Deadline(request.state.arrived + service.settings.timeout_ms / 1000.0)
    async with hold_body(request, MAX_BODY, log.bodies, service.settings, deadline) as body:
        count = await log.add(body, max(0.0, deadline.left_s))
    return Response(Accepted(accepted=count).model_dump_json(), status_code=202, media_type="application/json")
