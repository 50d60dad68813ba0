"""A challenger in the background: it changes no byte, its order is logged, it is dropped under load, its end harms none."""

import signal
from threading import Event

import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.experiments import Agreement, agreement
from listwright.ranking.served_log import files
from listwright.service.experiments import shadow as background
from listwright.service.experiments.shadow import MOST_WAITING
from support.experiments import HIGH_PRICE, experiment, run_until_dear, run_without_end
from support.http import binary_requests
from support.http.rerank_requests import ROWS, by_name, matrix, without_timings
from support.service.asgi import serving
from support.waiting import until

END = 0.6
"""Of a bucket of agreement."""

DEAR = by_name([{**row, "price": HIGH_PRICE} for row in ROWS])


@pytest.fixture
def records(tmp_path):
    return lambda: list(files.records(files.log_files(tmp_path / "log")))


def value(client, name, **labels):
    registry = client.app.service.telemetry.registry
    return registry.get_sample_value(f"listwright_{name}", {"experiment": "first", **labels}) or 0.0


def outcome(client, name):
    return value(client, "experiment_requests_total", outcome=f"shadow_{name}")


def body_of(answer):
    return without_timings(answer.json())


def test_answers_are_the_same_and_the_challengers_order_is_logged(running, records, rivals):
    bodies = [by_name(), matrix() | {"top_n": 3}, by_name(raw_scores=True)]
    with serving(rivals / "shop" / "1") as client:
        plain = [client.post("/rerank", json=body) for body in bodies]
    with running(experiment("shadow")) as client:
        answers = [client.post("/rerank", json=body) for body in bodies]
        npy = client.post(
            "/rerank",
            content=binary_requests.saved(binary_requests.MATRIX),
            headers={"content-type": "application/x-npy", "accept": "application/x-npy"},
        )
        until(lambda: outcome(client, "ok") == 4)
        assert value(client, "shadow_seconds_count") == 4
        below = [value(client, "shadow_agreement_bucket", measure=name, le=str(END)) for name in Agreement._fields]
    assert [body_of(answer) for answer in answers] == [body_of(answer) for answer in plain]
    assert [name for name in npy.headers if "experiment" in name] == []
    reranker = bundle.load(rivals / "next" / "1").reranker
    control = bundle.load(rivals / "shop" / "1").reranker
    found = []
    for record in records():
        assert (record.experiment, record.arm, record.bundle) == ("first", None, "shop/1")
        assert (record.shadow.bundle, record.shadow.status) == ("next/1", "ok")
        lists = CandidateList(record.features)
        assert record.shadow.order == tuple(reranker.rerank(lists).order.tolist())
        found.append(agreement(control.rerank(lists).order, reranker.rerank(lists).order))
    assert len(found) == 4
    assert below == [sum(one[place] <= END for one in found) for place in range(3)]


def test_a_challenger_is_compared_before_rules(running):
    rules = [{"action": "exclude", "ids": ["sku-0"]}, {"action": "pin", "id": "sku-4", "place": 1}]
    measured = []
    for body in (matrix(), matrix() | {"rules": rules}):
        with running(experiment("shadow")) as client:
            assert client.post("/rerank", json=body).status_code == 200
            until(lambda: outcome(client, "ok") == 1)
            lines = client.get("/metrics").text.splitlines()
            measured.append([line for line in lines if line.startswith("listwright_shadow_agreement_bucket")])
    assert measured[0]
    assert measured[0] == measured[1]


def test_without_a_log_it_is_measured_all_the_same(rivals, file, running):
    with running(experiment("shadow"), served_share=0.0001) as client:
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "ok") == 1)


def test_what_there_is_no_time_for_is_dropped_counted_and_logged(running, records, monkeypatch):
    def busy(self, message):
        self.stopped.wait()
        raise EOFError

    monkeypatch.setattr(background.ChildLink, "ask", busy)
    with running(experiment("shadow")) as client:
        for number in range(MOST_WAITING + 5):
            assert client.post("/rerank", json=matrix() | {"query_id": str(number)}).status_code == 200
        assert outcome(client, "dropped") == 5
    found = records()
    assert len(found) == MOST_WAITING + 5, "none is lost for being dropped, or at the end"
    assert {record.shadow.status.partition(":")[0] for record in found} == {"dropped"}


@pytest.fixture
def sizes(monkeypatch):
    """How many lists go to the process at a time; the event lets the first ones go."""
    found, may_go, rank = [], Event(), background.Shadow._rank

    def spied(self, tasks):
        may_go.wait()
        found.append(len(tasks))
        rank(self, tasks)

    monkeypatch.setattr(background.Shadow, "_rank", spied)
    return found, may_go


def test_lists_that_wait_are_ranked_in_one_go(running, records, sizes):
    found, may_go = sizes
    with running(experiment("shadow", core_share=1.0)) as client:
        for number in range(4):
            client.post("/rerank", json=matrix() | {"query_id": str(number), "top_n": number + 1})
        may_go.set()
        until(lambda: outcome(client, "ok") == 4)
    assert found in ([1, 3], [2, 2], [3, 1], [4]), "the thread may have been late for the first ones"
    assert [(record.query_id, record.shadow.status) for record in records()] == [(str(n), "ok") for n in range(4)]


def test_the_process_is_left_alone_while_its_share_is_used_up(running, records):
    with running(experiment("shadow", core_share=1e-6)) as client:
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "ok") == 1)
        client.post("/rerank", json=matrix())
        shadow = client.app.service.experiments._shadow
        until(lambda: len(shadow._waiting) == 1)
        assert outcome(client, "ok") == 1
    assert [record.shadow.status.partition(":")[0] for record in records()] == ["ok", "dropped"]


def test_a_challenger_that_degrades_is_switched_off(running, records):
    with running(experiment("shadow", challenger="frail", max_failures=2)) as client:
        for count in (1, 2):
            assert client.post("/rerank", json=DEAR).json()["meta"]["status"] == "ok"
            until(lambda count=count: outcome(client, "degraded") == count)
        (found,) = client.get("/info").json()["experiments"]["experiments"]
        assert not found["running"]
        assert client.post("/rerank", json=DEAR).status_code == 200
    assert [record.shadow is None for record in records()] == [False, False, True]
    assert records()[0].shadow.status.startswith("degraded: ")


@pytest.mark.nightly
def test_a_process_that_is_killed_is_a_failure_and_starts_again(running, records, monkeypatch):
    monkeypatch.setattr(background, "REST_S", 0.01)
    with running(experiment("shadow")) as client:
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "ok") == 1)
        client.app.service.experiments._shadow._link._process.kill()
        client.app.service.experiments._shadow._link._process.join()
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "failed") == 1)
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "ok") == 2)
        assert value(client, "experiment_failures_total") == 1
    assert [record.shadow.status.partition(":")[0] for record in records()] == ["ok", "failed", "ok"]


def test_a_challenger_that_hangs_ends_and_counts_as_failed(running, records, monkeypatch):
    monkeypatch.setattr(background, "run", run_without_end)
    with running(experiment("shadow", max_failures=1)) as client:
        client.post("/rerank", json=matrix())
        until(lambda: outcome(client, "failed") == 1)
        (found,) = client.get("/info").json()["experiments"]["experiments"]
        assert not found["running"]
    assert f"code -{signal.SIGPROF}" in records()[0].shadow.status


@pytest.mark.nightly
def test_a_process_that_ends_fails_the_list_it_had_and_no_other(running, records, sizes, monkeypatch):
    found, may_go = sizes
    monkeypatch.setattr(background, "REST_S", 0.01)
    monkeypatch.setattr(background, "run", run_until_dear)
    with running(experiment("shadow", core_share=1.0)) as client:
        for body in (matrix(), DEAR, matrix(), matrix()):
            client.post("/rerank", json=body)
        may_go.set()
        until(lambda: outcome(client, "ok") == 3)
        assert (outcome(client, "failed"), value(client, "experiment_failures_total")) == (1, 1)
    assert [record.shadow.status.partition(":")[0] for record in records()] == ["ok", "failed", "ok", "ok"]
    assert sum(found) > 4, "lists behind it went twice"
