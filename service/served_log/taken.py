"""What the request path hands over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.manifest import Manifest
from listwright.service.participation import Participation


class Taken(NamedTuple):
    """An answered request; nothing of it is copied, and nobody changes it.

    Args:
        query_id: what events name it by.
        request_id: of the HTTP request.
        unit: as it was sent.
        top_n: as it was asked for.
        candidates: as they were ranked.
        ranking: as it was answered.
        manifest: of the bundle.
        milliseconds: by step.
        at: when it was answered, seconds since 1970.
        part: in an experiment; None: in none.
    """

    query_id: str
    request_id: str
    unit: str | None
    top_n: int | None
    candidates: CandidateList
    ranking: Ranking
    manifest: Manifest
    milliseconds: Mapping[str, float]
    at: float
    part: Participation | None = None


@runtime_checkable
class ServedLog(Protocol):
    """Takes answered requests."""

    def note(self, taken: Taken) -> None:
        """Log a request, or drop it and count. Returns at once; from the event loop's thread."""
        ...

    def close(self) -> None:
        """Write what waits and finish the files, within a time limit."""
        ...
