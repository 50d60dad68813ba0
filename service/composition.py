"""The parts of the service in one process, composed from its settings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request

from listwright.ranking.bundle import Bundle
from listwright.service.admission.body import BodyBudget
from listwright.service.admission.gate import Gate
from listwright.service.admission.throttle import CachedMetrics
from listwright.service.auth.keys import Key, digest_of
from listwright.service.bundles.models import Current, Models
from listwright.service.bundles.reload import Reloader
from listwright.service.bundles.routing_switch import RoutingPolicy, RoutingSwitch
from listwright.service.readiness import Readiness
from listwright.service.rules import LiveRules
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.transport.connection_limit import ConnectionLimit, room_outside
from listwright.service.wire.ignored import IgnoredFeatures
from listwright.service.wire.json_codec import JsonBounds

if TYPE_CHECKING:
    from listwright.service.events import EventWriter
    from listwright.service.experiments.live import LiveExperiments
    from listwright.service.explaining.explainer import ExplanationService
    from listwright.service.served_log.writer import LogWriter


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that answers a request, composed once by :func:`compose`.

    Args:
        settings: Settings of the process.
        telemetry: Metrics of the process.
        scraped: Text of the metrics, as the last scrape made it.
        current: Holder of the served models.
        reloader: Reloader that follows the models folder.
        routing_policy: Hook of the operator, and the switch that turns routing off.
        gate: Slots for rankings, and the queue for them.
        pool: Threads that rank, as many as there are slots.
        bodies: Budget of the bytes of all bodies that are held at a time.
        connection_limit: Limit of the connections that are open at a time.
        admin_key: Key of the operator; None where there is none.
        readiness: Readiness for traffic.
        ignored: Counter of the features that requests send and the bundle does not have.
        json_bounds: Bounds of JSON bodies for the served models.
        events: Writer of the event log; None where events are not kept.
        served_log: Writer of the served log; None where nothing is logged.
        experiments: Experiments on traffic; None where the settings name none.
        explainer: Service of explanations; None where that is off.
        rules: Rules of merchandising of the service's file; None where the settings name none.
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
    readiness: Readiness
    ignored: IgnoredFeatures
    json_bounds: JsonBounds
    events: EventWriter | None = None
    served_log: LogWriter | None = None
    experiments: LiveExperiments | None = None
    explainer: ExplanationService | None = None
    rules: LiveRules | None = None

    def find_bundle(self, request: Request, model: str | None, version: str | None) -> Bundle:
        """Return the bundle that a caller names, or the default; its fingerprint goes into the request's state.

        Raises:
            NotReadyError: if there is none yet.
            UnknownModelError: if it is not served.
        """
        bundle = self.current.require().choose(model, version)
        request.state.fingerprint = bundle.manifest.fingerprint
        return bundle


def compose(
    settings: Settings, telemetry: Telemetry, switch: RoutingSwitch, on_swap: Callable[[Models], None] | None
) -> Service:
    """Compose the service of this process.

    Args:
        settings: Settings of the process.
        telemetry: Metrics of the process.
        switch: Switch that turns routing off.
        on_swap: Function that is called with the served models after each change; None for none.
    """
    current, slots = Current(), max(1, settings.threads)
    routing_policy, json_bounds = RoutingPolicy(switch), JsonBounds(settings)
    gate = Gate(slots, settings.queue, patience_s=settings.queue_ms / 1000.0)
    admin_key = settings.admin_key
    rules = None if settings.rules is None else LiveRules(settings.rules, telemetry, current)
    events_log = served_log = experiments = explainer = None
    if settings.events_log is not None:
        from listwright.service.events import EventWriter  # noqa: PLC0415 - not loaded where it is not wanted

        events_log = EventWriter.open(settings, telemetry)
    if settings.logs_served:
        from listwright.service.served_log.writer import LogWriter  # noqa: PLC0415 - an extra, see pyproject.toml

        served_log = LogWriter(settings, telemetry)
    if settings.experiments is not None:
        from listwright.service.experiments.live import LiveExperiments  # noqa: PLC0415 - as above

        experiments = LiveExperiments(settings, telemetry, current)
    if settings.explain:
        from listwright.service.explaining.explainer import ExplanationService  # noqa: PLC0415 - as above

        explainer = ExplanationService(settings, telemetry, routing_policy, json_bounds, rules)
    return Service(
        settings=settings,
        telemetry=telemetry,
        scraped=CachedMetrics(telemetry.text),
        current=current,
        reloader=Reloader(current, settings, telemetry, on_swap),
        routing_policy=routing_policy,
        gate=gate,
        pool=ThreadPoolExecutor(slots, "work"),
        bodies=BodyBudget(settings.max_buffered_bytes, lambda: gate.retry_after_s),
        connection_limit=ConnectionLimit(
            settings.max_connections, telemetry, outside=room_outside(settings.max_connections)
        ),
        admin_key=None if admin_key is None else Key("admin", digest_of(admin_key.get_secret_value().encode())),
        readiness=Readiness(current),
        ignored=IgnoredFeatures(telemetry),
        json_bounds=json_bounds,
        events=events_log,
        served_log=served_log,
        experiments=experiments,
        rules=rules,
        explainer=explainer,
    )
