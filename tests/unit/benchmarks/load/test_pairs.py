"""Two services that one generator asks in turns."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from benchmarks.load import pairs
from benchmarks.load.generator import Plan
from benchmarks.load.pairs import Pair

LATER_S = 0.2
SLOW = {"turn_s": 1.0, "settle_s": 0.5, "stall_ms": 1e6}


@pytest.fixture
def services(tmp_path):
    """The second one answers later."""
    servers = {name: server(wait_s) for name, wait_s in {"without": 0.0, "with": LATER_S}.items()}
    (tmp_path / "body").write_bytes(b"{}")
    yield Pair(tmp_path, {name: one.server_address[1] for name, one in servers.items()})
    for one in servers.values():
        one.shutdown()
        one.server_close()


def server(wait_s, late_id=None):
    """Answers after so long; where there is an id, only requests of that id are late."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            if late_id in (None, self.headers["X-Request-ID"]):
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
    found = services.alternating(services.folder / "body", "application/json", 8.0, 10.0, **SLOW)
    assert (found["pairs"], found["stalled"]) == (4, {"without": 0, "with": 0})
    assert found["p99_ms"]["without"] < 1e3 * LATER_S <= found["p99_ms"]["with"]
    assert found["later_ms"] == pytest.approx(found["p99_ms"]["with"] - found["p99_ms"]["without"], abs=0.002)
    low, high = found["later_ms_95"]
    assert 0.0 < low <= high


def test_one_service_is_both_where_request_ids_tell_them_apart(tmp_path):
    (tmp_path / "body").write_bytes(b"{}")
    one = server(LATER_S, late_id="logged")
    both = Pair(
        tmp_path, dict.fromkeys(("without", "with"), one.server_address[1]), {"without": "not", "with": "logged"}
    )
    found = both.alternating(tmp_path / "body", "application/json", 4.0, 10.0, **SLOW)
    peaks = [both.ask(name, tmp_path / "body", "application/json", 0.5) for name in both.ports]
    one.shutdown()
    one.server_close()
    assert found["p99_ms"]["without"] < 1e3 * LATER_S <= found["p99_ms"]["with"]
    assert peaks[0]["milliseconds"]["200"]["p50"] < 1e3 * LATER_S <= peaks[1]["milliseconds"]["200"]["p50"]


def test_a_coin_says_who_has_the_first_turn_and_both_have_as_many():
    plan = Plan(1, "body", 40.0, 1, rate=10.0, other_port=2, turn_s=0.5, settle_s=0.1)
    turns = [plan.turn(0.5 * number + 0.2) for number in range(200)]
    firsts = [side for side, _ in turns[::2]]
    assert 20 < sum(firsts) < 80
    assert all({turns[2 * pair], turns[2 * pair + 1]} == {(0, pair), (1, pair)} for pair in range(100))
    assert [plan.turn(0.5 * number + 0.05) for number in range(200)] == [(side, None) for side, _ in turns]
    assert (plan.ports, Plan(1, "body", 4.0, 1).ports) == ([1, 2], [1])


def test_intervals_are_wider_where_a_slow_moment_lasts():
    slow, fast = (np.full(50, 9.0), np.full(50, 9.0)), (np.full(50, 1.0), np.full(50, 2.0))
    several = [slow if number < 10 else fast for number in range(100)]
    met = {}
    for block in (1, 10):
        rng = np.random.default_rng(0)
        met[block] = np.std([sum(pair is slow for pair in pairs._resample(several, block, rng)) for _ in range(500)])
    assert met[10] > 2 * met[1]


def answered(monkeypatch, turns, **answers):
    """What becomes of these turns, in milliseconds, and these answers of each service."""

    def asked(self, plan):
        Path(plan.turns).write_text(json.dumps(turns), encoding="utf-8")
        return {"services": [{"answers": {"200": 1000, **answers}, "faults": {}} for _ in range(2)]}

    monkeypatch.setattr(Pair, "_run_generator", asked)


def test_pairs_with_a_pause_of_the_machine_are_left_out_and_counted(monkeypatch, tmp_path):
    calm, paused = [[1.0] * 50, [2.0] * 50], [[1.0] * 50, [2.0] * 40 + [150.0] * 10]
    answered(monkeypatch, [calm, paused, calm, paused[::-1], paused], **{"429": 4})
    asked = Pair(tmp_path, {"without": 1, "with": 2})
    found = asked.alternating(tmp_path / "body", "application/json", 1.0, 100.0)
    assert (found["pairs"], found["stalled"]) == (2, {"without": 1, "with": 2})
    assert (found["p99_ms"], found["later_ms"]) == ({"without": 1.0, "with": 2.0}, 1.0)
    assert found["p99_ms_with_stalls"]["with"] == 150.0
    assert found["refused"] == {"without": 4, "with": 4}
    answered(monkeypatch, [paused])
    with pytest.raises(SystemExit, match="each of 1 pairs of turns has an answer above 50 ms"):
        asked.alternating(tmp_path / "body", "application/json", 1.0, 100.0)


@pytest.mark.parametrize("answers", [{"429": 6}, {"500": 1}])
def test_more_than_a_few_refusals_end_it_and_so_does_any_error(monkeypatch, tmp_path, answers):
    answered(monkeypatch, [[[1.0], [1.0]]], **answers)
    with pytest.raises(SystemExit, match="the service without it answered"):
        Pair(tmp_path, {"without": 1, "with": 2}).alternating(tmp_path / "body", "application/json", 1.0, 100.0)


def test_an_answer_that_is_no_success_ends_it(services):
    nobody = Pair(services.folder, {**services.ports, "without": 1})
    with pytest.raises(SystemExit, match="without"):
        nobody.alternating(services.folder / "body", "application/json", 0.4, 20.0, turn_s=0.1, settle_s=0.0)
