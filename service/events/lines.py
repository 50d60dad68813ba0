"""The body of a request as lines of the log: one line of JSON for each event."""

from __future__ import annotations

from codecs import BOM_UTF8
from datetime import UTC, datetime
from typing import NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from listwright.ranking.served.events import MAX_EVENTS, event_of
from listwright.service.errors import TooLargeError, UndecodableBodyError, why_no_json

MAX_LINE_BYTES = 16 * 2**10
"""Of one event: UBI lets it hold what it likes."""

MAX_FAULTY = 20
"""Events of a body whose faults are told."""


class Lines(NamedTuple):
    """What a body adds to the log.

    Args:
        events: how many there are.
        text: a line for each, all of them whole.
    """

    events: int
    text: bytes


def lines_of(body: bytes, now: datetime | None = None) -> Lines:
    """The lines of one event, or of an array of events; all that was sent stands in them, and ``received_at``.

    Args:
        body: JSON.
        now: when it was received; by default now.

    Raises:
        UndecodableBodyError: if it is no JSON, or neither an object nor an array.
        TooLargeError: if there are more than :data:`MAX_EVENTS` events, or one is too long.
        RequestValidationError: if an event is not one; with the path of each fault.
    """
    body = body.removeprefix(BOM_UTF8)
    try:
        sent = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UndecodableBodyError(f"the body is not JSON: {why_no_json(body, error)}") from error
    if not isinstance(sent, dict | list):
        raise UndecodableBodyError("expected one event, an object, or an array of events")
    events = sent if isinstance(sent, list) else [sent]
    if len(events) > MAX_EVENTS:
        raise TooLargeError(f"{len(events)} events; the limit is {MAX_EVENTS}: send them in several requests")
    _check(events, several=isinstance(sent, list))
    received_at = (now or datetime.now(UTC)).isoformat(timespec="microseconds")
    written = [to_json({**event, "received_at": received_at}) for event in events]
    for number, line in enumerate(written):
        if len(line) > MAX_LINE_BYTES:
            path = (number,) if isinstance(sent, list) else ()
            raise TooLargeError(f"the event has {len(line)} bytes; the limit is {MAX_LINE_BYTES}", path)
    return Lines(len(events), b"".join(line + b"\n" for line in written))


def _check(events: list[object], *, several: bool) -> None:
    faults = []
    faulty = 0
    for number, event in enumerate(events):
        try:
            event_of(event)
        except ValidationError as error:
            faulty += 1
            place = ("body", number) if several else ("body",)
            found = error.errors(include_url=False, include_context=False, include_input=False)
            faults += [{**fault, "loc": (*place, *fault["loc"])} for fault in found]
            if faulty == MAX_FAULTY:
                break
    if faults:
        raise RequestValidationError(faults)
