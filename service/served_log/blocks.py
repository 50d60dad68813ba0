"""Records as blocks: those that fill, and those that are to be written."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from listwright.ranking.served.encoding import Block, new_block
from listwright.ranking.served.record import Columns
from listwright.service.served_log.conversion import columns_of, to_served
from listwright.service.served_log.taken import Taken

if TYPE_CHECKING:
    from listwright.service.served_log.stream import RedisStream

BLOCK_BYTES = 2**19
"""Bytes at which a block is full: each write gives Python's lock away and takes it again."""


@dataclass(slots=True)
class PendingBlock:
    """Records of one schema.

    Args:
        fingerprint: of the schema.
        columns: of the records.
        block: their bytes.
        since: when it was begun, by ``time.monotonic``.
    """

    fingerprint: str
    columns: Columns
    block: Block
    since: float = field(default_factory=time.monotonic)


class Blocks:
    """The next block of each schema. Any thread may add records; one takes the blocks that are due.

    Args:
        salt: that units are hashed with; None keeps them as they were sent.
        stream: gets each record at once.
        kept: whether blocks are written; else the stream alone gets the records.
    """

    def __init__(self, salt: bytes | None, stream: RedisStream | None, *, kept: bool) -> None:
        self._salt, self._stream, self._kept = salt, stream, kept
        self._lock = Lock()
        self._filling: dict[str, PendingBlock] = {}
        self._full: deque[PendingBlock] = deque()
        self._spare: Block | None = None

    @property
    def full(self) -> bool:
        """Whether a block waits to be written, whatever its age."""
        return bool(self._full)

    @property
    def records(self) -> int:
        """In all blocks that nobody has taken."""
        with self._lock:
            return sum(pending.block.records for pending in (*self._full, *self._filling.values()))

    @property
    def began(self) -> float:
        """When the oldest block that fills was begun, by ``time.monotonic``; infinite if there is none."""
        with self._lock:
            return min((pending.since for pending in self._filling.values()), default=math.inf)

    def add(self, taken: Taken) -> None:
        """Encode a record behind the others of its schema, or nothing of it.

        Raises:
            UnicodeEncodeError: if a text has a lone surrogate.
            TypeError, ValueError: if a text is none.
        """
        fingerprint = taken.manifest.fingerprint
        with self._lock:
            pending = self._filling.get(fingerprint)
            if pending is None:
                block, self._spare = self._spare or new_block(), None
                pending = self._filling[fingerprint] = PendingBlock(fingerprint, columns_of(taken.manifest), block)
            pending.block.add(to_served(taken, self._salt))
            if self._stream is not None:
                self._stream.put(pending.columns, pending.block.last())
            if not self._kept:
                pending.block.clear()
            elif pending.block.size >= BLOCK_BYTES:
                self._full.append(self._filling.pop(fingerprint))

    def take(self, begun_by: float) -> PendingBlock | None:
        """A full block, or one that was begun by a time; the caller's until it is :meth:`done`. None if none is due."""
        with self._lock:
            if self._full:
                return self._full.popleft()
            for fingerprint, pending in list(self._filling.items()):
                if pending.since <= begun_by:
                    del self._filling[fingerprint]
                    if pending.block.records:
                        return pending
            return None

    def done(self, pending: PendingBlock) -> None:
        """Have the room of a block used for a next one."""
        with self._lock:
            pending.block.clear()
            self._spare = pending.block
