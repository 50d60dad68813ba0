"""Whatever bytes arrive at ``POST /ubi/events``: a documented refusal, or lines that the join reads as they were sent."""

import json

from fastapi.exceptions import RequestValidationError
from hypothesis import example, given
from hypothesis import strategies as st

from listwright.ranking.served_log.events import event_in
from listwright.service.events import lines_of
from listwright.service.problems import STATUS

REFUSALS = (RequestValidationError, *STATUS)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
TIMES = st.datetimes().map(lambda time: time.isoformat() + "Z")
IDS = st.text(min_size=1, max_size=20) | st.integers(-(2**63), 2**64)
EVENTS = st.fixed_dictionaries(
    {"action_name": st.text(min_size=1, max_size=10) | JSON, "timestamp": TIMES | JSON},
    optional={
        "query_id": st.text(max_size=20) | JSON,
        "event_id": st.text(max_size=20),
        "client_id": st.text(max_size=20),
        "event_attributes": st.fixed_dictionaries(
            {}, optional={"object": st.fixed_dictionaries({"object_id": IDS | JSON}), "position": JSON, "more": JSON}
        ),
        "more": JSON,
    },
)
BODIES = st.binary(max_size=200) | (JSON | EVENTS | st.lists(EVENTS, max_size=4)).map(
    lambda value: json.dumps(value).encode()
)


@given(BODIES)
@example(b'{"action_name": "\\ud800", "timestamp": "2026-11-25T12:00:00Z"}')
@example(b'{"action_name": "a", "timestamp": "2026-11-25T12:00:00Z", "action_name": "b"}')
@example(b'{"action_name": "a\\nb", "timestamp": "2026-11-25T12:00:00Z", "more": "\\u2028\\u0000"}')
@example(b'{"action_name": "a", "timestamp": "2026-11-25T12:00:00Z", "more": 1' + b"0" * 5000 + b"}")
def test_a_body_is_refused_or_read_again(body):
    try:
        lines = lines_of(body)
    except REFUSALS:
        return
    sent = json.loads(body)
    events = sent if isinstance(sent, list) else [sent]
    for line, event in zip(lines, events, strict=True):
        assert line.index(b"\n") == len(line) - 1
        found = event_in(line)
        assert found.action_name == event["action_name"]
        assert found.query_id == event.get("query_id")
        assert found.moment
