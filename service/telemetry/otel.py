"""Spans by OpenTelemetry, made once a request is answered, from its recorded times. Needs ``[otel]``."""

from __future__ import annotations

import os
import threading
import time
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

if TYPE_CHECKING:
    from listwright.service.telemetry.tracer import Traced

FLUSH_S = 2.0
"""Seconds that the end of the process waits for the receiver."""

STEPS = ("parse", "first_stage", "routing", "second_stage")
"""Steps of a request, in order, after the queue."""

FACTS = {
    "request_id": "listwright.request_id",
    "version": "listwright.bundle",
    "strategy": "listwright.strategy",
    "specialist": "listwright.specialist",
    "decided_by": "listwright.decided_by",
    "stage_reached": "listwright.stage_reached",
    "reason": "listwright.reason",
    "candidates": "listwright.candidates",
}
"""Fields of the log line that the span has, and their names there."""


class OtelTracer:
    """A span per request, and below it one per stage.

    Args:
        processor: Processor of ended spans.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        names = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        has_name = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in names
        ours: dict[str, AttributeValue] = {"service.version": version("listwright")}
        if not has_name:
            ours["service.name"] = "listwright"
        self._provider = TracerProvider(resource=Resource.create(ours), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("listwright", version("listwright"))
        self._propagator = TraceContextTextMapPropagator()

    def record(self, request: Traced) -> str:
        """Make the spans of an answered request; return the trace's id."""
        offset = time.time_ns() - int(time.perf_counter() * 1e9)

        def at(seconds: float) -> int:
            return offset + int(seconds * 1e9)

        method, _, route = request.name.partition(" ")
        attributes: dict[str, AttributeValue] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": request.status,
        }
        facts = request.facts
        attributes |= {name: facts[fact] for fact, name in FACTS.items() if facts.get(fact) is not None}
        span = self._tracer.start_span(
            request.name,
            context=self._propagator.extract(request.headers),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=at(request.started),
        )
        if request.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span)

        def child(step: str, start: float, seconds: float) -> None:
            self._tracer.start_span(step, context=inside, start_time=at(start)).end(at(start + seconds))

        took = {step: milliseconds / 1000.0 for step, milliseconds in facts.get("timings_ms", {}).items()}
        if request.began is not None:
            child("queue", request.began - took["queue"], took["queue"])
            start = request.began
            for step in STEPS:
                if step in took:
                    child(step, start, took[step])
                    start += took[step]
        span.end(at(request.ended))
        return f"{span.get_span_context().trace_id:032x}"

    def close(self) -> None:
        """Send the remaining spans, or give up after :data:`FLUSH_S`: OpenTelemetry itself would try for longer."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(FLUSH_S)


def exporting() -> OtelTracer:
    """Return a tracer that sends over OTLP/HTTP, as the ``OTEL_*`` variables say."""
    return OtelTracer(BatchSpanProcessor(OTLPSpanExporter()))
