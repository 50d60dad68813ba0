"""Errors for refusals and failures."""

from __future__ import annotations

import json
import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from listwright_client import errors
from listwright_client.deadline import LONGEST_S
from listwright_client.errors import Fault, ListwrightError, Problem, printable
from listwright_client.exchange import Failure, Reply

KINDS = "urn:listwright:"
MAX_SHOWN = 200
"""Characters shown of an answer that is not the service's own."""

_OWN_CLASS = {429: errors.OverloadedError, 503: errors.UnavailableError, 504: errors.DeadlineExceededError}
_OF_ANY_REQUEST = (None, "overloaded", "rate-limited", "too-many-connections", "malformed-http")
"""Refusals that say nothing of the request itself: a proxy's own, and those that its id need not have reached."""

_SECONDS = re.compile(r"\d+(\.\d+)?")


def reply_error(reply: Reply, request_id: str, attempts: int) -> ListwrightError:
    """Return the error for an answer that is not 200."""
    families = {4: errors.RequestError, 5: errors.ServerError}
    kind = _OWN_CLASS.get(reply.status) or families.get(reply.status // 100, errors.UnexpectedAnswerError)
    problem = _problem(reply, request_id)
    if problem.kind not in _OF_ANY_REQUEST and not reply.is_to(request_id):
        return misdirected(reply, request_id, attempts)
    return kind(problem, attempts)


def failure_error(failure: Failure, request_id: str, attempts: int) -> ListwrightError:
    """Return the error for an attempt without a whole answer."""
    if failure.too_late:
        return too_late(request_id, attempts)
    message = printable(failure.error) or type(failure.error).__name__
    broken = "the answer broke off" if failure.answered else "no answer"
    return errors.ConnectionFailedError(Problem(f"{broken}: {message}", request_id=request_id), attempts)


def too_late(request_id: str, attempts: int) -> ListwrightError:
    """Return the error for a call whose deadline has passed."""
    detail = "the deadline passed before an answer came" if attempts else "the deadline passed before anything was sent"
    return errors.DeadlineExceededError(Problem(detail, request_id=request_id), attempts)


def misdirected(reply: Reply, request_id: str, attempts: int) -> ListwrightError:
    """Return the error for an answer to another request."""
    other = printable(", ".join(reply.headers.get_list("x-request-id")))
    detail = (
        f"the answer is to request {other}, not to this one: does a proxy mix up answers, or replace X-Request-ID? "
        "Envoy keeps it with preserve_external_request_id"
    )
    return errors.UnexpectedAnswerError(Problem(detail, status=reply.status, request_id=request_id), attempts)


def unreadable(reply: Reply, cause: Exception, request_id: str, attempts: int) -> ListwrightError:
    """Return the error for a 200 whose body does not keep to the contract, or answers another question."""
    detail = f"not an answer to this question, {type(cause).__name__}: {printable(cause)}; it starts {_start(reply)}"
    return errors.UnexpectedAnswerError(Problem(detail, status=reply.status, request_id=request_id), attempts)


def _problem(reply: Reply, request_id: str) -> Problem:
    body = _body(reply)
    kind = body.get("type")
    phrase = httpx.codes.get_reason_phrase(reply.status) or f"status {reply.status}"
    faults = [fault for fault in _items(body, "errors") if isinstance(fault, dict)]
    return Problem(
        detail=printable(body.get("detail") or f"{phrase}: {_tell_redirect(reply)}{_start(reply)}"),
        status=reply.status,
        kind=printable(kind.removeprefix(KINDS)) if isinstance(kind, str) and kind.startswith(KINDS) else None,
        errors=tuple(Fault(printable(fault.get("path")), printable(fault.get("message"))) for fault in faults),
        request_id=printable(body.get("request_id") or reply.headers.get("x-request-id") or request_id),
        retry_after=retry_after(reply.headers.get("retry-after"), reply.headers.get("date")),
        expected=tuple(map(printable, _items(body, "expected"))),
        sent=tuple(map(printable, _items(body, "sent"))),
        fingerprint=None if body.get("fingerprint") is None else printable(body["fingerprint"]),
    )


def _body(reply: Reply) -> dict[str, Any]:
    """Return the problem body; empty if the answer has none, as a proxy's own."""
    try:
        body = json.loads(reply.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _items(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _tell_redirect(reply: Reply) -> str:
    """Return words about the target of a redirect; empty if the answer is none."""
    location = reply.headers.get("location")
    return f"redirects to {location[:MAX_SHOWN]!r}, " if location and reply.status // 100 == 3 else ""


def _start(reply: Reply) -> str:
    return repr(reply.content[:MAX_SHOWN].decode("utf-8", "replace"))


def retry_after(value: str | None, date: str | None = None) -> float | None:
    """Parse ``Retry-After`` to seconds; None if it is absent or malformed.

    A moment is compared with the ``Date`` of the same answer where there is one: clocks of two machines differ.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_S)
    moment = _moment(value)
    if moment is None:
        return None
    now = _moment(date)
    return max(0.0, moment - (time.time() if now is None else now))


def _moment(value: str | None) -> float | None:
    """Parse an HTTP date to seconds since 1970; None if it is malformed."""
    try:
        moment = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, OverflowError):
        return None
    return moment if math.isfinite(moment) else None
