"""The Redis stream: served records for consumers that want them at once."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis

from listwright.ranking.served_log.encoding import SYNC_BYTES, frame_block, header
from listwright.ranking.served_log.record import Columns
from listwright.service.served_log.entry import Drops
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry

STREAM = "listwright:served"
"""The stream's key where the address names none."""

MOST_BYTES = 32 * 2**20
"""Bytes of records that may wait to be sent."""

BATCH = 64
"""Records of one exchange with the server."""

ANSWER_S = 2.0
"""Seconds that the server may take to answer."""

PAUSES_S = (0.25, 1.0, 5.0, 15.0)
"""Seconds before the next attempts to reach the server; the last pause repeats."""

POLL_S = 0.05

_log = logging.getLogger("listwright.served")


class _Waiting(NamedTuple):
    """A record that waits to be sent."""

    columns: Columns
    record: bytes


def address(url: str) -> tuple[str, str]:
    """Return the server's address, and the key of the stream, which the query of the URL names as ``stream``."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    stream = query.pop("stream", STREAM)
    return urlunsplit(parts._replace(query=urlencode(query))), stream


class RedisStream:
    """Redis stream that gets records from a thread of its own.

    An entry has one field, ``avro``: a container file of one record. A batch whose answer is lost is
    sent again: consumers may see a record twice, and know it by its query id.

    Args:
        settings: Settings of the service.
        telemetry: Metrics that count records and bytes.
        drops: Counts of dropped records.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, drops: Drops) -> None:
        assert settings.served_stream is not None
        url, self._key = address(settings.served_stream.get_secret_value())
        self._client: Any = redis.Redis.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
        self._length = settings.served_stream_length
        self._records, self._bytes = telemetry.log_records.labels("stream"), telemetry.log_bytes.labels("stream")
        self._drops = drops
        self._waiting: deque[_Waiting] = deque()
        self._put = self._got = self._failures = 0
        self._sync = os.urandom(SYNC_BYTES)
        self._header: tuple[Columns | None, bytes] = (None, b"")
        self._stop = Event()
        self._thread = Thread(target=self._run, name="served-stream", daemon=True)
        self._thread.start()

    def put(self, columns: Columns, record: bytes) -> None:
        """Queue a record, or drop it and count; from one thread."""
        if self._put - self._got + len(record) > MOST_BYTES:
            self._drops.note("stream_full", 1, "the buffer of the Redis stream is full: is the server reachable?")
            return
        self._put += len(record)
        self._waiting.append(_Waiting(columns, record))

    def close(self, within_s: float) -> None:
        """Send the waiting records; those not sent in time are dropped and counted."""
        self._stop.set()
        self._thread.join(within_s)
        self._drops.note("closing", len(self._waiting), "the Redis stream did not take them before the end")

    def _run(self) -> None:
        while not (self._stop.is_set() and (not self._waiting or self._failures)):
            if not self._waiting:
                self._stop.wait(POLL_S)
                continue
            batch = [self._waiting[place] for place in range(min(BATCH, len(self._waiting)))]
            if self._send(batch):
                for waiting in batch:
                    self._waiting.popleft()
                    self._got += len(waiting.record)

    def _send(self, batch: list[_Waiting]) -> bool:
        """Send a batch; return whether it is done: accepted, or refused for good."""
        try:
            pipeline = self._client.pipeline(transaction=False)
            entries = [self._entry(waiting) for waiting in batch]
            for entry in entries:
                pipeline.xadd(self._key, {"avro": entry}, maxlen=self._length, approximate=True)
            answers = pipeline.execute(raise_on_error=False)
        except (redis.RedisError, OSError) as error:  # also of a server that is none, or has no such database
            self._pause(error)
            return False
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        if refused:
            self._drops.note("stream_refused", len(refused), f"the Redis server refused them: {refused[0]}")
        self._failures = 0
        self._records.inc(len(batch) - len(refused))
        answered = zip(entries, answers, strict=True)
        self._bytes.inc(sum(len(entry) for entry, answer in answered if not isinstance(answer, Exception)))
        return True

    def _pause(self, error: Exception) -> None:
        pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        if self._failures in (0, len(PAUSES_S)):
            _log.warning("the Redis stream cannot be reached: %s; tried again in %g s", error, pause_s)
        self._failures += 1
        until = time.monotonic() + pause_s
        while time.monotonic() < until and not self._stop.is_set():
            self._stop.wait(until - time.monotonic())

    def _entry(self, waiting: _Waiting) -> bytes:
        if self._header[0] is not waiting.columns:
            self._header = (waiting.columns, header(waiting.columns, self._sync))
        return b"".join([self._header[1], *frame_block(1, waiting.record, self._sync)])
