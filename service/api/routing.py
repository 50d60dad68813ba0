"""Routes of the application, and the dependencies of endpoints."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from listwright.service import paths
from listwright.service.bundles.models import Models
from listwright.service.composition import Service
from listwright.service.wire.schemas import check_query


def service_of(request: Request) -> Service:
    """Return the service of a request's application."""
    service: Service = request.app.service
    return service


def _models_of_service(request: Request) -> Models:
    """Return the models that a request's application serves now."""
    return service_of(request).current.require()


CurrentModels = Annotated[Models, Depends(_models_of_service)]
"""The served models, as an argument of an endpoint."""


class CheckedRoute(APIRoute):
    """A route that refuses unknown query parameters, which FastAPI would drop silently.

    Health probes may have any: some probers append parameters of their own.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook: what answers a request."""
        handle, known = super().get_route_handler(), {parameter.alias for parameter in self.dependant.query_params}

        async def handle_checked(request: Request) -> Response:
            if request.scope["path"] not in paths.HEALTH:
                check_query(request, known)
            return await handle(request)

        return handle_checked


class PlainRoute(APIRoute):
    """A documented route past FastAPI's machinery.

    Its endpoint gets the request and the names of its path as they are; it reads its parameters itself.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook: what answers a request."""
        endpoint: Callable[..., Coroutine[Any, Any, Response]] = self.endpoint
        if not self.param_convertors:
            return endpoint

        async def handle_with_path(request: Request) -> Response:
            return await endpoint(request, **request.path_params)

        return handle_with_path
