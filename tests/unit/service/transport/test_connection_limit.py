"""Who is counted, told, logged and let go beyond the most connections: no socket."""

import logging
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.transport import connection_limit
from listwright.service.transport.connection import GRACE_S
from listwright.service.transport.connection_limit import (
    FILES,
    IDLE_S,
    LOG_S,
    OUTSIDE,
    PATIENCE_S,
    ConnectionLimit,
    OpenFilesError,
    fit_into_open_files,
    room_outside,
)
from support.service.connections import Loop, connect
from support.stand_ins import Clock

REQUEST = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
"""Not complete: a connection that has sent it is not idle."""


@pytest.fixture
def telemetry():
    return Telemetry()


def newcomers(limit, count, patience_s=60.0):
    """Connections that have just been made."""
    return [connect(lambda scope: None, limit=limit, loop=Loop(), patience_s=patience_s) for _ in range(count)]


def test_there_are_never_more_than_the_limit_and_those_on_their_way_out(telemetry):
    limit = ConnectionLimit(3, telemetry)
    made = newcomers(limit, 3 + OUTSIDE + 5)
    ended = [connection.transport.ended for connection in made]
    assert ended == [None] * 3 + ["aborted"] * 5 + [None] * OUTSIDE, "those that were silent for longest"
    for connection in made[3:8]:
        connection.connection_lost(None)
    assert (limit.inside, limit.outside, limit.present) == (3, OUTSIDE, 3 + OUTSIDE)
    assert telemetry.excess_connections._value.get() == OUTSIDE + 5


def test_who_has_begun_to_ask_stays_and_newcomers_go_where_all_have(telemetry):
    """A probe that comes among silent connections is answered."""
    limit = ConnectionLimit(1, telemetry)
    made = newcomers(limit, 1 + OUTSIDE)
    made[1].data_received(REQUEST)
    newcomers(limit, OUTSIDE - 1)
    assert made[1].transport.ended is None
    for connection in limit._outside:
        connection.data_received(REQUEST)
    (late,) = newcomers(limit, 1)
    assert late.transport.ended == "aborted"
    assert limit.outside == OUTSIDE


def test_room_is_for_those_inside_only(telemetry):
    """A newcomer that was refused and lingers takes nobody's place, and makes none when it goes."""
    limit = ConnectionLimit(2, telemetry)
    inside, refused = newcomers(limit, 2), newcomers(limit, 1)
    inside[0].connection_lost(None)
    newcomers(limit, 1)
    assert (limit.inside, limit.outside) == (2, 1)
    refused[0].connection_lost(None)
    assert (limit.inside, limit.outside) == (2, 0)
    newcomers(limit, 1)
    assert (limit.inside, limit.outside) == (2, 1)


def test_a_newcomer_takes_the_place_of_the_one_that_is_idle_longest(telemetry):
    clock = Clock()
    limit = ConnectionLimit(3, telemetry, clock)
    busy, first, second = newcomers(limit, 3)
    busy.data_received(REQUEST)
    clock.now += IDLE_S
    newcomers(limit, 1)
    assert [c.transport.ended for c in (busy, first, second)] == [None, "closed", None]
    assert (limit.inside, limit.outside) == (3, 0)
    first.connection_lost(None)
    assert limit.inside == 3, "it left its place already"
    assert telemetry.evicted_connections._value.get() == 1


def test_nobody_is_closed_whose_answer_has_yet_to_leave(telemetry):
    clock = Clock()
    limit = ConnectionLimit(2, telemetry, clock)
    sending, idle = newcomers(limit, 2)
    sending.transport.unsent = 1000
    clock.now += IDLE_S
    newcomers(limit, 2)
    assert [c.transport.ended for c in (sending, idle)] == [None, "closed"]
    assert (limit.inside, limit.outside) == (2, 1)


def test_nobody_is_closed_who_was_busy_a_moment_ago(telemetry):
    clock = Clock()
    limit = ConnectionLimit(1, telemetry, clock)
    (inside,) = newcomers(limit, 1)
    clock.now += IDLE_S - 0.01
    newcomers(limit, 1)
    assert inside.transport.ended is None
    assert (limit.inside, limit.outside) == (1, 1)


def test_who_has_begun_to_ask_is_not_idle(telemetry):
    clock = Clock()
    limit = ConnectionLimit(1, telemetry, clock)
    (inside,) = newcomers(limit, 1)
    inside.data_received(REQUEST)
    clock.now += 100.0
    newcomers(limit, 1)
    assert inside.transport.ended is None


@pytest.mark.parametrize(("patience_s", "given_s"), [(60.0, PATIENCE_S), (0.1, 0.1)])
def test_who_is_refused_has_less_time(telemetry, patience_s, given_s):
    inside, refused = newcomers(ConnectionLimit(1, telemetry), 2, patience_s)
    assert [timer.seconds for timer in inside._loop.running] == [75.0 + GRACE_S]
    assert [timer.seconds for timer in refused._loop.running] == [given_s]
    refused.data_received(REQUEST)
    assert [timer.seconds for timer in refused._loop.running] == [given_s]


def test_they_are_logged_now_and_then(telemetry, caplog):
    clock = Clock()
    limit = ConnectionLimit(1, telemetry, clock)
    with caplog.at_level(logging.WARNING, "listwright.connections"):
        newcomers(limit, 1)[0].data_received(REQUEST)
        newcomers(limit, 4)
        clock.now += LOG_S
        newcomers(limit, 1)
    assert [record.facts["excess"] for record in caplog.records] == [1, 4]


class OpenFiles:
    """The system's limit of open files, as ``resource`` has it."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY

    def __init__(self, soft, hard, most=2**40):
        self.soft, self.hard, self._most = soft, hard, most

    def getrlimit(self, _):
        return self.soft, self.hard

    def setrlimit(self, _, limits):
        soft, hard = limits
        assert hard == self.hard
        if (self.hard != self.RLIM_INFINITY and soft > self.hard) or soft > self._most:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = soft


def fitted(files, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_limit, "resource", files)
        found = fit_into_open_files(Settings(bundle="x", **settings)).max_connections
        return found, files.soft, room_outside(found)


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "workers", "expected"),
    [
        (8192, 2**20, 800, 1, (800, 8192, 100)),
        (1024, 1024, 800, 1, (800, 1024, 100)),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 800, 1, (800, resource.RLIM_INFINITY, 100)),
        (256, 4096, 800, 1, (800, 3012, 100)),
        (256, 1000, 800, 1, (800, 1000, 100)),
        (256, resource.RLIM_INFINITY, 5000, 1, (5000, 7212, 100)),
        (256, 512, 800, 1, (348, 512, 100)),
        (100, 100, 800, 1, (27, 100, 9)),
        (100, 100, 10, 1, (10, 100, 26)),
        (256, 4096, 100, 64, (100, 2624, 100)),
    ],
)
def test_connections_fit_into_the_open_files(soft, hard, asked, workers, expected, caplog):
    """The soft limit is raised no further than is needed, and the setting is lowered only where the hard one is short."""
    caplog.set_level(logging.INFO)
    assert fitted(OpenFiles(soft, hard), max_connections=asked, workers=workers) == expected
    lowered = [record.args for record in caplog.records if record.levelname == "WARNING"]
    assert [args[1:3] for args in lowered] == ([] if expected[0] == asked else [(asked, expected[0])])


def test_each_of_two_ports_has_as_many_connections():
    assert fitted(OpenFiles(256, 4096), max_connections=800, grpc_port=0)[:2] == (800, 3812)
    assert fitted(OpenFiles(1024, 1024), max_connections=800, grpc_port=0)[0] == 430


def test_a_system_may_allow_less_than_its_hard_limit_says():
    """As macOS does."""
    files = OpenFiles(256, resource.RLIM_INFINITY, most=300)
    assert fitted(files, max_connections=800) == (144, 256, 48)


@pytest.mark.parametrize(("limit", "workers"), [(64, 1), (70, 1), (512, 100)])
def test_too_few_open_files_are_an_error(limit, workers):
    with pytest.raises(OpenFilesError, match=str(limit)):
        fitted(OpenFiles(limit, limit), workers=workers)


@given(
    soft=st.integers(72, 5000),
    more=st.integers(0, 5000),
    asked=st.integers(1, 6000),
    workers=st.sampled_from([1, 2, 16]),
)
def test_a_process_never_needs_more_files_than_it_may_have(soft, more, asked, workers):
    try:
        most, limit, outside = fitted(OpenFiles(soft, soft + more), max_connections=asked, workers=workers)
    except OpenFilesError:
        assert soft + more < FILES + 8 * max(1, workers)
        return
    assert FILES + most + outside <= limit <= soft + more
    assert 1 <= most <= asked
    assert most == asked or limit == soft + more
