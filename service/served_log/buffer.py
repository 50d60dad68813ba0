"""Answered requests on their way from the thread that answers to the one that writes."""

from __future__ import annotations

from collections import deque

from listwright.service.served_log.taken import Taken

CANDIDATE_BYTES = 80
"""Of a candidate's scores and place, and of what Python adds to its id."""


def size_of(taken: Taken) -> int:
    """Bytes that a request holds while it waits, about."""
    features, ids = taken.candidates.features, taken.candidates.ids
    return features.nbytes + CANDIDATE_BYTES * len(features) + (0 if ids is None else sum(map(len, ids)))


class Buffer:
    """Requests that wait, bounded in bytes. One thread puts, one takes, and neither waits for the other.

    Each of the two counts has one thread that changes it, so that there is no lock.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, deque[tuple[int, Taken]]()
        self._put = self._got = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._put - self._got

    def put(self, one: Taken) -> bool:
        """Whether there was room."""
        size = size_of(one)
        if self._put - self._got + size > self._most:
            return False
        self._put += size
        self._waiting.append((size, one))
        return True

    def take(self) -> Taken | None:
        """The oldest; None if there is none."""
        if not self._waiting:
            return None
        size, one = self._waiting.popleft()
        self._got += size
        return one
