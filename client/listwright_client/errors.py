"""The tree of errors; ``except ListwrightError`` catches all of them.

    ListwrightError
    ├── RequestError             4xx: this request will not do; kind, detail and errors say why
    ├── OverloadedError          429: too much to do, retry_after may say for how long
    ├── UnavailableError         503: no bundle is loaded, or the service is stopping
    ├── DeadlineExceededError    504, or the call's own deadline has passed
    ├── ServerError              any other 5xx, a proxy's 502 too
    ├── UnexpectedAnswerError    an answer that the contract does not know, or to another question
    └── ConnectionFailedError    no whole answer: unknown host, refused, reset, cut off

What cannot be sent at all (an infinite number, a deadline beside a timeout) is a ValueError or TypeError of Python's
own, before anything is sent.
"""

from __future__ import annotations

from dataclasses import dataclass


def printable(text: object) -> str:
    """Return a text that a terminal shows as it is: what moves its cursor or changes its letters is escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request, and where."""

    path: str
    message: str


@dataclass(frozen=True)
class Problem:
    """Details of an error: an RFC 9457 body, or as much as there was."""

    detail: str
    """Description of the error, for people."""
    status: int | None = None
    """Status of the HTTP answer; None if none came."""
    kind: str | None = None
    """Stable name, e.g. ``schema-mismatch``; None if the answer was not the service's own."""
    errors: tuple[Fault, ...] = ()
    """Every fault of the request with its JSON path."""
    request_id: str | None = None
    """Id of the request in the service's log; its own, or the one that was sent."""
    retry_after: float | None = None
    """Seconds that the service asked to wait; None if it did not."""
    expected: tuple[str, ...] = ()
    """Feature names that the bundle was fitted on, of a ``schema-mismatch``."""
    sent: tuple[str, ...] = ()
    fingerprint: str | None = None


class ListwrightError(Exception):
    """A question that got no good answer.

    Args:
        problem: Facts on the failure; its ``status``, ``kind``, ``detail``, ``errors``, ``request_id`` and
            ``retry_after`` are attributes of the error, too.
        attempts: Number of times that the request was sent.
    """

    def __init__(self, problem: Problem, attempts: int = 0) -> None:
        super().__init__(problem, attempts)
        self.problem, self.attempts = problem, attempts
        self.status, self.kind, self.detail, self.errors = problem.status, problem.kind, problem.detail, problem.errors
        self.request_id, self.retry_after = problem.request_id, problem.retry_after

    def __str__(self) -> str:
        head = " ".join(str(part) for part in (self.status, self.kind) if part is not None)
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return printable(f"{head}{': ' if head else ''}{self.detail} ({times}, request {self.request_id})")


class RequestError(ListwrightError):
    """4xx: this request will not do."""


class OverloadedError(ListwrightError):
    """429: the service has too much to do."""


class UnavailableError(ListwrightError):
    """503: no bundle is loaded, or the service is stopping."""


class DeadlineExceededError(ListwrightError):
    """504, or the call's own deadline has passed."""


class ServerError(ListwrightError):
    """Any other 5xx."""


class UnexpectedAnswerError(ListwrightError):
    """An answer that the contract does not know, or to another question."""


class ConnectionFailedError(ListwrightError):
    """No whole answer came."""
