"""Events for tests, on the records of :mod:`support.served`."""

import json
from datetime import timedelta

from support.served import NOON


def event(number=0, place=0, *, action="click", after_s=1.0, **changes):
    """On the candidate that the request of record ``number`` had at ``place``, so long after it was served."""
    at = NOON + timedelta(seconds=number + after_s)
    return {
        "query_id": f"query-{number}",
        "action_name": action,
        "client_id": f"client-{number}",
        "timestamp": at.isoformat(),
        "event_attributes": {"object": {"object_id": f"sku-{number}-{place}"}},
        **changes,
    }


def write_events(path, events):
    """As JSON lines."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path
