"""One question with its attempts, without input or output: a client of either kind sends, and waits."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import httpx

from listwright_client import refusals
from listwright_client.answers import UNREADABLE
from listwright_client.deadline import Deadline
from listwright_client.errors import ListwrightError, OverloadedError, UnavailableError
from listwright_client.exchange import MOST_BYTES_OF_REFUSAL, Failure, Reply
from listwright_client.options import CallOptions
from listwright_client.questions import Question

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Pauses between attempts double from the first to the longest; each is a random part of that."""

_PLAIN = re.compile(r"[!-~]{1,128}")
"""A request id that the service accepts; it replaces any other silently."""

_API_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Settings:
    """Settings of a client, shared by its calls.

    Raises:
        ValueError: if the address, the key or a number cannot be used.
    """

    base_url: str
    api_key: str | None = field(repr=False)
    timeout: float
    retries: int
    clock: Callable[[], float]
    jitter: Callable[[], float]

    def __post_init__(self) -> None:
        self._check_address()
        if self.api_key is not None and not _API_KEY.fullmatch(self.api_key):
            raise ValueError("api_key holds blanks or characters that no header may have")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}: give 0 or more")
        Deadline.starting(0.0, self.timeout, None, None)

    def _check_address(self) -> None:
        example = "give an address like http://127.0.0.1:8000"
        secret = "@" in self.base_url  # before which a password may stand
        prefix = "base_url" if secret else f"base_url is {self.base_url!r}"
        try:
            address = httpx.URL(self.base_url)
            address.raw_host.decode().encode("idna")  # as a socket does, later
        except (httpx.InvalidURL, UnicodeError) as error:
            if secret:
                raise ValueError(f"{prefix} is no URL: {example}") from None
            raise ValueError(f"{prefix} ({error}): {example}") from error
        if address.port is not None and not 0 < address.port < 2**16:
            raise ValueError(f"{prefix}, whose port is none from 1 to 65535: {example}")
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError(f"{prefix}, without http:// or https:// and a host: {example}")
        if "?" in self.base_url or "#" in self.base_url:
            raise ValueError(
                f"{prefix}: leave out the query (?) and the fragment (#), which would hide the "
                "path; options are words of a call, like rerank(..., model=...)"
            )
        if address.userinfo and self.api_key is not None:
            raise ValueError("base_url has a user and a password, which would take the place of api_key: give one")

    def headers(self, options: CallOptions) -> dict[str, str]:
        """Return the headers of a call.

        Raises:
            ValueError: if a request id or a traceparent cannot be sent as a header.
        """
        headers = {
            "Accept": "application/json, application/problem+json",
            "Accept-Encoding": "identity",  # a small answer could become a large one
            "Content-Type": "application/json",
        }
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request_id, traceparent = options.get("request_id"), options.get("traceparent")
        headers["X-Request-ID"] = uuid.uuid4().hex if request_id is None else request_id
        if traceparent is not None:
            headers["traceparent"] = traceparent
        for name in ("X-Request-ID", "traceparent"):
            if not _PLAIN.fullmatch(headers.get(name, "-")):
                raise ValueError(f"{name} is {headers[name]!r}: give 1 to 128 printable ASCII characters, no blanks")
        return headers


@dataclass(frozen=True)
class Attempt:
    """One HTTP request of a call."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Pause:
    """A pause before the next attempt."""

    seconds: float


class Call(Generic[T]):
    """One question with its attempts and its deadline.

    Args:
        ask: Function that writes the question, which is part of the call's time.
    """

    def __init__(
        self,
        settings: Settings,
        ask: Callable[[], Question[T]],
        options: CallOptions,
        *,
        retries: int | None = None,
    ) -> None:
        started, self._question = settings.clock(), ask()
        timeout, deadline = options.get("timeout"), options.get("deadline")
        if timeout is not None and deadline is not None:
            raise ValueError("give a timeout or a deadline: both say when the call ends")
        timeout = settings.timeout if timeout is None else timeout
        timeout_ms = cast(float | None, options.get("timeout_ms"))
        self._deadline = Deadline.starting(started, timeout, deadline, timeout_ms)
        self._settings = settings
        self._headers = settings.headers(options)
        if self._question.candidates:  # in a header, which services that do not know it ignore
            self._headers["Listwright-Expect-Candidates"] = str(self._question.candidates)
        self._retries = settings.retries if retries is None else retries
        self._attempts = 0

    def next_attempt(self) -> Attempt:
        """Return the next request to send, with the time that is left for it.

        Raises:
            DeadlineExceededError: if the deadline leaves no time for it.
        """
        now = self._settings.clock()
        if not self._deadline.allows(now):
            raise refusals.too_late(self._request_id, self._attempts)
        self._attempts += 1
        content = self._question.body
        timeout_ms = self._deadline.timeout_ms(now)
        if content is not None and timeout_ms is not None:
            content = b'{"timeout_ms":%d,' % timeout_ms + content[1:]
        method = "GET" if content is None else "POST"
        return Attempt(method, self._settings.base_url.rstrip("/") + self._question.path, self._headers, content)

    def remaining(self) -> float:
        """Return the seconds until the call ends, as a timeout of one of its steps; TimeoutError if it is over."""
        return self._deadline.remaining(self._settings.clock())

    def wants_more(self, status: int, size: int) -> bool:
        """Return whether to read on in an answer, after so many bytes; TimeoutError if the call's time is over."""
        self.remaining()
        return size <= (self._question.most_bytes if status == httpx.codes.OK else MOST_BYTES_OF_REFUSAL)

    def judge(self, outcome: Reply | Failure) -> T | Pause:
        """Return the value of an answer, or the pause before the next attempt.

        Raises:
            ListwrightError: if there is no answer, and a retry makes no sense or there is no time for it.
        """
        if isinstance(outcome, Reply) and outcome.status == httpx.codes.OK:
            if not outcome.is_to(self._request_id):
                raise refusals.misdirected(outcome, self._request_id, self._attempts)
            try:
                outcome.check(self._question.most_bytes)
                return self._question.read(outcome, self._attempts)
            except UNREADABLE as error:
                raise refusals.unreadable(outcome, error, self._request_id, self._attempts) from error
        cause = None
        if isinstance(outcome, Failure):
            cause, refusal = outcome.error, refusals.failure_error(outcome, self._request_id, self._attempts)
        else:
            refusal = refusals.reply_error(outcome, self._request_id, self._attempts)
        pause = self._pause(outcome, refusal)
        if pause is None:
            raise refusal from cause
        return pause

    def _pause(self, outcome: Reply | Failure, refusal: ListwrightError) -> Pause | None:
        """Return the pause before a retry; None if a retry makes no sense, or there is no time."""
        passing = isinstance(refusal, OverloadedError | UnavailableError) or refusal.status == httpx.codes.BAD_GATEWAY
        if not passing and not (isinstance(outcome, Failure) and outcome.may_repeat):
            return None
        if self._attempts > self._retries:
            return None
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._attempts - 1, 30))
        seconds = (refusal.retry_after or 0.0) + self._settings.jitter() * longest
        if not self._deadline.allows(self._settings.clock() + seconds):
            return None
        return Pause(seconds)

    @property
    def _request_id(self) -> str:
        return self._headers["X-Request-ID"]
