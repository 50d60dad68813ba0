"""Explanations of real services: several workers, their ends, and the client."""

import asyncio
import ctypes
import os

import httpx
import numpy as np
import pytest

from listwright_client import AsyncClient, Client, RequestError
from support.http.rerank_requests import ROWS, matrix
from support.http.worker_processes import both_ready, family
from support.waiting import NEVER_S, PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop

QUESTION = matrix() | {"candidate": 1}


@pytest.fixture
def explaining(serve, explained_folder):
    def start(**settings):
        return serve(bundle=explained_folder, explain=True, explain_timeout_ms=1000 * NEVER_S, **settings)

    return start


def explainers(service):
    """Processes that explain; ``sitecustomize.py`` of the tests gives them this class instead of the lowest one."""
    return [process for process in family(service) if os.sched_getscheduler(process.pid) == os.SCHED_BATCH]


def test_each_worker_explains_and_nothing_is_left_at_the_end(explaining):
    service = both_ready(explaining(workers=2))
    found = []
    until(lambda: found.append(asked(service)) or len(explainers(service)) == 2)
    assert all(answer == found[0] for answer in found), "whichever worker explains"
    processes = explainers(service)
    metrics = httpx.get(service.url + "/metrics").text
    assert f'listwright_explanations_total{{outcome="ok"}} {len(found)}.0' in metrics
    assert service.stop()[0] == 0
    until(lambda: not any(process.is_running() for process in processes))


def asked(service):
    """What is said of a candidate, over a connection of its own."""
    answer = httpx.post(service.url + "/explain", json=QUESTION, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()["explanations"]


@pytest.fixture
def adopting():
    """Orphans whom no nearer process adopts become children of this one, which reaps none: as beside an idle init."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1)
    yield
    prctl(36, 0)


def test_a_killed_worker_leaves_no_process_behind(explaining, adopting):
    service = both_ready(explaining(workers=2))
    asked(service)
    (process,) = explainers(service)
    process.parent().kill()
    until(lambda: not process.is_running())  # nor its entry in the table of processes


def test_the_end_of_the_service_waits_for_the_explanation_in_work(explaining):
    service = explaining()
    asked(service)
    (process,) = explainers(service)
    process.suspend()

    async def under_way():
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            request = asyncio.create_task(client.post(service.url + "/explain", json=QUESTION))
            await asyncio.sleep(0.3)
            service.process.terminate()
            await asyncio.sleep(0.3)
            process.resume()
            return await request

    assert asyncio.run(under_way()).status_code == 200
    assert service.wait()[0] == 0
    until(lambda: not process.is_running())


def test_both_clients_explain(explaining):
    service = explaining()
    rows = [{**row, "bm25": row["bm25"] if row["bm25"] is not None else float("nan")} for row in ROWS]
    ids = [f"sku-{n}" for n in range(len(ROWS))]
    with Client(service.url, timeout=PATIENCE_S) as client:
        explained = client.explain(rows, ids=ids, candidate="sku-2", against=5, strategy="srm")
        ranking = client.rerank(rows, ids=ids, strategy="srm")
        with pytest.raises(RequestError) as caught:
            client.explain(rows, candidate=99)
    assert [fault.path for fault in caught.value.errors] == ["$.candidate"]
    np.testing.assert_array_equal(explained.ranking.scores, ranking.scores)
    (found,) = explained.explanations
    assert (found.candidate.index, found.candidate.id, found.candidate.rank) == (2, "sku-2", ranking.ranks[2])
    assert found.against.index == 5
    assert sum(found.router.probabilities) == pytest.approx(1.0)
    assert (len(found.router.gains), found.router.margin) == (3, 0.0)
    assert found.passing is None or found.passing.untried == 0
    for stage in (found.first_stage, found.second_stage):
        total = sum(part.contribution for part in stage.contributions)
        assert total == pytest.approx(stage.score - stage.reference_score, abs=1e-5)

    async def again():
        async with AsyncClient(service.url, timeout=PATIENCE_S) as asynchronous:
            return await asynchronous.explain(rows, ids=ids, candidate="sku-2", against=5, strategy="srm")

    assert asyncio.run(again()).explanations == explained.explanations
