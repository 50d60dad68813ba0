"""The process: start-up errors, readiness while draining, clean exit."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from uvicorn import Config

from listwright.service.settings import Settings
from listwright.service.transport.server import options
from support.http.processes import Process
from support.waiting import NEVER_S, PATIENCE_S, until


def run(environment, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "LISTWRIGHT_BUNDLE: nothing is named to serve (set it, e.g. to models/demo/1, or LISTWRIGHT_MODELS)"),
        ({"bundle": ""}, "LISTWRIGHT_BUNDLE: Value error, is empty"),
        ({"bundle": "x", "host": ""}, "LISTWRIGHT_HOST: Value error, is empty"),
        ({"bundle": "x", "keys": ""}, "LISTWRIGHT_KEYS: Value error, is empty"),
        ({"port": "http"}, "LISTWRIGHT_PORT: Input should be a valid integer"),
        ({"hook": "shop.py"}, "LISTWRIGHT_HOOK: Value error, is not module:callable"),
        ({"hook_budget_ms": "0"}, "LISTWRIGHT_HOOK_BUDGET_MS: Input should be greater than 0"),
        ({"routing": "perhaps"}, "LISTWRIGHT_ROUTING: Input should be a valid boolean"),
        ({"routing_off_file": ""}, "LISTWRIGHT_ROUTING_OFF_FILE: Value error, is empty"),
        (
            {"bundle": "x", "hook": "no_such_module:choose"},
            "error: LISTWRIGHT_HOOK: 'no_such_module:choose': importing 'no_such_module' raised ModuleNotFoundError",
        ),
        ({"max_candidates": "0"}, "LISTWRIGHT_MAX_CANDIDATES: Input should be greater than or equal to 1"),
    ],
)
def test_wrong_setting_is_named(try_to_start, settings, says):
    code, said = try_to_start(**settings)
    assert code == 2
    assert says in said


@pytest.mark.nightly
def test_missing_bundle_is_named(tmp_path):
    result = run({"LISTWRIGHT_BUNDLE": str(tmp_path)})
    assert result.returncode == 1
    assert result.stderr == f"error: {tmp_path}/manifest.json: does not exist: not the folder of a bundle\n"


@pytest.mark.nightly
def test_a_bundle_named_on_the_command_line_is_the_one_that_is_served(bundle_folder, tmp_path):
    result = run({"LISTWRIGHT_BUNDLE": str(bundle_folder)}, str(tmp_path / "gone"))
    assert result.returncode == 1
    assert result.stderr == f"error: {tmp_path}/gone/manifest.json: does not exist: there is no such folder\n"


@pytest.mark.nightly
def test_altered_bundle_is_refused_by_file(bundle_folder, tmp_path):
    copy = shutil.copytree(bundle_folder, tmp_path / "shop" / "7")
    (copy / "first_stage.txt").write_text("tree")
    result = run({"LISTWRIGHT_BUNDLE": str(copy)})
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {copy}/first_stage.txt: has 4 bytes instead of")
    assert result.stderr.count("\n") == 1


@pytest.mark.nightly
def test_a_setting_that_is_almost_one_is_pointed_out(tmp_path):
    result = run({"LISTWRIGHT_BUNDLE": str(tmp_path), "LISTWRIGHT_UNKNOWN_FEATURE": "ignore"})
    assert "LISTWRIGHT_UNKNOWN_FEATURE is no setting; is LISTWRIGHT_UNKNOWN_FEATURES meant?" in result.stderr
    assert "LISTWRIGHT_BUNDLE is" not in result.stderr


def test_port_in_use_is_an_error(bundle_folder, try_to_start):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, said = try_to_start(bundle=bundle_folder, port=other.getsockname()[1])
    assert code == 3
    assert "is in use: stop the other process, or choose another with --port or --host" in said


def test_options_count_more_than_the_environment_and_are_named_in_errors(bundle_folder, try_to_start):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = try_to_start("--port", str(port), "--host", "127.0.0.1", bundle=bundle_folder, port=1, host="a..b")
        assert code == 3
        assert f"port {port} of 127.0.0.1 is in use" in said
    for words in (["--port", "99999"], ["--host", ""]):
        code, said = try_to_start(*words, bundle=bundle_folder)
        assert code == 2
        assert said.startswith(f"error: {words[0]}: ")
    assert try_to_start("")[1].startswith("error: BUNDLE: ")


def test_a_host_that_no_machine_can_have_is_an_error(bundle_folder, try_to_start):
    code, said = try_to_start(bundle=bundle_folder, host="a..b")
    assert code == 3
    assert "a..b" in said


def test_help_lists_every_setting():
    from listwright.service.settings import Settings

    result = subprocess.run([sys.executable, "-m", "service", "--help"], capture_output=True, text=True, check=True)
    for name in Settings.model_fields:
        assert f"LISTWRIGHT_{name.upper()}" in result.stdout


def healthy(port):
    environment = {"LISTWRIGHT_PORT": str(port)}
    return subprocess.run(
        [sys.executable, "-m", "service.commands.health"], env=environment, capture_output=True, text=True, check=False
    )


def test_the_health_check_says_why_not(live):
    assert healthy(live.base_url.port).returncode == 0
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        refused = healthy(nobody.getsockname()[1])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: no answer: ")
    assert healthy("http").stderr.startswith("error: no answer: invalid literal")


def test_draining(bundle_folder):
    service = Process(bundle=bundle_folder, drain_s=NEVER_S).wait_until_ready()
    service.process.terminate()
    until(lambda: httpx.get(service.url + "/readyz").status_code == 503)
    response = httpx.get(service.url + "/readyz")
    assert healthy(service.url.rpartition(":")[2]).stderr == "error: not ready: /readyz answers 503\n"
    assert response.json()["type"] == "urn:listwright:not-ready"
    body = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}
    assert httpx.post(service.url + "/rerank", json=body).status_code == 200, "what still comes is still answered"
    code, log = service.stop()
    assert code == 0, log


def test_sigterm_exits_with_0_and_logs_what_was_served(bundle_folder):
    code, log = Process(bundle=bundle_folder).wait_until_ready().stop()
    assert code == 0
    assert "serving shop/7" in log
    assert all(json.loads(line)["level"] == "info" for line in log.splitlines())


OF_OTHERS = {
    "WEB_CONCURRENCY": "auto",
    "FORWARDED_ALLOW_IPS": "*",
    "UVICORN_PORT": "1",
    "UVICORN_WORKERS": "four",
    "PROMETHEUS_MULTIPROC_DIR": "/nowhere",
    "prometheus_multiproc_dir": "/nowhere",
    "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
    "ORT_LOAD_CONFIG_FROM_MODEL": "1",
    "OMP_NUM_THREADS": "auto",
    "GUNICORN_CMD_ARGS": "--bind=0.0.0.0:1",
    "PORT": "1",
}


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("blank", [False, True])
def test_variables_of_other_programs_change_nothing(bundle_folder, monkeypatch, workers, blank):
    for name, value in OF_OTHERS.items():
        monkeypatch.setenv(name, "" if blank else value)
    service = Process(bundle=bundle_folder, workers=workers).wait_until_ready()
    answer = httpx.get(service.url + "/metrics", headers={"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"})
    assert answer.text.count("# TYPE listwright_requests_total counter") == 1
    code, log = service.stop()
    assert code == 0, log
    assert "Traceback" not in log


def test_uvicorn_reads_no_variable(monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "auto")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    config = Config("", **options(Settings(bundle="x")))
    assert (config.workers, config.proxy_headers, config.forwarded_allow_ips) == (1, False, "")


@pytest.mark.nightly
def test_ctrl_c_is_a_clean_stop_too(bundle_folder):
    service = Process(bundle=bundle_folder, drain_s=NEVER_S).wait_until_ready()
    service.process.send_signal(signal.SIGINT)
    code, log = service.wait()
    assert code == 0, log
    assert "Traceback" not in log


@pytest.mark.nightly
def test_a_second_sigterm_ends_draining(bundle_folder):
    service = Process(bundle=bundle_folder, drain_s=NEVER_S).wait_until_ready()
    service.process.terminate()
    until(lambda: httpx.get(service.url + "/readyz").status_code == 503)
    assert service.stop()[0] == 0


@pytest.mark.nightly
def test_a_request_in_flight_is_finished(bundle_folder):
    """SIGTERM comes in the middle of a body; the answer still does."""
    service = Process(bundle=bundle_folder).wait_until_ready()
    body = json.dumps({"features": [[1.0, 2.0, 3.0, "A5"]]}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]))
    connection.putrequest("POST", "/rerank")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:10])
    time.sleep(0.2)
    service.process.terminate()
    time.sleep(0.2)
    connection.send(body[10:])
    response = connection.getresponse()
    assert response.status == 200
    assert json.loads(response.read())["ranks"] == [1]
    assert service.wait()[0] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2])
def test_threads_that_a_hook_has_started_do_not_hold_up_a_stop(bundle_folder, tmp_path, monkeypatch, workers):
    """At its end Python waits for every thread of a pool, whatever it is doing."""
    (tmp_path / "pooling_hook.py").write_text(
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\n\npool = ThreadPoolExecutor(1)\n\n"
        "def ask(query):\n    pool.submit(time.sleep, 3600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    service = Process(bundle=bundle_folder, hook="pooling_hook:ask", workers=workers).wait_until_ready()
    body = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}
    assert all(httpx.post(service.url + "/rerank", json=body).status_code == 200 for _ in range(8))
    try:
        code, log = service.stop()
    finally:
        service.process.kill()  # if it fails, this process would stay for an hour
    assert code == 0, log


@pytest.mark.nightly
def test_a_hook_that_hangs_does_not_hold_up_a_stop(bundle_folder, tmp_path, monkeypatch):
    (tmp_path / "hanging_hook.py").write_text("import time\n\ndef hang(query):\n    time.sleep(3600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    service = Process(bundle=bundle_folder, hook="hanging_hook:hang", hook_budget_ms=1, threads=2).wait_until_ready()
    body = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}
    answers = [httpx.post(service.url + "/rerank", json=body) for _ in range(6)]
    assert [answer.json()["route"]["decided_by"] for answer in answers] == ["bundle"] * 6
    metrics = httpx.get(service.url + "/metrics").text
    assert 'listwright_routing_faults_total{kind="hook_timeout"} 4.0' in metrics
    assert 'listwright_routing_faults_total{kind="hook_busy"} 2.0' in metrics
    try:
        code, log = service.stop()
    finally:
        service.process.kill()  # if it fails, this process would stay for an hour
    assert code == 0, log
    assert "graceful shutdown exceeded" not in log, (
        "no waiting for the hook, and not even for the last moment of a stop"
    )
    warnings = [line for line in map(json.loads, log.splitlines()) if line["level"] == "warning"]
    assert [line["kind"] for line in warnings] == ["hook_timeout", "hook_busy"]
