"""Why an event does not count: each event is counted once, under the first cause that applies."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Cause(StrEnum):
    """In the order in which they are looked for."""

    CUT_OFF = "last line of a file, cut off"
    UNREADABLE = "not an event"
    NO_LABEL = "no label for the action"
    NO_QUERY = "names no query"
    NO_CANDIDATE = "names no candidate"
    DUPLICATE = "sent again"
    UNKNOWN_QUERY = "unknown query"
    BEFORE_SERVING = "before serving"
    OUTSIDE_WINDOW = "outside the window"
    REPLACED = "list served again"
    NOT_IN_LIST = "candidate not in the list"
    NOT_SHOWN = "candidate not shown"


COUNTED = "counted"
OTHER_PLACE = "counted, with another place than the shown one"
"""Part of the counted events: their ordinal differs from the position in the log."""

NO_NUMBER = "counted, without the number that is summed"
"""Part of the counted events, once for each sum."""

Counts = Counter[str]
"""Events by cause, and those of :data:`COUNTED`."""


def of_names(found: dict[str, int]) -> Counts:
    """Counts as they were written down."""
    return Counter({str(name): int(count) for name, count in found.items()})
