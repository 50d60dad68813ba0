"""Spans are made of the times that are taken anyway, and only where a receiver is named."""

import sys
import time
from itertools import pairwise
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from listwright.service.telemetry import otel
from listwright.service.telemetry.otel import OtelTracer
from listwright.service.telemetry.tracer import ENDPOINTS, PROTOCOLS, Traced, open_tracer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TIMINGS = {"parse": 1.0, "queue": 4.0, "first_stage": 2.0, "routing": 0.5, "second_stage": 3.0, "total": 12.0}


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter, monkeypatch):
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    return OtelTracer(SimpleSpanProcessor(exporter))


def traced(**changes):
    now = time.perf_counter()
    facts = {"version": "shop/7", "strategy": "qilcm", "specialist": None, "candidates": 3, "timings_ms": TIMINGS}
    of = {"name": "POST /rerank", "started": now - 0.013, "began": now - 0.008, "ended": now, "status": 200}
    return Traced(**{**of, "facts": facts, **changes})


def test_a_request_is_a_span_with_one_per_stage_below(tracer, exporter):
    trace = tracer.record(traced(headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}))
    assert trace == TRACE
    *stages, whole = exporter.get_finished_spans()
    assert (whole.name, whole.kind) == ("POST /rerank", SpanKind.SERVER)
    assert f"{whole.parent.span_id:016x}" == PARENT
    assert {f"{span.context.trace_id:032x}" for span in (*stages, whole)} == {TRACE}
    assert [span.name for span in stages] == ["queue", "parse", "first_stage", "routing", "second_stage"]
    assert {span.parent.span_id for span in stages} == {whole.context.span_id}
    for span in stages:
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(TIMINGS[span.name], abs=1e-3)
    for before, after in pairwise(stages):
        assert after.start_time == pytest.approx(before.end_time, abs=1000), "one after the other"
    assert whole.start_time < stages[0].start_time
    assert stages[-1].end_time < whole.end_time
    assert abs(whole.end_time - time.time_ns()) < 60e9
    assert whole.attributes["listwright.bundle"] == "shop/7"
    assert "listwright.specialist" not in whole.attributes
    assert whole.resource.attributes["service.name"] == "listwright"


def test_a_refused_request_has_no_stages_and_a_trace_of_its_own(tracer, exporter):
    trace = tracer.record(
        traced(status=429, began=None, facts={"request_id": "r"}, headers={"traceparent": "nonsense"})
    )
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert trace == f"{span.context.trace_id:032x}"
    assert span.status.status_code == StatusCode.UNSET, "a caller's fault"
    tracer.record(traced(status=503, began=None, facts={}))
    assert exporter.get_finished_spans()[1].status.status_code == StatusCode.ERROR


def test_a_caller_that_does_not_sample_is_heeded(tracer, exporter):
    assert tracer.record(traced(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})) == TRACE
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("off", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_nothing_is_traced_unless_a_receiver_is_named(monkeypatch, off):
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    if off:
        monkeypatch.setenv(ENDPOINTS[1], "http://127.0.0.1:1")
    for name, value in off.items():
        monkeypatch.setenv(name, value)
    assert open_tracer() is None


@pytest.mark.parametrize(
    ("named", "traces"),
    [
        ({}, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": ""}, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, True),
    ],
)
def test_a_protocol_that_is_not_spoken_is_named_with_the_remedy(monkeypatch, caplog, named, traces):
    monkeypatch.setenv(ENDPOINTS[1], "http://127.0.0.1:1")
    for name in PROTOCOLS:
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(otel, "exporting", lambda: Mock(spec=OtelTracer))
    assert (open_tracer() is not None) == traces
    assert all(word in caplog.text for word in ("grpc" if "grpc" in named.values() else "", "http/protobuf")) or traces
    assert f"{ENDPOINTS[1]} to the receiver's port" in caplog.text or traces


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "256"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nosuch"),
    ],
)
def test_values_that_opentelemetry_refuses_end_no_start(monkeypatch, caplog, name, value):
    monkeypatch.setenv(ENDPOINTS[1], "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    assert open_tracer() is None
    assert "OTEL_" in caplog.text


def test_without_the_extra_the_service_says_so_and_serves(monkeypatch, caplog):
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1/v1/traces")
    monkeypatch.delitem(sys.modules, "listwright.service.telemetry.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delattr("listwright.service.telemetry.otel", raising=False)
    assert open_tracer() is None
    assert "pip install 'listwright[otel]'" in caplog.text
