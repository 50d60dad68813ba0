"""Whichever of several workers is scraped, the answer is the sum over all of them."""

import os
import signal
from contextlib import suppress

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.http.worker_processes import ask, log_messages, workers
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop


def scrape(service):
    """Over a connection of its own, so that any worker may get it."""
    found = {}
    for family in text_string_to_metric_families(httpx.get(service.url + "/metrics", timeout=PATIENCE_S).text):
        for sample in family.samples:
            found[(sample.name, *sorted(sample.labels.items()))] = sample.value
    return found


def counted(service):
    """The lines about requests; none if a stopped worker has accepted the connection, which never answers."""
    with suppress(httpx.TimeoutException):
        page = httpx.get(service.url + "/metrics", timeout=5)
        return [line for line in page.text.splitlines() if line.startswith("listwright_requests_total")]
    return []


def reranked(service):
    return scrape(service).get(("listwright_requests_total", ("path", "/rerank"), ("status", "200")), 0)


def by_pid(service):
    """Pids of the workers that answered so far."""
    return {line["pid"] for line in log_messages(service, "POST /rerank")}


def cpu_s(process):
    times = process.cpu_times()
    return times.user + times.system


def until_both_answered(service):
    """Ask until each of two workers has answered; returns how often that was."""
    statuses = []

    def both():
        statuses.append(ask(service).status_code)
        return len(by_pid(service)) == 2

    until(both)
    assert set(statuses) == {200}
    return len(statuses)


def two_workers(serve, models):
    service = serve(models=models, workers=2, poll_s=0)
    until(lambda: len(log_messages(service, "serving shop/")) >= 2)
    return service


def test_a_scrape_of_any_worker_is_the_sum_and_outlives_a_worker(models, serve):
    service = two_workers(serve, models)
    sent = until_both_answered(service)
    assert {reranked(service) for _ in range(20)} == {sent}
    stages = [value for key, value in scrape(service).items() if key[0] == "listwright_stage_seconds_count"]
    assert set(stages) == {sent}, "every request passes every stage"
    info = ("listwright_bundle_info", ("engine", "compiled"), ("model", "shop"), ("version", "1"))
    assert scrape(service)[info] == 1

    os.kill(workers(service)[0].pid, signal.SIGKILL)
    until(lambda: len(log_messages(service, "serving shop/")) >= 3)
    assert {reranked(service) for _ in range(20)} == {sent}, "counters never go down"
    ask(service)
    assert {reranked(service) for _ in range(20)} == {sent + 1}


def test_what_processes_take_adds_up_and_a_replaced_worker_is_no_restart_of_the_service(models, serve):
    service = two_workers(serve, models)
    supervisor, (one, other) = psutil.Process(service.process.pid), workers(service)
    until(lambda: scrape(service)["listwright_ready_workers",] == 2)
    found, three = scrape(service), (supervisor, one, other)
    assert found["process_resident_memory_bytes",] == pytest.approx(sum(p.memory_info().rss for p in three), rel=0.2)
    assert found["process_open_fds",] == pytest.approx(sum(p.num_fds() for p in three), abs=10)
    assert found["process_max_fds",] == sum(p.rlimit(psutil.RLIMIT_NOFILE)[0] for p in three)
    assert found["process_start_time_seconds",] == pytest.approx(supervisor.create_time(), abs=2.0)
    assert found["listwright_workers",] == 2
    assert found["listwright_worker_restarts_total",] == 0

    ended_s = cpu_s(one)
    one.kill()
    until(lambda: scrape(service)["listwright_worker_restarts_total",] == 1)
    until(lambda: scrape(service)["listwright_ready_workers",] == 2)
    after = scrape(service)
    assert after["listwright_worker_restarts_total",] == 1
    assert after["process_start_time_seconds",] == found["process_start_time_seconds",]
    living_s = sum(map(cpu_s, (supervisor, *workers(service))))
    assert after["process_cpu_seconds_total",] == pytest.approx(living_s + ended_s, abs=ended_s / 2)


def test_a_worker_that_hangs_goes_in_as_it_was_last_known(models, serve):
    service = two_workers(serve, models)
    until_both_answered(service)
    before = reranked(service)
    stopped = workers(service)[0]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        found = until(lambda: counted(service))
        assert f'listwright_requests_total{{path="/rerank",status="200"}} {before}' in found
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
