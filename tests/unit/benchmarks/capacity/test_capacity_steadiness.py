"""A load counts if the machine was as fast after it as before; else it is played again."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.capacity import rounds
from benchmarks.capacity.measure import TRIES
from benchmarks.capacity.replicas import Seen
from benchmarks.capacity.rounds import STEADY, Comparison


class Machine:
    """In a generator's place: replicas whose lists take these CPU times, one after the other."""

    def __init__(self, *cpu_s):
        self._cpu_s, self.played = iter(cpu_s), []

    def callers(self, _port, _count, _seconds, watched):
        answers, cpu_s = np.full(10, 0.001), next(self._cpu_s)
        return Seen(answers, 0, 0, 1.0, (10 * cpu_s / len(watched),) * len(watched), 0.0)

    def at(self, _port, due, _watched):
        self.played.append(due)
        return Seen(np.full(len(due), 0.001), 0, 0, float(due[-1]), (), 0.0)


def run(machine, replicas=1, beside_s=0.0):
    started = [SimpleNamespace(process=None)] * replicas
    return rounds._run(machine, 1, started, Comparison(replicas, None, "poisson", 0.5), beside_s, 3, 10.0)


def test_a_load_of_a_steady_machine_is_played_once():
    machine = Machine(0.010, 0.0105)
    found = run(machine)
    assert len(machine.played) == 1
    assert found.cpu_s == pytest.approx(0.01025)
    assert found.change == pytest.approx(0.05)


def test_a_load_is_a_share_of_what_the_machine_can_do_just_before():
    machine = Machine(0.010, 0.008, 0.008)
    found = run(machine, replicas=2, beside_s=0.002)
    assert [len(due) for due in machine.played] == [833, 1000]
    assert found.due is machine.played[1]
    assert found.change == 0.0


@pytest.mark.parametrize("faster", [1.0 + 1.1 * STEADY, 1.0 - 1.1 * STEADY])
def test_where_it_is_never_steady_the_steadiest_counts(faster):
    machine = Machine(0.010, 0.020, 0.020 * faster, 0.080)
    found = run(machine)
    assert len(machine.played) == TRIES
    assert found.due is machine.played[1]
    assert found.change == pytest.approx(faster - 1.0)
