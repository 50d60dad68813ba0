"""The service under the oldest and the newest uvicorn that its package allows, each installed for this test."""

import json
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from support.http.processes import Process
from support.waiting import until

ROOT = Path(__file__).parents[3]
BODY = json.dumps({"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}).encode()
REQUEST = b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    BODY
)


def allowed():
    """Bounds of uvicorn's version, as the package has them."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (one,) = [text for text in dependencies if text.startswith("uvicorn")]
    least, _, below = one.removeprefix("uvicorn>=").partition(",<")
    return {"oldest": f"=={least}", "newest": f"<{below}"}


@pytest.fixture(params=["oldest", "newest"])
def installed(request, tmp_path):
    """A folder with that uvicorn alone."""
    wanted = "uvicorn" + allowed()[request.param]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path), wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode:
        pytest.skip(f"{wanted} cannot be installed here: {done.stderr[-200:]}")
    return tmp_path


def received(url, sent):
    """All that comes back for these bytes until the connection ends."""
    host, port = httpx.URL(url).host, httpx.URL(url).port
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.nightly
def test_it_ranks_refuses_and_drains(bundle_folder, installed, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    origin = [sys.executable, "-c", "import uvicorn; print(uvicorn.__file__)"]
    assert subprocess.check_output(origin, text=True).startswith(str(installed))
    service = Process(bundle=bundle_folder, drain_s=60).wait_until_ready()
    try:
        twice = received(service.url, (REQUEST + BODY) * 2 + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [twice.count(b"HTTP/1.1 %d " % status) for status in (200, 404)] == [2, 1]
        assert twice.count(b'"ranks":[') == 2
        asking = REQUEST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert received(service.url, asking + BODY).count(b"HTTP/1.1 100 Continue") == 1
        assert b" 400 Bad Request" in received(service.url, b"GET / HTTP/1.1\r\n\r\n")
        service.process.terminate()
        until(lambda: httpx.get(service.url + "/readyz").status_code == 503)
        assert httpx.get(service.url + "/livez").headers["connection"] == "close"
    finally:
        code, log = service.stop()
    assert code == 0, log
