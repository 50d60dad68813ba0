"""Two services that one generator asks in turns."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.load import pairs
from benchmarks.load.generator import Plan
from benchmarks.load.pairs import Pair

LATER_S = 0.2


@pytest.fixture
def services(tmp_path):
    """The second one answers later."""
    servers = {name: server(wait_s) for name, wait_s in {"without": 0.0, "with": LATER_S}.items()}
    (tmp_path / "body").write_bytes(b"{}")
    yield Pair(tmp_path, {name: one.server_address[1] for name, one in servers.items()})
    for one in servers.values():
        one.shutdown()
        one.server_close()


def server(wait_s):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(wait_s)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            """Nothing is printed."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return made


def test_each_is_asked_in_its_turns_and_the_later_one_is_found(services):
    found = services.alternating(services.folder / "body", "application/json", 4 * pairs.TURN_S, 20.0)
    assert found["turns"] == 2
    assert found["p99_ms"]["with"] >= 1e3 * LATER_S
    later = found["p99_ms"]["with"] - found["p99_ms"]["without"]
    assert found["later_ms"] == pytest.approx(later, abs=0.002)
    low, high = found["later_ms_95"]
    assert low <= found["later_ms"] <= high
    assert found["later"] == pytest.approx(later / found["p99_ms"]["without"], rel=0.01)


def test_turns_are_of_one_length():
    plan = Plan(1, "body", 4.0, 1, rate=10.0, other_port=2, turn_s=0.5)
    assert [plan.turn(after_s) % 2 for after_s in (0.0, 0.4, 0.5, 0.9, 1.0, 1.6)] == [0, 0, 1, 1, 0, 1]
    assert (plan.ports, Plan(1, "body", 4.0, 1).ports) == ([1, 2], [1])


def test_an_answer_that_is_no_success_ends_it(services, monkeypatch):
    monkeypatch.setattr(pairs, "TURN_S", 0.1)
    with pytest.raises(SystemExit, match="without"):
        Pair(services.folder, {**services.ports, "without": 1}).alternating(
            services.folder / "body", "application/json", 0.4, 20.0
        )
