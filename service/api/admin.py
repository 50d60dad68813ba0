"""Endpoints of the operator, by the admin key: reload, roll back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from listwright.service.api.info import Serving, serving_info
from listwright.service.api.routing import CheckedRoute, CurrentModels, service_of
from listwright.service.auth import keys
from listwright.service.bundles.reload import EVERYTHING, Reloader
from listwright.service.errors import ReloadRefusedError, UnauthorizedError
from listwright.service.paths import RELOAD, ROLLBACK
from listwright.service.problems import DOCUMENTED
from listwright.service.wire.schemas import Name

_key = HTTPBearer(auto_error=False, scheme_name="adminKey", description="the value of LISTWRIGHT_ADMIN_KEY")


def reloader(
    request: Request,
    documented: Annotated[HTTPAuthorizationCredentials | None, Depends(_key)],  # noqa: ARG001
    _: CurrentModels,
) -> Reloader:
    """Return the reloader, for callers with the operator's key.

    Raises:
        HTTPException: 404 where no operator's key is set.
        UnauthorizedError: for no key, or a wrong one.
    """
    key = service_of(request).admin_key
    if key is None:
        raise HTTPException(404)
    sent = keys.bearer(request.scope["headers"])
    if sent is None or keys.holder([key], sent) is None:
        raise UnauthorizedError("send the admin key: Authorization: Bearer KEY")
    return service_of(request).reloader


Allowed = Annotated[Reloader, Depends(reloader)]

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "What this worker process serves now; others follow within LISTWRIGHT_POLL_S"},
    401: DOCUMENTED[401],
    404: DOCUMENTED[404] | {"description": "No admin key is set, or there is no such model"},
    409: DOCUMENTED[409]
    | {"description": "A bundle was refused, or there is none to go back to; the served one stays"},
    422: DOCUMENTED[422],
    503: DOCUMENTED[503],
}

admin = APIRouter(route_class=CheckedRoute, tags=["admin"])


@admin.post(RELOAD, operation_id="reload", summary="Reload the models folder", responses=_ANSWERS)
async def reload(allowed: Allowed) -> Serving:
    """Read the models folder now. Refused bundles are tried again; 409 gives the reasons if any is refused."""
    models = await allowed.reload(again=True)
    if models.refused:
        refused = sorted(models.refused.values(), key=lambda refusal: refusal.model)
        reasons = (f"{r.model}/{r.version}: {r.reason}" if r.model != EVERYTHING else r.reason for r in refused)
        raise ReloadRefusedError("; ".join(reasons))
    return serving_info(models)


@admin.post(ROLLBACK, operation_id="rollback", summary="Roll back to the previous version", responses=_ANSWERS)
async def rollback(
    allowed: Allowed,
    model: Annotated[Name | None, Query(description="its name; by default that of the default model")] = None,
) -> Serving:
    """Write the version that a model served before into its ``CURRENT``, and serve it at once."""
    return serving_info(await allowed.rollback(model))
