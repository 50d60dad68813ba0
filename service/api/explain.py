"""``POST /explain``: why a candidate stands where it stands."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response

from listwright.service import paths
from listwright.service.api.rerank import HEADERS, RANKED
from listwright.service.api.routing import PlainRoute, service_of
from listwright.service.problems import DOCUMENTED
from listwright.service.wire.examples import EXPLANATIONS
from listwright.service.wire.negotiation import JSON, unsupported

_BODY: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/ExplainRequest"}, "examples": EXPLANATIONS}
_ANSWER: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/ExplainResponse"}}
"""Schema by name: its class is made where it is needed, see :func:`listwright.service.api.openapi.complete`."""

routes = APIRouter(route_class=PlainRoute)


@routes.post(
    paths.EXPLAIN,
    operation_id="explain",
    summary="Explain a candidate's place",
    tags=["explain"],
    response_description="The ranking, and why candidates stand where they stand",
    responses={
        200: {"headers": HEADERS, "content": {"application/json": _ANSWER}},
        **{status: DOCUMENTED[status] for status in RANKED},
        404: DOCUMENTED[404]
        | {"description": "Explanations are off (LISTWRIGHT_EXPLAIN); or unknown model, version or specialist"},
        429: DOCUMENTED[429] | {"description": "A list is being explained and another one waits"},
        503: DOCUMENTED[503] | {"description": "No bundle is loaded, the process is draining, or explaining failed"},
        504: DOCUMENTED[504] | {"description": "The deadline passed before any part of an explanation was there"},
    },
    openapi_extra={"requestBody": {"content": {"application/json": _BODY}, "required": True}},
)
async def explain(request: Request) -> Response:
    """Rank a list as `/rerank` does, and say of one candidate, or of those at the first places, why they stand there.

    Contributions of features to the scores of both stages, the smallest changes that let the candidate pass the one
    above it, who moves if it leaves, and what makes the query unusual. One list at a time is explained, beside requests
    to rank, which lose no slot to it. What the deadline cuts short or leaves out is named in `meta.incomplete`.
    """
    service = service_of(request)
    if service.explainer is None:
        raise HTTPException(404)
    if not JSON.fullmatch(request.headers.get("content-type", "")):
        raise unsupported(request, "application/json")
    return await service.explainer.answer(request, service.current.require())
