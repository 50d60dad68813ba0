"""Variables of worker processes: they have them, and their parent goes on without."""

import os

import pytest

from listwright.training.cluster import KEPT_PAGES, ONE_THREAD, pool

NAMES = (*ONE_THREAD, *KEPT_PAGES)


def seen():
    return {name: os.environ.get(name) for name in NAMES}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_worker_has_one_thread_and_its_parent_what_it_had(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with pool(1) as workers:
        assert workers.submit(seen).result() == ONE_THREAD | KEPT_PAGES
        assert seen() == dict.fromkeys(NAMES) | {"OMP_NUM_THREADS": "7"}


def test_an_operators_own_allocator_stays(monkeypatch):
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "narenas:1")
    with pool(1) as workers:
        assert workers.submit(seen).result()["_RJEM_MALLOC_CONF"] == "narenas:1"
