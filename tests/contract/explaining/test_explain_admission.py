"""One list at a time, one more waits, the next is refused; deadlines; callers that go; a process that fails."""

import asyncio
import gc
import threading
from functools import partial

import pytest

from listwright.ranking.deadline import Deadline
from listwright.service import child_process
from listwright.service.errors import UnexplainedError
from listwright.service.explaining import explain_process, explainer
from support.http.problem_bodies import check
from support.http.rerank_requests import BODY, matrix
from support.service import explaining
from support.service.asgi import serving
from support.service.threaded_service import LONG_MS
from support.service.threaded_service import serving as serving_on_a_port
from support.waiting import NEVER_S, until

PATH = "/explain"
QUESTION = matrix() | {"candidate": 0}


@pytest.fixture
def start(explained_folder, monkeypatch):
    """A service whose explaining process is one of ``support.service.explaining``."""

    def begin(process, **settings):
        monkeypatch.setattr(explainer, "run", process)
        return serving(explained_folder, **{"explain": True, "explain_timeout_ms": LONG_MS, **settings})

    return begin


def asked(client, **body):
    """A request under way."""
    return client.portal.start_task_soon(partial(client.asynchronous.post, PATH, json=QUESTION | body))


def gate(client):
    return client.app.service.explainer._gate


def count(client, outcome):
    name = "listwright_explanations_total"
    return client.app.service.telemetry.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


def test_one_is_explained_one_waits_the_third_is_refused(start):
    with start(explaining.held) as client:
        first = asked(client)
        until(lambda: gate(client).working == 1)
        second = asked(client)
        until(lambda: gate(client).waiting == 1)
        refused = client.post(PATH, json=QUESTION)
        check(refused, 429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert count(client, "refused") == 1
        assert [client.post("/rerank", json=BODY).status_code for _ in range(5)] == [200] * 5, "it costs no slot"
        assert client.app.service.gate.working == 0
        client.app.service.explainer._link.stop()
        for request in (first, second):
            check(request.result(), 503, "not-ready")


@pytest.mark.nightly
def test_a_deadline_that_passes_before_anything_is_done_is_a_504(start):
    with start(explaining.held, explain_timeout_ms=300) as client:
        check(client.post(PATH, json=QUESTION), 504, "unexplained")
        process = client.app.service.explainer._link._process.pid
        check(client.post(PATH, json=QUESTION), 504, "unexplained")
        assert client.app.service.explainer._link._process.pid == process, "it was told to stop, and did"
        assert count(client, "unexplained") == 2


def test_an_error_after_a_late_answer_is_nobodys(start, monkeypatch):
    monkeypatch.setattr(explainer, "ANSWERED_S", 0.0)
    unheard, go_on = [], threading.Event()

    def fail():
        go_on.wait(NEVER_S)
        raise UnexplainedError("later still")

    async def run_late(service):
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        try:
            await service._run(partial(fail), Deadline(0.0))
        except UnexplainedError as error:
            message = str(error)  # the error itself would keep the future alive
        go_on.set()
        await asyncio.get_running_loop().run_in_executor(service._pool, int)
        await asyncio.sleep(0)
        gc.collect()
        return message

    with start(explaining.held) as client:
        message = client.portal.call(run_late, client.app.service.explainer)
    assert not unheard
    assert "LISTWRIGHT_EXPLAIN_TIMEOUT_MS" in message, "the remedy"


@pytest.mark.nightly
def test_a_request_may_ask_for_less(start):
    with start(explaining.held) as client:
        check(client.post(PATH, json=QUESTION | {"timeout_ms": 300}), 504, "unexplained")


def test_who_waits_waits_no_longer_than_asked_for(start):
    with start(explaining.held) as client:
        first = asked(client)
        until(lambda: gate(client).working == 1)
        check(client.post(PATH, json=QUESTION | {"timeout_ms": 200}), 429, "overloaded")
        check(client.post(PATH, json=QUESTION | {"candidate": 99}), 422, "candidate")
        assert not first.done()
        client.app.service.explainer._link.stop()
        check(first.result(), 503, "not-ready")


@pytest.mark.nightly
def test_a_large_list_for_a_process_that_reads_nothing_is_answered_by_its_deadline(start, monkeypatch):
    """The pipe is full: what writes into it waits until the process is killed."""
    monkeypatch.setattr(explainer, "LAST_RESORT_S", NEVER_S)
    rows = [[float(n), 2.0, 3.0, "A5"] for n in range(60_000)]
    with start(explaining.deaf, max_candidates=60_000) as client:
        link = client.app.service.explainer._link
        for _ in range(2):
            body = {"features": rows, "candidate": 0, "timeout_ms": 2_000}
            check(client.post(PATH, json=body, timeout=NEVER_S), 504, "unexplained")
        assert link._process.is_alive()
        link.kill()


@pytest.mark.nightly
def test_a_process_that_does_not_stop_is_killed(start, monkeypatch):
    monkeypatch.setattr(child_process, "STOP_S", 0.1)
    with start(explaining.deaf, explain_timeout_ms=300) as client:

        def is_killed():  # a process that has not started yet is not asked, and stays
            check(client.post(PATH, json=QUESTION), 504, "unexplained")
            return client.app.service.explainer._link._process is None

        until(is_killed)
        client.app.service.explainer._link._run = explaining.held
        check(client.post(PATH, json=QUESTION), 504, "unexplained")


@pytest.mark.nightly
def test_a_process_that_takes_too_long_to_start_is_waited_for_by_the_next_one(start, monkeypatch):
    with start(explaining.slow_to_start, explain_timeout_ms=300) as client:
        check(client.post(PATH, json=QUESTION), 504, "unexplained")
        process = client.app.service.explainer._link._process.pid
        check(client.post(PATH, json=QUESTION), 504, "unexplained")
        assert client.app.service.explainer._link._process.pid == process
        client.app.service.explainer._link._ends_start_at = 0.0
        check(client.post(PATH, json=QUESTION), 503, "explanation-failed")
        assert client.app.service.explainer._link._process is None


def test_a_process_that_ends_is_a_503_and_the_next_question_starts_another(start):
    with start(explaining.dying) as client:
        problem = check(client.post(PATH, json=QUESTION), 503, "explanation-failed")
        assert "ended with code 3" in problem["detail"]
        assert count(client, "failed") == 1
        client.app.service.explainer._link._run = explain_process.run
        assert client.post(PATH, json=QUESTION).status_code == 200


@pytest.mark.nightly
def test_a_process_that_was_idle_ends_and_the_next_question_starts_another(start, tmp_path):
    with start(explaining.soon_idle) as client:
        assert client.post(PATH, json=QUESTION).status_code == 200
        process = client.app.service.explainer._link._process
        until(lambda: not process.is_alive())
        assert client.post(PATH, json=QUESTION).status_code == 200


@pytest.mark.nightly
def test_a_task_that_meets_a_process_that_leaves_is_asked_again(start, tmp_path):
    with start(explaining.leaving_once) as client:
        client.app.service.explainer._link._arguments = (str(tmp_path / "gone"),)
        assert client.post(PATH, json=QUESTION).status_code == 200
        assert (tmp_path / "gone").exists()


def test_an_unexpected_error_is_logged_and_not_told(start, caplog):
    with start(explaining.crashing) as client:
        answer = client.post(PATH, json=QUESTION)
        check(answer, 503, "explanation-failed")
        assert "secret" not in answer.text
        assert "inner secret" in caplog.text


def test_a_bundle_that_has_gone_is_said_to(explained_folder, tmp_path):
    with serving(explained_folder, explain=True) as client:
        served = client.app.service.current.models.current["shop"]
        object.__setattr__(served, "path", tmp_path / "gone")
        problem = check(client.post(PATH, json=QUESTION), 503, "explanation-failed")
        assert str(tmp_path) not in problem["detail"]
        assert client.post("/rerank", json=BODY).status_code == 200


def test_who_goes_stops_the_work(explained_folder, monkeypatch):
    import socket

    from support.http.raw_http import BODY as LIST

    monkeypatch.setattr(explainer, "run", explaining.held)
    settings = {"explain": True, "timeout_ms": LONG_MS, "explain_timeout_ms": LONG_MS}
    with serving_on_a_port(explained_folder, **settings) as served:
        service = served.app.service.explainer
        host, _, port = served.url.removeprefix("http://").partition(":")
        body = LIST[:-1] + b', "candidate": 0}'
        head = b"POST /explain HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(head % len(body) + body)
            until(lambda: service._link._ready)
            process = service._link._process.pid
            assert service._gate.working == 1
        until(lambda: service._gate.working == 0)
        assert service._link._process.pid == process, "it was told to stop, and is there for the next one"
        value = served.app.service.telemetry.registry.get_sample_value
        until(lambda: value("listwright_explanations_total", {"outcome": "abandoned"}) == 1)


@pytest.mark.nightly
def test_a_deadline_in_the_middle_leaves_parts_out_by_name(explained_folder):
    """Whatever the machine: an answer has all parts or names those that are missing, or is a 504."""
    with serving(explained_folder, explain=True) as client:
        until(lambda: client.post(PATH, json=QUESTION).status_code == 200)
        seen = set()
        for milliseconds in (1, 3, 5, 10, 20, 40, 80, 5000):
            answer = client.post(PATH, json=matrix() | {"explain_top_n": 5, "timeout_ms": milliseconds})
            seen.add(answer.status_code)
            if answer.status_code == 504:
                check(answer, 504, "unexplained")
                continue
            found = answer.json()
            missing = set(found["meta"]["incomplete"])
            assert ("explanations" in missing) == (len(found["explanations"]) < 5)
            assert missing - {"explanations"} == {part for one in found["explanations"] for part in one["incomplete"]}
        assert seen == {200, 504}
        assert count(client, "unexplained") >= 1
