"""What the request path hands over, and how."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.manifest import Manifest
from listwright.service.participation import Participation

PER_CANDIDATE, PER_LIST = 100, 2000
"""Bytes that a list takes in memory beside its features: ids, scores, order; and what each list has."""


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

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory, about."""
        return self.candidates.features.nbytes + PER_CANDIDATE * len(self.candidates) + PER_LIST


@runtime_checkable
class ServedLog(Protocol):
    """Takes answered requests."""

    def note(self, taken: Taken) -> None:
        """Log a request, or drop it and count. Returns at once; from the event loop's thread."""
        ...

    def close(self) -> None:
        """Write what waits and finish the files, within a time limit."""
        ...


class Buffer:
    """Answered requests that wait, bounded in bytes. One thread puts, one takes, and neither waits for the other.

    Each of the two counts has one thread that changes it, so that there is no lock.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, deque[Taken]()
        self._put = self._got = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._put - self._got

    @property
    def crowded(self) -> bool:
        """Whether more than a quarter is in use."""
        return 4 * self.held > self._most

    def put(self, taken: Taken) -> bool:
        """Whether there was room."""
        size = taken.size
        if self.held + size > self._most:
            return False
        self._put += size
        self._waiting.append(taken)
        return True

    def take(self) -> Taken | None:
        """The oldest; None if there is none."""
        if not self._waiting:
            return None
        taken = self._waiting.popleft()
        self._got += taken.size
        return taken
