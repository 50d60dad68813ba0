"""gRPC of real processes: one port of several workers, TLS, a port in use, and SIGTERM under traffic."""

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter

import grpc
import httpx
import numpy as np
import pytest

from support.http.binary_requests import MATRIX
from support.http.grpc_calls import SERVICE, calling, raw
from support.http.processes import Process, free_port
from support.http.worker_processes import both_ready, lines, log_messages, workers
from support.waiting import until

pytestmark = pytest.mark.nightly  # processes start and stop

LIST = raw(MATRIX.tobytes())


def test_workers_share_the_port_and_one_that_dies_is_replaced(bundle_folder, serve):
    port = free_port()
    service = both_ready(serve(bundle=bundle_folder, workers=2, grpc_port=port))
    for _ in range(20):
        with calling(port) as calls:
            calls.ask(LIST)
    text = httpx.get(f"{service.url}/metrics").text
    assert f'listwright_requests_total{{path="{SERVICE}ModelInfer",status="200"}} 20.0' in text
    assert log_messages(service, f"listening on 127.0.0.1:{port} for gRPC")
    workers(service)[0].kill()
    until(lambda: len(log_messages(service, "serving shop/")) >= 3)
    until(lambda: len(workers(service)) == 2)
    with calling(port) as calls:
        calls.ask(LIST)
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log


def test_a_port_in_use(bundle_folder, serve, try_to_start):
    port = free_port()
    serve(bundle=bundle_folder, grpc_port=port)
    code, said = try_to_start(bundle=bundle_folder, grpc_port=port, port=0)
    assert (code, f"port {port} of 127.0.0.1 is in use" in said) == (3, True)
    assert "LISTWRIGHT_GRPC_PORT" in said


@pytest.mark.parametrize("count", [1, 2])
def test_what_arrives_before_the_end_is_answered(bundle_folder, serve, count):
    """Callers that ask all the time meet answers, and then the end; seldom one whose call crosses it on its way."""
    port = free_port()
    service = serve(bundle=bundle_folder, grpc_port=port, drain_s=0.3, workers=count)
    ended, outcomes = threading.Event(), Counter()

    def ask():
        with calling(port) as calls:
            while not ended.is_set():
                error = calls.begin(LIST).exception()
                outcomes["answers" if error is None else (error.code().name, error.details()[:24])] += 1
                if error is not None:
                    break

    callers = [threading.Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    until(lambda: outcomes["answers"] > 100)
    service.process.send_signal(signal.SIGTERM)
    code, log = service.wait()
    ended.set()
    for caller in callers:
        caller.join()
    assert code == 0, log
    codes = {outcome if outcome == "answers" else outcome[0] for outcome in outcomes}
    assert {"answers", "UNAVAILABLE"} <= codes <= {"answers", "UNAVAILABLE", "CANCELLED"}, outcomes


def test_tls(bundle_folder, serve, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", str(key), "-out", str(cert))
    subprocess.run(made, check=True, capture_output=True)
    port = free_port()
    service = Process(bundle=bundle_folder, grpc_port=port, tls_cert=cert, tls_key=key)
    try:
        until(lambda: log_messages(service, "for gRPC over TLS"))
        with calling(port, grpc.ssl_channel_credentials(cert.read_bytes())) as calls:
            calls.ask(LIST)
        with calling(port) as calls:
            assert calls.refused(LIST)[0] == "UNAVAILABLE"
    finally:
        code, log = service.stop()
    assert (code, [line for line in log.splitlines() if not line.startswith("{")]) == (0, [])


def test_bad_calls_write_nothing_but_lines_of_the_log(bundle_folder, serve):
    port = free_port()
    service = serve(bundle=bundle_folder, grpc_port=port, max_payload_bytes=5000)
    with calling(port) as calls:
        calls.refused(LIST, compression=grpc.Compression.Gzip)
        calls.refused(bytes(6000))
        calls.refused(np.random.default_rng(7).bytes(3000))
        calls.begin(LIST, timeout=1e-6).exception()
    _, log = service.stop()
    assert len(lines(log)) == len(log.splitlines())


def test_grpc_without_its_library(bundle_folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['grpc'] = None\n")
    environment = {"PYTHONPATH": str(tmp_path), "LISTWRIGHT_GRPC_PORT": "0", "LISTWRIGHT_BUNDLE": str(bundle_folder)}
    found = subprocess.run(
        [sys.executable, "-m", "service"], env=environment, capture_output=True, text=True, check=False
    )
    assert (found.returncode, "listwright[grpc]" in found.stderr) == (2, True)
