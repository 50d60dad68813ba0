"""Metrics of several processes as one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from listwright.service.telemetry.merge import drop_gauges, drop_unserved_versions, merge, pack, snapshot, text, unpack


def process(requests, waiting, version):
    registry = CollectorRegistry()
    Counter("listwright_requests", "Answered requests", ["path"], registry=registry).labels("/rerank").inc(requests)
    Gauge("listwright_waiting_requests", "Waiting", registry=registry).set(waiting)
    Gauge("listwright_bundle_info", "Served", ["model", "version"], registry=registry).labels("shop", version).set(1)
    seconds = Histogram("listwright_s", "Time", ["model", "version"], buckets=(1.0, 2.0), registry=registry)
    for _ in range(requests):
        seconds.labels("shop", version).observe(1.5)
    return unpack(pack(snapshot(registry)))


def values(taken):
    families = text_string_to_metric_families(text(taken).decode())
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


def test_counters_histograms_and_lengths_add_up_and_what_is_so_is_so_once():
    found = values(merge([process(3, 2, "7"), process(4, 5, "7"), process(1, 0, "8")]))
    assert found["listwright_requests_total", "/rerank"] == 3 + 4 + 1
    assert found["listwright_waiting_requests",] == 2 + 5 + 0
    assert found["listwright_bundle_info", "7", "shop"] == 1
    assert found["listwright_bundle_info", "8", "shop"] == 1
    assert found["listwright_s_bucket", "2.0", "7", "shop"] == 3 + 4
    assert found["listwright_s_sum", "7", "shop"] == (3 + 4) * 1.5
    assert found["listwright_s_bucket", "+Inf", "8", "shop"] == 1


def test_one_process_reads_as_prometheus_client_writes_it():
    from prometheus_client import generate_latest

    registry = CollectorRegistry()
    Histogram("listwright_s", 'Time of "all"\n', ["a"], buckets=(1.0,), registry=registry).labels('q"\\\n').observe(1)
    Counter("listwright_n", "Number", registry=registry).inc()
    assert sorted(text(snapshot(registry)).splitlines()) == sorted(generate_latest(registry).splitlines())


def test_of_a_process_that_ended_only_what_it_counted_stays():
    found = values(merge([drop_gauges(process(3, 2, "7")), process(4, 5, "7")]))
    assert found["listwright_requests_total", "/rerank"] == 3 + 4
    assert found["listwright_waiting_requests",] == 5


def test_the_past_forgets_versions_that_nobody_knows_any_more():
    past = drop_gauges(process(3, 2, "7"))
    found = values(merge([drop_unserved_versions(past, process(4, 5, "8")), process(4, 5, "8")]))
    assert found["listwright_requests_total", "/rerank"] == 3 + 4
    assert ("listwright_s_sum", "7", "shop") not in found
    assert values(drop_unserved_versions(past, process(1, 0, "7")))["listwright_s_sum", "7", "shop"] == 3 * 1.5
