"""Which cores servers and generator get."""

import os
import subprocess
import sys

import pytest

from benchmarks.rivals import cores

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system keeps nobody to cores")


def test_the_generator_has_the_last_core_to_itself(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 0, 5})
    found = cores.divided()
    assert (found.servers, found.generator, found.workers, found.apart) == ({0, 2}, {5}, 2, True)
    both = cores.shared()
    assert (both.servers, both.workers, both.apart) == (both.generator, 3, False)


def test_one_core_is_not_divided(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4})
    with pytest.raises(cores.IndivisibleError, match="only one core"):
        cores.divided()


def test_a_system_that_keeps_nobody_to_cores_says_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(cores.IndivisibleError, match="does not keep processes to cores"):
        cores.divided()
    with cores.on(cores.shared().servers):
        pass


def test_what_is_started_meanwhile_stays_there_and_what_started_it_does_not():
    own = os.sched_getaffinity(0)
    one = frozenset({max(own)})
    with cores.on(one):
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"], capture_output=True, check=True
        )
    assert child.stdout.split() == [str(max(own)).encode()]
    assert os.sched_getaffinity(0) == own
