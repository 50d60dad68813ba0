"""Calls over gRPC meet the bounds of requests over HTTP: keys, admission, deadlines, sizes, draining, counts."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from tritonclient.grpc import service_pb2

from listwright.ranking.served_log import files
from listwright.service import pipeline
from listwright.service.grpc import server
from listwright.service.readiness import RUN
from support.http.binary_requests import MATRIX
from support.http.grpc_calls import HEALTH, NOT_SERVING, SERVICE, SERVICE_UNKNOWN, SERVING, calling, raw, typed
from support.http.rerank_requests import BODY
from support.service.threaded_service import LONG_MS, serving
from support.waiting import PATIENCE_S, until

WEB, BATCH, SENDER = "w" * 20, "b" * 20, "s" * 20
LIST = raw(MATRIX.tobytes())
INFER = SERVICE + "ModelInfer"


def with_key(key):
    return (("authorization", f"Bearer {key}"),)


def count(served, status, path=INFER):
    return served.app.service.telemetry.requests.labels(path, str(status))._value.get()


class Held:
    """Rankings that wait until they are let go."""

    def __init__(self, monkeypatch):
        self.go, self.deadlines = threading.Event(), []
        rank = pipeline.rank

        def waiting(request, deadline, **options):
            self.deadlines.append(deadline.left_s)
            assert self.go.wait(PATIENCE_S)
            return rank(request, deadline, **options)

        monkeypatch.setattr(pipeline, "rank", waiting)


@pytest.fixture
def held(monkeypatch):
    held = Held(monkeypatch)
    yield held
    held.go.set()


@pytest.fixture
def start(bundle_folder):
    """Starts a service with one thread, and calls of it."""
    stack = []

    def start(**settings):
        context = serving(bundle_folder, **{"grpc_port": 0, "threads": 1, "timeout_ms": LONG_MS, **settings})
        served = context.__enter__()
        stack.append(context)
        context = calling(served)
        stack.append(context)
        return served, context.__enter__()

    yield start
    for context in reversed(stack):
        context.__exit__(None, None, None)


def test_keys_and_rates(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"web:{WEB}\nbatch:{BATCH} rate=0.001 burst=1\nsender:{SENDER} scope=events\n")
    served, calls = start(keys_file=keys)
    for wrong in ((), with_key("x" * 20), (("authorization", f"Basic {WEB}"),), with_key(WEB) * 2):
        assert calls.refused(b"\xff", metadata=wrong)[0] == "UNAUTHENTICATED", "the message is not looked at"
    assert calls.refused(LIST, metadata=with_key(SENDER))[0] == "PERMISSION_DENIED"
    calls.ask(LIST, metadata=with_key(WEB))
    calls.ask(LIST, metadata=with_key(BATCH))
    code, _, metadata = calls.refused(LIST, metadata=with_key(BATCH))
    assert (code, int(metadata["retry-after"]) > 1) == ("RESOURCE_EXHAUSTED", True)
    assert calls.ask(method="ServerLive").live
    assert calls.ask(method="ServerReady").ready
    assert calls.check() == next(calls.watch()) == SERVING
    assert SERVING in calls.channel.unary_unary(HEALTH + "List")(b"", timeout=PATIENCE_S)
    for method in ("ServerMetadata", "ModelReady", "ModelMetadata"):
        assert calls.refused(method=method)[0] == "UNAUTHENTICATED"
    assert calls.ask(service_pb2.ModelReadyRequest(name="shop"), "ModelReady", metadata=with_key(WEB)).ready
    assert [count(served, status) for status in (200, 401, 403, 429)] == [2, 4, 1, 1]


def test_admission_is_that_of_http(start, held):
    served, calls = start(queue=1, queue_ms=LONG_MS)
    gate = served.app.service.gate
    working = calls.begin(LIST)
    until(lambda: gate.working == 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, f"{served.url}/rerank", json=BODY, timeout=PATIENCE_S)
        until(lambda: gate.waiting == 1)
        ended = threading.Event()
        refused = silent(calls, ended).exception()
        ended.set()
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "before its message has arrived"
        assert dict(refused.trailing_metadata())["retry-after"] == "1"
        assert "1 requests are in work and 1 wait" in refused.details()
        assert httpx.post(f"{served.url}/rerank", json={}).status_code == 429, "a call fills the queue of both"
        held.go.set()
        assert waiting.result().status_code == 200
    assert working.result().model_version == "7"
    until(lambda: count(served, 200) == 1)
    assert served.app.service.bodies.held == 0


@pytest.mark.parametrize("how", ["cancelled", "too late"])
def test_who_has_gone_loses_its_place(start, held, how):
    served, calls = start(queue_ms=LONG_MS)
    gate = served.app.service.gate
    working = calls.begin(LIST)
    until(lambda: gate.working == 1)
    waiting = calls.begin(LIST, timeout=PATIENCE_S if how == "cancelled" else 0.3)
    until(lambda: gate.waiting == 1)
    if how == "cancelled":
        waiting.cancel()
    until(lambda: gate.waiting == 0)
    until(lambda: count(served, 400) == 1)
    held.go.set()
    working.result()
    assert len(held.deadlines) == 1


def test_the_deadline_of_the_call_is_that_of_the_ranking(start, held):
    _, calls = start()
    held.go.set()
    calls.ask(LIST, timeout=20)
    calls.ask(typed_within(5.0), timeout=20)
    calls.ask(typed_within(50.0), timeout=20)
    calls.begin(LIST, timeout=None).result()
    seconds = [round(left_s) for left_s in held.deadlines]
    assert seconds[0] in range(10, 21)
    assert seconds[1] in range(1, 6), "the sooner of both"
    assert seconds[2] in range(10, 21)
    assert seconds[3] > 500, "of the settings"


def typed_within(seconds):
    request = typed()
    request.parameters["timeout_ms"].double_param = 1000.0 * seconds
    return request


def test_no_degraded_answer(start):
    served, calls = start(on_failure="error")
    code, words, _ = calls.refused(typed_within(1e-6))
    assert code == "DEADLINE_EXCEEDED"
    assert "LISTWRIGHT_ON_FAILURE" in words
    assert count(served, 504) == 1


def test_sizes_and_compression(start):
    _, calls = start(max_payload_bytes=5000)
    assert calls.refused(b"x" * 5001)[0] == "RESOURCE_EXHAUSTED"
    assert calls.refused(LIST, compression=grpc.Compression.Gzip)[0] == "UNIMPLEMENTED"
    assert calls.refused(LIST, metadata=(("content-encoding", "br"),))[0] == "INVALID_ARGUMENT"
    calls.ask(LIST)


def silent(calls, ended, method="ModelInfer"):
    """A call that sends no message until ``ended``."""

    def messages():
        assert ended.wait(PATIENCE_S)
        yield from ()

    call = calls.channel.stream_unary(SERVICE + method, lambda message: message, lambda message: message)
    return call.future(messages(), timeout=PATIENCE_S)


def test_a_message_that_does_not_arrive(start):
    _, calls = start(timeout_ms=100.0)
    ended = threading.Event()
    for method in ("ModelInfer", "ModelReady"):
        assert silent(calls, ended, method).exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
    ended.set()
    assert silent(calls, ended, "ModelReady").exception().code() is grpc.StatusCode.INVALID_ARGUMENT
    assert silent(calls, ended).exception().code() is grpc.StatusCode.INVALID_ARGUMENT, "none at all"


def test_who_goes_before_its_message_is_there(start):
    served, calls = start()
    ended = threading.Event()
    call = silent(calls, ended)
    until(lambda: served._server.grpc._arriving.held == 1)
    call.cancel()
    until(lambda: count(served, 400) == 1)
    ended.set()
    assert served._server.grpc._arriving.held == 0


def test_slow_messages_leave_their_room_to_quick_ones(start, monkeypatch):
    monkeypatch.setattr(server, "MOST_ARRIVING", 3)
    served, calls = start()
    ended = threading.Event()
    slow = [silent(calls, ended)]
    until(lambda: served._server.grpc._arriving.held == 1)
    slow += [silent(calls, ended) for _ in range(2)]
    until(lambda: served._server.grpc._arriving.held == 3)
    calls.ask(LIST)
    assert slow[0].exception().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not slow[1].done()
    assert not slow[2].done()
    ended.set()
    assert [one.exception().code().name for one in slow[1:]] == ["INVALID_ARGUMENT"] * 2
    until(lambda: served._server.grpc._arriving.held == 0)


def test_probes_beyond_a_rate_are_answered_later_and_others_refused(start, monkeypatch):
    monkeypatch.setattr("listwright.service.admission.throttle.BURST", 1.0)
    monkeypatch.setattr("listwright.service.admission.throttle.RATE", 0.001)
    monkeypatch.setattr("listwright.service.admission.throttle.HOLD_S", 0.01)
    monkeypatch.setattr("listwright.service.admission.throttle.PROBE_S", 0.01)
    _, calls = start()
    ready, metadata = service_pb2.ModelReadyRequest(name="shop"), service_pb2.ModelMetadataRequest(name="shop")
    assert [calls.ask(ready, "ModelReady").ready for _ in range(3)] == [True] * 3
    assert calls.ask(metadata, "ModelMetadata").name == "shop"
    assert calls.refused(metadata, "ModelMetadata")[0] == "RESOURCE_EXHAUSTED"


NAMES = ("", "inference.GRPCInferenceService")


def test_health_is_that_of_readyz(start):
    served, calls = start()
    readiness = served.app.service.readiness
    assert [calls.check(name) for name in NAMES] == [SERVING] * 2
    with pytest.raises(grpc.RpcError) as unknown:
        calls.check("inference.Other")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    assert "'inference.Other'" in unknown.value.details()
    listed = calls.channel.unary_unary(HEALTH + "List")
    entry = b"\n\x04\x12\x02%b\n\x24\n\x1einference.GRPCInferenceService\x12\x02%b"  # a map of two, as it is sent
    assert listed(b"", timeout=PATIENCE_S) == entry % (SERVING, SERVING)
    watched, other = calls.watch(), calls.watch("inference.Other")
    assert (next(watched), next(other)) == (SERVING, SERVICE_UNKNOWN)
    for begin, end in (
        (readiness.draining.set, readiness.draining.clear),
        (
            lambda: [readiness.degraded.note(degraded=True) for _ in range(RUN)],
            lambda: readiness.degraded.note(degraded=False),
        ),
    ):
        begin()
        assert httpx.get(f"{served.url}/readyz").status_code == 503
        assert [calls.check(name) for name in NAMES] == [NOT_SERVING] * 2
        assert listed(b"", timeout=PATIENCE_S) == entry % (NOT_SERVING, NOT_SERVING)
        assert next(watched) == NOT_SERVING
        end()
        assert next(watched) == SERVING
    served.end()
    assert list(watched) == [NOT_SERVING], "the last news, and the end"
    assert list(other) == []
    assert watched.code() is other.code() is grpc.StatusCode.OK


def test_watches_are_bounded_and_take_no_place_of_calls(start, held, monkeypatch):
    monkeypatch.setattr(server, "MOST_WATCHING", 2)
    served, calls = start(max_connections=2, queue_ms=LONG_MS)
    watches, gate = [calls.watch() for _ in range(2)], served.app.service.gate
    assert [next(one) for one in watches] == [SERVING] * 2
    with calling(served) as others:
        begun = [others.begin(LIST) for _ in range(2)]
        until(lambda: (gate.working, gate.waiting) == (1, 1))
        held.go.set()
        assert [one.result().model_version for one in begun] == ["7"] * 2
        with pytest.raises(grpc.RpcError) as refused:
            next(others.watch())
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        until(lambda: len(served._server.grpc._watching) == 1)
        assert next(others.watch()) == SERVING


def test_damaged_questions_of_health(start):
    _, calls = start(timeout_ms=100.0)
    for method in ("Check", "Watch"):
        with pytest.raises(grpc.RpcError) as refused:
            next(calls.channel.unary_stream(HEALTH + method)(b"\xff", timeout=PATIENCE_S))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "grpc.health.v1.HealthCheckRequest" in refused.value.details()


@pytest.mark.nightly
@pytest.mark.parametrize("holds_a_call", [True, False])
def test_a_ping_each_second_is_answered(start, held, holds_a_call):
    """gRPC's own bound of five minutes ends the connection at the third."""
    served, _ = start()
    options = {
        "grpc.keepalive_time_ms": 1000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.use_local_subchannel_pool": 1,
    }
    states = []
    with grpc.insecure_channel(f"localhost:{served._server.grpc.port}", tuple(options.items())) as channel:
        channel.subscribe(states.append)
        grpc.channel_ready_future(channel).result(PATIENCE_S)
        call = channel.unary_unary(INFER).future(LIST.SerializeToString(), timeout=PATIENCE_S) if holds_a_call else None
        time.sleep(7.0)
        held.go.set()
        assert call is None or call.result()
        assert states[-1] is grpc.ChannelConnectivity.READY


def test_draining_and_the_end(start, held, monkeypatch):
    monkeypatch.setattr(server, "LINGER_S", 0.0)
    served, calls = start()
    served.app.service.readiness.draining.set()
    assert calls.ask(method="ServerLive").live
    assert not calls.ask(method="ServerReady").ready
    assert not calls.ask(service_pb2.ModelReadyRequest(name="shop"), "ModelReady").ready
    working = calls.begin(LIST)
    until(lambda: served.app.service.gate.working == 1)
    served._server.should_exit = True
    until(lambda: isinstance(calls.begin(b"", "ServerLive").exception(), grpc.RpcError))
    assert calls.refused(LIST)[0] == "UNAVAILABLE"
    held.go.set()
    assert working.result().model_version == "7", "what is in work is answered"


class Awaited(asyncio.Event):
    """An event that says how many wait for it."""

    waiting = 0

    async def wait(self):
        self.waiting += 1
        return await super().wait()


def test_last_calls_wait_and_are_told_to_ask_again_behind_the_goaway(start, held, monkeypatch):
    """gRPC cancels calls that reach it as it stops: who waits sends none."""
    monkeypatch.setattr(server, "LINGER_S", 0.0)
    served, calls = start()
    working = calls.begin(LIST)
    until(lambda: served.app.service.gate.working == 1)
    own, found = served._server.grpc, []
    own._holds, own._stopping = True, Awaited()
    last = [calls.begin(LIST) for _ in range(3)]
    until(lambda: own._stopping.waiting == 3)
    stop = own._server.stop

    async def note(within_s):
        found.append((own._stopping.is_set(), [call.done() for call in last]))
        await stop(within_s)

    monkeypatch.setattr(own._server, "stop", note)
    stopping = asyncio.run_coroutine_threadsafe(own.stop(PATIENCE_S), own._server._loop)
    errors = [call.exception() for call in last]
    assert found == [(False, [False] * 3)]
    assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}
    assert all("ask again" in error.details() for error in errors)
    held.go.set()
    assert working.result().model_version == "7"
    stopping.result(PATIENCE_S)


def test_counted_logged_and_recorded_beside_http(start, tmp_path, caplog):
    caplog.set_level("INFO", "listwright.requests")
    served, calls = start(served_log=tmp_path)
    served.app.service.telemetry.drift._thread.submit(int).result()
    metadata = (
        ("x-request-id", "of-the-call"),
        ("listwright-unit", "me"),
        ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"),
    )
    call = calls.begin(LIST, metadata=metadata)
    call.result()
    sent = dict(call.trailing_metadata())
    assert sent["x-request-id"] == "of-the-call"
    assert sent["traceparent"] == metadata[2][1]
    assert "total;dur=" in sent["server-timing"]
    (line,) = [record.facts for record in caplog.records if record.name == "listwright.requests"]
    assert line.items() >= {"path": INFER, "status": 200, "request_id": "of-the-call", "candidates": 7}.items()
    assert count(served, 200) == 1
    served.end()
    (record,) = files.records(files.log_files(tmp_path, unfinished=False))
    assert (record.query_id, record.unit) == ("of-the-call", "me")


def test_connections_beyond_the_limit(start):
    served, calls = start(max_connections=2)
    calls.ask(LIST)
    with calling(served) as second, calling(served) as third:
        second.ask(LIST)
        assert third.refused(LIST)[0] == "UNAVAILABLE"
