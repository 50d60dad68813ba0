"""The service of one process as one typed value, and its dependencies for endpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from listwright.ranking.bundle import Bundle
from listwright.service import paths
from listwright.service.admission.body import BodyBudget
from listwright.service.admission.gate import Gate
from listwright.service.admission.readiness import RUN, DegradedRun
from listwright.service.admission.throttle import CachedMetrics
from listwright.service.auth.keys import Key
from listwright.service.bundles.models import Current, Models
from listwright.service.bundles.reload import Reloader
from listwright.service.bundles.routing_switch import RoutingPolicy
from listwright.service.errors import NotReadyError
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.transport.connection_limit import ConnectionLimit
from listwright.service.wire.ignored import IgnoredFeatures
from listwright.service.wire.json_codec import JsonBounds
from listwright.service.wire.schemas import check_query

if TYPE_CHECKING:
    from listwright.service.events import EventWriter
    from listwright.service.experiments.live import LiveExperiments
    from listwright.service.explaining.explainer import ExplanationService
    from listwright.service.rules import LiveRules
    from listwright.service.served_log.writer import LogWriter


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that answers a request, composed once by :func:`listwright.service.app.create_app`.

    Args:
        settings: of the process.
        telemetry: its metrics.
        scraped: their text.
        current: the bundles that are served.
        reloader: keeps them to the models folder.
        routing_policy: the operator's hook, and the switch that turns routing off.
        gate: slots, and the queue for them.
        pool: threads that rank, as many as there are slots.
        bodies: bytes of bodies that are held at a time.
        connection_limit: connections that are open at a time.
        admin_key: the operator's; None where there is none.
        draining: set once the process takes no new traffic.
        degraded: whether the last answers all fell back.
        ignored: features that requests send and the bundle has not.
        json_bounds: the largest JSON body of what is served.
        events: where events go; None where they are not kept.
        served_log: takes what is answered; None where nothing is logged.
        experiments: on traffic; None where the settings name none.
        explainer: explains rankings; None where that is off.
        rules: of merchandising, of a file; None where the settings name none.
    """

    settings: Settings
    telemetry: Telemetry
    scraped: CachedMetrics
    current: Current
    reloader: Reloader
    routing_policy: RoutingPolicy
    gate: Gate
    pool: ThreadPoolExecutor
    bodies: BodyBudget
    connection_limit: ConnectionLimit
    admin_key: Key | None
    draining: threading.Event
    degraded: DegradedRun
    ignored: IgnoredFeatures
    json_bounds: JsonBounds
    events: EventWriter | None = None
    served_log: LogWriter | None = None
    experiments: LiveExperiments | None = None
    explainer: ExplanationService | None = None
    rules: LiveRules | None = None

    def serving(self) -> Models:
        """Return the bundles that are served now.

        Raises:
            NotReadyError: if there is none yet.
        """
        if self.current.models is None:
            raise NotReadyError("no bundle is loaded yet: ask /readyz until it says 200")
        return self.current.models

    def find_bundle(self, request: Request, model: str | None, version: str | None) -> Bundle:
        """Return the bundle that a caller names, or the default; its fingerprint goes into the request's state.

        Raises:
            NotReadyError: if there is none yet.
            UnknownModelError: if it is not served.
        """
        bundle = self.serving().choose(model, version)
        request.state.fingerprint = bundle.manifest.fingerprint
        return bundle

    def reason_unready(self) -> str | None:
        """Return why the service is not ready for traffic; None if it is."""
        models = self.current.models
        if models is None:
            return "no bundle is loaded yet"
        names = ", ".join(models.current)
        if self.draining.is_set():
            return f"draining: {names} takes no new traffic"
        if self.degraded.lasts:
            return f"the last {RUN} answers of {names} were degraded: see the log for reasons"
        return None


def service_of(request: Request) -> Service:
    """Return the service of a request's application."""
    service: Service = request.app.service
    return service


def serving(request: Request) -> Models:
    """Return the bundles that are served now.

    Raises:
        NotReadyError: if there is none yet.
    """
    return service_of(request).serving()


Serving = Annotated[Service, Depends(service_of)]
"""The service, as an argument of an endpoint."""

Served = Annotated[Models, Depends(serving)]
"""The bundles, as an argument of an endpoint."""


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

    Its endpoint gets the request, the service, and the names of its path as they are; it reads its parameters itself.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook: what answers a request."""
        endpoint = self.endpoint

        async def handle_plain(request: Request) -> Response:
            response: Response = await endpoint(request, service_of(request), **request.path_params)
            return response

        return handle_plain
