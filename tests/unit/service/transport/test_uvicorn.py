"""What our connection and server take of uvicorn that it calls its own: another version may name it otherwise."""

import inspect

import pytest
from uvicorn import Server
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from listwright.service.transport.connection import Connection
from listwright.service.transport.request_parser import RequestParser
from listwright.service.transport.server import DrainingServer
from listwright.service.transport.unsent_answers import UnsentAnswers

OURS = {"parse", "request_begins", "request_ends", "body_dropped", "owes_an_answer", "cut", "on_chunk_header"}
"""Methods that uvicorn does not have; the last is httptools'."""


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (RequestParser, HttpToolsProtocol),
        (UnsentAnswers, RequestParser),
        (Connection, UnsentAnswers),
        (DrainingServer, Server),
    ],
)
def test_what_is_overridden_is_there(cls, base):
    methods = {name for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert methods - OURS <= set(dir(base))


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (HttpToolsProtocol, ["_start_asgi_task", "_unset_keepalive_if_required", "pipeline", "cycle", "flow", "tasks"]),
        (RequestResponseCycle, ["disconnected", "message_event", "waiting_for_100_continue", "response_complete"]),
        (FlowControl, ["resume_reading", "write_paused"]),
    ],
)
def test_what_is_used_is_there(cls, names):
    source = inspect.getsource(cls)
    assert [name for name in names if f"self.{name}" not in source and f"def {name}(" not in source] == []
