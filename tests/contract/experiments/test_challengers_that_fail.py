"""A challenger that fails harms nobody, and is switched off; another file asks it again."""

import pytest

from listwright.ranking.served_log import files
from listwright.service import pipeline
from support.experiments import experiment, written
from support.http.rerank_requests import ROWS, by_name, matrix
from support.waiting import until

DEAR = by_name([{**row, "price": 2000.0} for row in ROWS])
"""The second stage of the bundle frail fails on it."""


def status(client):
    (found,) = client.get("/info").json()["experiments"]["experiments"]
    return found["running"], found["reason"]


def value(client, name, **labels):
    return client.app.service.telemetry.registry.get_sample_value(
        f"listwright_{name}", {"experiment": "first", **labels}
    )


@pytest.mark.parametrize("kind", ["split", "interleave"])
def test_it_is_switched_off_after_so_many_failures_in_a_row(running, file, tmp_path, kind, caplog):
    one = experiment(kind, challenger="frail", max_failures=3)
    with running(one) as client:
        until(lambda: status(client) == (True, None))
        answers = [client.post("/rerank", json=DEAR | {"query_id": f"query-{number}"}) for number in range(30)]
        told = [answer.json() for answer in answers]
        assert {
            (answer.status_code, one["model"], one["meta"]["status"]) for answer, one in zip(answers, told, strict=True)
        } == {(200, "shop", "ok")}
        reasons = [one["meta"].get("experiment", {}).get("reason") for one in told]
        assert sum(reason is not None for reason in reasons) == 3
        assert told[-1]["meta"].get("experiment") is None
        assert all(score >= 0 for one in told for score in one["scores"])
        until(lambda: value(client, "experiment_off", kind=kind) == 1)
        assert value(client, "experiment_failures_total") == 3
        is_running, why = status(client)
        assert not is_running
        assert "frail failed 3 times in a row" in why
        written(file, one)
        until(lambda: status(client) == (True, None))
    assert [record.levelname for record in caplog.records if "switched off" in record.message] == ["ERROR"]
    logged = list(files.records(files.log_files(tmp_path / "log", unfinished=False)))
    assert {record.bundle for record in logged} == {"shop/1"}
    assert {record.teams for record in logged} == {None}
    assert sum(record.arm == "challenger" for record in logged) == (3 if kind == "split" else 0)


def test_a_success_between_failures_starts_the_count_again(running):
    with running(experiment("interleave", challenger="frail", max_failures=3)) as client:
        for _ in range(5):
            for body in (DEAR, DEAR, matrix()):
                assert client.post("/rerank", json=body).status_code == 200
        assert status(client) == (True, None)
        assert value(client, "experiment_failures_total") == 10
        assert value(client, "experiment_requests_total", outcome="control_alone") == 10
        assert value(client, "experiment_requests_total", outcome="interleaved") == 5


def test_one_that_raises_anything_harms_nobody(running, monkeypatch):
    rank = pipeline.rank

    def raising(asked, deadline, **options):
        if asked.bundle.manifest.name == "next":
            raise ZeroDivisionError("of the challenger")
        return rank(asked, deadline, **options)

    monkeypatch.setattr(pipeline, "rank", raising)
    with running(experiment("interleave", max_failures=2)) as client:
        answers = [client.post("/rerank", json=matrix()) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert "ZeroDivisionError" in status(client)[1]


def test_without_time_for_the_challenger_control_answers_alone_and_nothing_is_counted(running, tmp_path, monkeypatch):
    rank = pipeline.rank

    def late(asked, deadline, **options):
        until = pipeline.Deadline(0.0) if asked.bundle.manifest.name == "next" else deadline
        return rank(asked, until, **options)

    monkeypatch.setattr(pipeline, "rank", late)
    with running(experiment("interleave", max_failures=1)) as client:
        for number in range(3):  # a stage of which no time is known is tried
            answer = client.post("/rerank", json=matrix() | {"query_id": f"query-{number}"}).json()
        assert "no time for next/1" in answer["meta"]["experiment"]["reason"]
        assert (answer["meta"]["status"], answer["model"]) == ("ok", "shop")
        assert all(score >= 0 for score in answer["scores"])
        assert value(client, "experiment_failures_total") is None
        assert status(client) == (True, None)
    last = next(one for one in files.records(files.log_files(tmp_path / "log")) if one.query_id == "query-2")
    assert (last.experiment, last.teams) == ("first", None)


def test_a_challenger_of_another_schema_does_not_run(running):
    with running(experiment("split", challenger="narrow")) as client:
        until(lambda: not status(client)[0])
        assert "carrier" in status(client)[1]
        assert "experiment" not in client.post("/rerank", json=matrix()).json()["meta"]
