"""Events: what a person did with a candidate that was shown, in the words of User Behavior Insights.

The words are those of the UBI specification, version 1.3.0 (``event.schema.json`` of its repository). The service takes
such events over HTTP, and training joins them with what was served. Both validate them here, so that an event which one
accepts the other reads.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema
from pydantic.config import JsonDict

MAX_EVENTS = 1000
"""Of one request."""

MAX_ID = 512
"""Characters of the id of a query, a candidate or an event, as many as a request to rank may send."""

MAX_NAME, MAX_MESSAGE = 100, 1024
"""Characters of other texts, as UBI has them."""

MAX_FIELDS = 64
"""Fields of an event, and of each of the objects in it that are named here."""

FIRST_YEAR, LAST_YEAR = 1970, 2200

COLUMNS = {
    "event_id": "event_id",
    "query_id": "query_id",
    "action_name": "action_name",
    "client_id": "client_id",
    "timestamp": "timestamp",
    "object_id": "event_attributes.object.object_id",
    "ordinal": "event_attributes.position.ordinal",
}
"""What a join reads of an event, and the name of its column in a table of events."""


def moment(text: str) -> datetime:
    """Parse the time of an event, in UTC without a zone.

    Args:
        text: ISO 8601, a date and a time; one without a zone counts as UTC.

    Raises:
        ValueError: if it is none, or its year is not from 1970 to 2200.
    """
    try:
        time = datetime.fromisoformat(text.removesuffix(" UTC"))  # BigQuery writes it so
        if len(text) <= len("2024-05-31"):
            raise ValueError("a date alone")
        time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except (ValueError, OverflowError):
        raise ValueError(
            f"expected a time as ISO 8601 has it, such as 2024-05-31T18:30:00Z; found {text[:40]!r}"
        ) from None
    if not FIRST_YEAR <= time.year <= LAST_YEAR:
        raise ValueError(f"expected a time of the years {FIRST_YEAR} to {LAST_YEAR}; found {text[:40]!r}")
    return time


def _whole(value: Any) -> Any:
    """Convert a float without a fraction to an integer: in JSON, 3.0 is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text_of(value: Any) -> Any:
    """Convert a whole number to text: UBI allows it as the id of an object, and candidates have text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else value


def _is_small(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"has {len(value)} fields; the limit is {MAX_FIELDS}")
    return value


_OBJECT_ID: JsonDict = {"anyOf": [{"type": "string", "maxLength": MAX_ID}, {"type": "integer"}]}

Text = Annotated[str, Field(max_length=MAX_NAME)]
EventKey = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
ObjectKey = Annotated[
    str, Field(min_length=1, max_length=MAX_ID), BeforeValidator(_text_of), WithJsonSchema(_OBJECT_ID)
]
Timestamp = Annotated[
    str,
    Field(max_length=MAX_NAME),
    AfterValidator(lambda text: moment(text) and text),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

Ordinal = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]


class Ubi(BaseModel):
    """A part of an event: further fields are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class EventObject(Ubi):
    """The candidate that a person did something with."""

    object_id: Annotated[ObjectKey, Field(description="id of the candidate, as the request to rank sent it")]


class EventPosition(Ubi):
    """Where the candidate stood."""

    ordinal: Annotated[Ordinal | None, Field(description="place in the shown list, from 1")] = None


class EventAttributes(Ubi):
    """Details of an event."""

    object: Annotated[EventObject, BeforeValidator(_is_small)] | None = None
    position: Annotated[EventPosition, BeforeValidator(_is_small)] | None = None


class Event(Ubi):
    """One event, as UBI has it; ``event_id`` is added to UBI's fields."""

    action_name: Annotated[
        str, Field(min_length=1, max_length=MAX_NAME, description="what was done: click, add_to_cart, purchase ...")
    ]
    timestamp: Annotated[Timestamp, Field(description="when, ISO 8601; without a zone it counts as UTC")]
    query_id: Annotated[EventKey | None, Field(description="id of the query whose list was shown")] = None
    event_id: Annotated[
        EventKey | None, Field(description="the same for each try to send an event: a join counts it once per query")
    ] = None
    client_id: Annotated[Text | None, Field(description="browser or device, best a pseudonym")] = None
    session_id: Text | None = None
    user_id: Text | None = None
    application: Text | None = None
    message_type: Text | None = None
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] | None = None
    event_attributes: Annotated[EventAttributes, BeforeValidator(_is_small)] | None = None

    @property
    def moment(self) -> datetime:
        """Time of the event, in UTC without a zone."""
        return moment(self.timestamp)

    @property
    def object_id(self) -> str | None:
        """Id of the candidate; None where the event names none."""
        attributes = self.event_attributes
        return None if attributes is None or attributes.object is None else attributes.object.object_id

    @property
    def ordinal(self) -> int | None:
        """Place that the event names; None where it names none."""
        attributes = self.event_attributes
        return None if attributes is None or attributes.position is None else attributes.position.ordinal


_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, BeforeValidator(_is_small)])


def event_of(value: object) -> Event:
    """Validate an event of plain values, as JSON has them.

    Raises:
        ValidationError: pydantic's, with every fault and its place.
    """
    return _EVENT.validate_python(value)


def event_in(line: bytes) -> Event:
    """Parse an event from a line of JSON.

    Raises:
        ValidationError: pydantic's, also of what is no JSON.
    """
    return _EVENT.validate_json(line)
