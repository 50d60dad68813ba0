"""The outcome of sending a request once: a reply or a failure."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

MOST_BYTES, MOST_BYTES_OF_CANDIDATE, MOST_BYTES_OF_REFUSAL = 8 * 2**20, 2048, 2**20
"""Bytes that are read of an answer, those added for each candidate that was sent, and those of one that is not 200."""


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: httpx.Headers
    content: bytes

    def check(self, most_bytes: int) -> None:
        """Raise ValueError if the answer is compressed, which was not asked for, or larger than so many bytes."""
        if self.headers.get("content-encoding", "identity") != "identity":
            raise ValueError("it is compressed, although no compression was accepted")
        if len(self.content) > most_bytes:
            raise ValueError(f"it has more than {most_bytes} bytes")

    def is_to(self, request_id: str) -> bool:
        """Return whether this answers a request, by its id.

        Convention: True where a proxy dropped the header, or added another id, on a line of its own or after a comma.
        """
        request_ids = self.headers.get_list("x-request-id")
        return not request_ids or request_id in (
            *request_ids,
            *self.headers.get_list("x-request-id", split_commas=True),
        )


@dataclass(frozen=True)
class Failure:
    """No whole answer."""

    error: Exception
    answered: bool
    """Whether an answer had begun."""

    @property
    def too_late(self) -> bool:
        """Whether time ran out: every limit of an attempt is what was left of its call."""
        return isinstance(self.error, (httpx.TimeoutException, TimeoutError))

    @property
    def may_repeat(self) -> bool:
        """Whether the connection broke, before the answer or in the middle of it: asking twice is safe."""
        return isinstance(self.error, (httpx.NetworkError, httpx.RemoteProtocolError))
