"""A real service sends real OTLP to a receiver."""

import http.server
import json
import threading

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.http.processes import Process, free_port

pytestmark = pytest.mark.nightly  # processes start and stop

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
JSON = {"Content-Type": "application/json"}
BODY = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}


class Receiver(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def serve(monkeypatch, bundle_folder):
    """Starts a service that sends to a port, and sees to it that it does not survive the test."""
    started = []

    def start(port, **settings):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        started.append(Process(bundle=bundle_folder, **settings))
        return started[-1].wait_until_ready()

    yield start
    for service in started:
        if service.process.poll() is None:
            service.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_arrives_as_spans_of_the_callers_trace(serve, receiver, workers):
    service = serve(receiver.server_address[1], workers=workers)
    answer = httpx.post(service.url + "/rerank", json=BODY, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert answer.status_code == 200
    assert httpx.post(service.url + "/rerank", content=b"{", headers=JSON).status_code == 400
    code, log = service.stop()  # what is left is sent at the end
    assert code == 0
    whole = receiver.taken[0].resource_spans[0]
    resource = {attribute.key: attribute.value.string_value for attribute in whole.resource.attributes}
    assert resource["service.name"] == "listwright"
    assert resource["deployment.environment"] == "test"
    spans = [s for r in receiver.taken for rs in r.resource_spans for scope in rs.scope_spans for s in scope.spans]
    ours = {span.name: span for span in spans if span.trace_id.hex() == TRACE}
    assert ours.keys() == {"POST /rerank", "queue", "parse", "first_stage", "routing", "second_stage"}
    root = ours.pop("POST /rerank")
    assert root.parent_span_id.hex() == PARENT
    assert {span.parent_span_id for span in ours.values()} == {root.span_id}
    took = answer.json()["meta"]["timings_ms"]
    for name, span in ours.items():
        milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        assert milliseconds == pytest.approx(took[name], abs=0.002), name
        assert root.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    attributes = {attribute.key: attribute.value for attribute in root.attributes}
    assert attributes["listwright.bundle"].string_value == "shop/7"
    assert attributes["http.response.status_code"].int_value == 200
    (refused,) = [span for span in spans if span.trace_id.hex() != TRACE]
    logged = [json.loads(line) for line in log.splitlines() if '"status": 400' in line]
    assert [line["trace_id"] for line in logged] == [refused.trace_id.hex()]
    assert not [span for span in spans if "readyz" in span.name], "probes are no traffic"


def test_a_receiver_that_is_not_there_harms_nobody(serve):
    service = serve(free_port())
    for _ in range(3):
        assert httpx.post(service.url + "/rerank", json=BODY).status_code == 200
    code, _ = service.stop()
    assert code == 0
