"""A request as it is traced, and the tracer that OpenTelemetry's variables ask for."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from listwright.service.telemetry.otel import OtelTracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that OpenTelemetry has for the receiver's address; no trace is made unless one is set."""

PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
"""The only supported protocol of OpenTelemetry; the first of :data:`PROTOCOLS` that is set must name it."""

_log = logging.getLogger("listwright.tracing")


@dataclass(frozen=True, slots=True)
class Traced:
    """A request that was answered; times are :func:`time.perf_counter`'s.

    Args:
        name: Method and path of the route.
        started: Time of the request's first byte.
        began: Time at which its work began, after the queue; None if it never did.
        ended: Time at which its answer was sent.
        status: Status of the answer.
        facts: Fields of the log line.
        headers: ``traceparent`` and ``tracestate`` of the request.
    """

    name: str
    started: float
    began: float | None
    ended: float
    status: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def open_tracer() -> OtelTracer | None:
    """Return a tracer as the ``OTEL_*`` variables say; None where they name no receiver, or turn tracing off."""
    endpoint = next((name for name in ENDPOINTS if os.environ.get(name)), None)
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    if endpoint is None or off:
        return None
    variable = next((name for name in PROTOCOLS if os.environ.get(name)), None)
    if variable is not None and (protocol := os.environ[variable].strip().lower()) != PROTOCOL:
        remedy = f"set it to {PROTOCOL}, and {endpoint} to the receiver's port for HTTP, by default 4318"
        _log.error("%s is %r, which is not sent: no traces; %s", variable, protocol, remedy)
        return None
    try:
        from listwright.service.telemetry import otel  # noqa: PLC0415 - an extra, see pyproject.toml
    except ModuleNotFoundError as error:
        _log.warning(
            "%s is set, but %s is not installed: no traces; pip install 'listwright[otel]'", endpoint, error.name
        )
        return None
    try:
        return otel.exporting()
    except Exception as error:  # OpenTelemetry's, for values of its variables that it does not check
        _log.error("OpenTelemetry refuses its OTEL_* variables: no traces; %s: %s", type(error).__name__, error)
        return None
