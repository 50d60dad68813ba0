"""Errors of the service; ``problems.STATUS`` has the status of each."""

from __future__ import annotations

import re

from listwright.ranking.errors import ListwrightError

_AT = re.compile(r"line (\d+) column (\d+)")
_WORD = re.compile(rb"[A-Za-z]+")
_NEAR = 12
"""Bytes before a fault in which a word may begin that the parser has read in part."""

_MEANT = {
    b"nan": "NaN is no JSON: send null for a missing value",
    b"infinity": "Infinity is no JSON: send a finite number, or null for a missing value",
    b"none": "None is no JSON: send null",
    b"undefined": "undefined is no JSON: send null",
    b"true": "JSON spells it true",
    b"false": "JSON spells it false",
}
_MEANT[b"inf"] = _MEANT[b"infinity"]
_LITERALS = (b"true", b"false")


def why_no_json(body: bytes, error: ValueError) -> str:
    """Describe why a body is no JSON: the parser's words, and a remedy where another spelling is meant.

    Args:
        body: Body that was parsed.
        error: Error of the parser, with line and column.
    """
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in body[:4]:
        return "it is UTF-16 or UTF-32: send UTF-8"
    match = _AT.search(str(error))
    if match is None:
        return str(error)
    at = 0
    for _ in range(int(match[1]) - 1):
        at = body.index(b"\n", at) + 1
    at += int(match[2]) - 1
    begin = max(0, at - _NEAR)
    for word in _WORD.finditer(body[begin : at + _NEAR]):
        if word.start() - 1 <= at - begin < word.end() and word[0] not in _LITERALS:
            meant = _MEANT.get(word[0].lower())
            return f"{error}: {meant}" if meant else str(error)
    return str(error)


class PlacedError(ListwrightError):
    """An error that has a place in the body, as JSON path segments; the whole body if there are none."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class UndecodableBodyError(PlacedError):
    """Error for a body that is not what it is announced as."""


class SlowBodyError(ListwrightError):
    """Error for a body that did not arrive in time."""


class UnsupportedMediaTypeError(ListwrightError):
    """Error for a body of a media type that is not read."""


class RepeatedNameError(PlacedError):
    """Error for a name that is repeated in one object of the body."""


class TooLargeError(PlacedError):
    """Error for a body or a list that is larger than the limits."""


class UnknownModelError(ListwrightError):
    """Error for a bundle that is not served."""


class UnauthorizedError(ListwrightError):
    """Error for a missing or a wrong key."""


class ReloadRefusedError(ListwrightError):
    """Error for a reload or rollback that was refused; what was served stays."""


class OverloadedError(ListwrightError):
    """Error for a request for which there is no room or time.

    Args:
        message: Description of what is full.
        retry_after_s: Whole seconds after which there may be room.
        closes: True if the connection ends, as the rest of the body is not read.
    """

    def __init__(self, message: str, retry_after_s: int, *, closes: bool = False) -> None:
        super().__init__(f"{message}: ask again in {retry_after_s} s")
        self.retry_after_s, self.closes = retry_after_s, closes


class RateLimitedError(OverloadedError):
    """Error for a key that was used beyond its rate."""


class ForbiddenError(ListwrightError):
    """Error for a key that opens other paths, and not this one."""


class EventsNotKeptError(ListwrightError):
    """Error for events that could not be written: their sender still has them.

    Args:
        message: Reason why they could not be written.
        retry_after_s: Whole seconds after which it may be possible.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(f"{message}: send them again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class NotReadyError(ListwrightError):
    """Error while no bundle is loaded, the process is draining, or its answers are degraded."""


class DegradedError(ListwrightError):
    """Error for a degraded answer where the settings allow none."""


class UnexplainedError(ListwrightError):
    """Error for an explanation without any part: the deadline passed, or a stage failed."""


class ExplanationFailedError(ListwrightError):
    """Error for a failure of the process that explains; ranking goes on with another copy of the bundle."""
