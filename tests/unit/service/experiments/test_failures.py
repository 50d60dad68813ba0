"""Failures in a row, by several threads, and what is logged of them."""

from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry

from listwright.service.experiments.experiment_file import Definition
from listwright.service.experiments.roster import Entry, ExperimentMetrics, Failures
from support.stand_ins import standing_in


def entry(most, name="first"):
    one = Definition(name=name, kind="split", control="shop", challenger="next", max_failures=most)
    return standing_in(Entry, definition=one)


def failures():
    registry = CollectorRegistry()
    return Failures(ExperimentMetrics(registry)), registry


def test_a_row_ends_an_experiment_and_another_file_forgives(caplog):
    found, registry = failures()
    for _ in range(2):
        found.note_failure(entry(3), "boom")
    found.note_success("first")
    for _ in range(2):
        found.note_failure(entry(3), "boom")
    assert found.reason_off("first") is None
    found.note_failure(entry(3), "at last")
    assert "3 times" in found.reason_off("first")
    assert "at last" in found.reason_off("first")
    assert found.reason_off("second") is None
    found.note_failure(entry(3), "late")
    assert "at last" in found.reason_off("first"), "what ended it stays"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "ERROR"]
    assert registry.get_sample_value("listwright_experiment_failures_total", {"experiment": "first"}) == 6
    found.forget()
    assert found.reason_off("first") is None
    found.note_failure(entry(3), "again")
    assert found.reason_off("first") is None


def test_threads_lose_no_failure():
    found, _ = failures()
    one = entry(801)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [found.note_failure(one, "boom") for _ in range(100)], range(8)))
    assert found.reason_off("first") is None
    found.note_failure(one, "boom")
    assert "801" in found.reason_off("first")
