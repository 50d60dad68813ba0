"""Events: what is one, and what of it a join reads."""

from datetime import datetime

import pytest
from pydantic import ValidationError

from listwright.ranking.served_log.events import MAX_FIELDS, event_in, event_of, moment

CLICK = {
    "action_name": "click",
    "timestamp": "2026-11-25T12:00:00Z",
    "query_id": "q-1",
    "event_attributes": {"object": {"object_id": "sku-1"}, "position": {"ordinal": 3}},
}


def test_what_a_join_reads():
    event = event_of(CLICK | {"event_id": "e", "client_id": "c", "more": [1]})
    assert (event.query_id, event.object_id, event.ordinal, event.event_id) == ("q-1", "sku-1", 3, "e")
    assert event.moment == datetime(2026, 11, 25, 12)


def test_ubi_asks_for_an_action_and_a_time_only():
    event = event_of({"action_name": "view", "timestamp": "2026-11-25T12:00:00Z"})
    assert (event.query_id, event.object_id, event.ordinal) == (None, None, None)


def test_an_object_may_have_a_whole_number_as_its_id():
    event = event_of(CLICK | {"event_attributes": {"object": {"object_id": 17}}})
    assert event.object_id == "17"


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-11-25T12:00:00Z", 12),
        ("2026-11-25T12:00:00", 12),
        ("2026-11-25 12:00:00 UTC", 12),
        ("2026-11-25 12:00:00.123456", 12),
        ("2026-11-25T12:00:00+02:00", 10),
        ("2026-11-25T12:00:00.5-01:30", 13),
    ],
)
def test_times_are_in_utc(text, hour):
    assert moment(text).hour == hour
    assert moment(text).tzinfo is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-25",
        "1764072000",
        "2026-13-25T12:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-10:00",
    ],
)
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match="expected a time"):
        moment(text)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"action_name": None}, ("action_name",)),
        ({"action_name": ""}, ("action_name",)),
        ({"action_name": "x" * 101}, ("action_name",)),
        ({"timestamp": "yesterday"}, ("timestamp",)),
        ({"timestamp": 1764072000}, ("timestamp",)),
        ({"query_id": 5}, ("query_id",)),
        ({"query_id": "x" * 513}, ("query_id",)),
        ({"event_attributes": []}, ("event_attributes",)),
        ({"event_attributes": {"object": {}}}, ("event_attributes", "object", "object_id")),
        ({"event_attributes": {"object": {"object_id": True}}}, ("event_attributes", "object", "object_id")),
        ({"event_attributes": {"position": {"ordinal": -1}}}, ("event_attributes", "position", "ordinal")),
        ({"event_attributes": {"position": {"ordinal": 1.5}}}, ("event_attributes", "position", "ordinal")),
        ({f"f{n}": n for n in range(MAX_FIELDS)}, ()),
    ],
)
def test_a_fault_has_its_place(change, place):
    with pytest.raises(ValidationError) as caught:
        event_of(CLICK | change)
    assert [fault["loc"] for fault in caught.value.errors()] == [place]


def test_a_line_that_is_no_json():
    with pytest.raises(ValidationError):
        event_in(b'{"action_name": "cl')
