"""HTTPS with a certificate of the test's own; wrong files end the start with a sentence."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import suppress

import httpx
import pytest

from support.http.processes import Process
from support.http.raw_http import BODY, LONG, answer, request
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop

if shutil.which("openssl") is None:
    pytest.skip("there is no openssl command to make a certificate with", allow_module_level=True)


def certificate(folder, name, *more):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = ("-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", *made, "-keyout", str(key), "-out", str(cert), *(more or ("-nodes",))]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"), "one")


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "workers"])
def secure(request, bundle_folder, pair):
    cert, key = pair
    context = ssl.create_default_context(cafile=str(cert))
    service = Process(bundle=bundle_folder, tls_cert=cert, tls_key=key, workers=request.param, timeout_ms=2000)
    url = httpx.URL(service.url.replace("http:", "https:"))
    with httpx.Client(base_url=url, verify=context) as client:
        service.url = str(url)
        until(lambda: service.ready(client))
        yield client, context
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log
    assert "eof_received" not in log


def test_the_health_check_passes(secure, pair):
    cert, key = pair
    port = str(httpx.URL(secure[0].base_url).port)
    for named, code in (({"LISTWRIGHT_TLS_CERT": str(cert), "LISTWRIGHT_TLS_KEY": str(key)}, 0), ({}, 1)):
        environment = {**os.environ, "LISTWRIGHT_PORT": port, "LISTWRIGHT_HOST": "0.0.0.0", **named}
        found = subprocess.run(
            [sys.executable, "-m", "service.commands.health"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == code, found.stderr


def connect(client, context):
    url = client.base_url
    plain = socket.create_connection((url.host, url.port), timeout=PATIENCE_S)
    return context.wrap_socket(plain, server_hostname=url.host)


def test_rankings_over_tls(secure):
    client, _ = secure
    response = client.post("/rerank", content=BODY, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_caller_that_does_not_know_the_certificate_is_right_not_to_trust_it(secure):
    client, _ = secure
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(client.base_url.join("/livez"))


def test_no_version_of_tls_before_1_2(secure):
    client, context = secure
    with connect(client, context) as connection:
        assert connection.version() in ("TLSv1.2", "TLSv1.3")
    old = ssl.create_default_context()
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(client, old).close()


def test_plain_http_at_a_tls_port_gets_nothing_and_harms_nothing(secure):
    client, _ = secure
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request(extra=len(LONG) - len(BODY)) + LONG)
        with suppress(ConnectionError):
            assert not connection.recv(4096).startswith(b"HTTP")
    assert client.get("/livez").status_code == 200


def test_limits_hold_under_tls(secure):
    """Problems of the connection, a slow body, and a caller that ends its side in the middle."""
    client, context = secure
    with connect(client, context) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert answer(connection)[0] == 400
    with connect(client, context) as connection:
        connection.sendall(request(extra=1) + BODY)
        assert answer(connection)[0] == 408
    with connect(client, context) as connection:
        connection.sendall(request() + BODY)
        with suppress(OSError):  # the answer may cross our closing
            connection.unwrap()
    assert client.get("/livez").status_code == 200


@pytest.fixture(scope="module")
def wrong(pair, tmp_path_factory):
    """Settings, and what is said of them."""
    folder = tmp_path_factory.mktemp("wrong")
    cert, key = pair
    _, other = certificate(folder, "other")
    locked_cert, locked = certificate(folder, "locked", "-passout", "pass:SECRET")
    (folder / "text").write_text("SECRET\n")
    return {
        "no key": ({"tls_cert": cert}, "LISTWRIGHT_TLS_CERT is set and LISTWRIGHT_TLS_KEY is not"),
        "no certificate": ({"tls_key": key}, "LISTWRIGHT_TLS_KEY is set and LISTWRIGHT_TLS_CERT is not"),
        "no file": ({"tls_cert": folder / "none", "tls_key": key}, "LISTWRIGHT_TLS_CERT: "),
        "a folder": ({"tls_cert": cert, "tls_key": folder}, "LISTWRIGHT_TLS_KEY: "),
        "another's key": ({"tls_cert": cert, "tls_key": other}, "do not go together: key values mismatch"),
        "text": ({"tls_cert": cert, "tls_key": folder / "text"}, "do not go together: "),
        "swapped": ({"tls_cert": key, "tls_key": cert}, "do not go together: "),
        "encrypted": ({"tls_cert": locked_cert, "tls_key": locked}, "do not go together: "),
    }


NAMES = ("no key", "no certificate", "no file", "a folder", "another's key", "text", "swapped", "encrypted")


@pytest.mark.parametrize("name", NAMES)
def test_wrong_files_end_the_start_with_2(bundle_folder, try_to_start, wrong, name):
    settings, says = wrong[name]
    code, log = try_to_start(bundle=bundle_folder, **settings)
    assert code == 2, log
    assert log.startswith("error: ")
    assert says in log
    assert "SECRET" not in log
    assert len(log.splitlines()) == 1
