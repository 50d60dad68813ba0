"""Encoded records on their way from the thread that answers to the one that writes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from listwright.ranking.served.encoding import Encoded
from listwright.ranking.served.record import Columns


class Waiting(NamedTuple):
    """A record that waits to be written.

    Args:
        fingerprint: of its feature schema.
        columns: of that schema.
        record: its bytes.
    """

    fingerprint: str
    columns: Columns
    record: Encoded


class Buffer:
    """Records that wait, bounded in bytes. One thread puts, one takes, and neither waits for the other.

    Each of the two counts has one thread that changes it, so that there is no lock.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, deque[Waiting]()
        self._put = self._got = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._put - self._got

    def put(self, one: Waiting) -> bool:
        """Whether there was room."""
        if self.held + one.record.size > self._most:
            return False
        self._put += one.record.size
        self._waiting.append(one)
        return True

    def take(self) -> Waiting | None:
        """The oldest; None if there is none."""
        if not self._waiting:
            return None
        one = self._waiting.popleft()
        self._got += one.record.size
        return one
