"""Who is counted, told and logged beyond the most connections: no socket."""

import logging

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from service.connection import Connection
from service.crowd import LOG_S, OUTSIDE, PATIENCE_S, Crowd
from service.telemetry import Telemetry
from unit.service.test_patience import Loop, Transport


@pytest.fixture
def telemetry():
    return Telemetry()


def newcomers(crowd, count, patience_s=60.0):
    """Connections that have just been made."""
    config = Config(app=lambda scope: None, log_config=None)
    config.load()
    made = []
    for _ in range(count):
        arguments = {"config": config, "server_state": ServerState(), "app_state": {}, "_loop": Loop()}
        made.append(Connection(**arguments, patience_s=patience_s, crowd=crowd))
        made[-1].connection_made(Transport())
    return made


def test_there_are_never_more_than_the_limit_and_those_on_their_way_out(telemetry):
    crowd = Crowd(3, telemetry)
    made = newcomers(crowd, 3 + OUTSIDE + 5)
    ended = [connection.transport.ended for connection in made]
    assert ended == [None] * (3 + OUTSIDE) + ["aborted"] * 5
    for connection in made[-5:]:
        connection.connection_lost(None)
    assert (crowd.inside, crowd.outside, crowd.present) == (3, OUTSIDE, 3 + OUTSIDE)
    assert telemetry.excess_connections._value.get() == OUTSIDE + 5


def test_room_is_for_those_inside_only(telemetry):
    """A newcomer that was refused and lingers takes nobody's place, and makes none when it goes."""
    crowd = Crowd(2, telemetry)
    inside, refused = newcomers(crowd, 2), newcomers(crowd, 1)
    inside[0].connection_lost(None)
    newcomers(crowd, 1)
    assert (crowd.inside, crowd.outside) == (2, 1)
    refused[0].connection_lost(None)
    assert (crowd.inside, crowd.outside) == (2, 0)
    newcomers(crowd, 1)
    assert (crowd.inside, crowd.outside) == (2, 1)


@pytest.mark.parametrize(("patience_s", "given_s"), [(60.0, PATIENCE_S), (0.1, 0.1)])
def test_who_is_refused_has_less_time(telemetry, patience_s, given_s):
    inside, refused = newcomers(Crowd(1, telemetry), 2, patience_s)
    assert [timer.seconds for timer in inside.loop.timers] == [patience_s]
    assert [timer.seconds for timer in refused.loop.timers] == [given_s]


def test_they_are_logged_now_and_then(telemetry, caplog):
    now = 100.0
    crowd = Crowd(1, telemetry, clock=lambda: now)
    with caplog.at_level(logging.WARNING, "listwright.connections"):
        newcomers(crowd, 5)
        now += LOG_S
        newcomers(crowd, 1)
    assert [record.facts["excess"] for record in caplog.records] == [1, 4]
