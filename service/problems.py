"""Every error a caller can meet, as one body (RFC 9457) and one table."""

from __future__ import annotations

import http
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from listwright.ranking.errors import (
    AbandonedError,
    CandidateError,
    EmptyListError,
    SchemaMismatchError,
    UnknownStrategyError,
)
from listwright.ranking.rules.schema import is_number
from listwright.service import paths
from listwright.service.errors import (
    DegradedError,
    EventsNotKeptError,
    ExplanationFailedError,
    ForbiddenError,
    NotReadyError,
    OverloadedError,
    PlacedError,
    RateLimitedError,
    ReloadRefusedError,
    RepeatedNameError,
    SlowBodyError,
    TooLargeError,
    UnauthorizedError,
    UndecodableBodyError,
    UnexplainedError,
    UnknownModelError,
    UnsupportedMediaTypeError,
)

MEDIA_TYPE = "application/problem+json"
MAX_FAULTS = 20
MAX_DETAIL = 2000
"""Characters; some details repeat what was sent."""

_CLOSING = {"Connection": "close"}

_SHOULD = re.compile(r"^\w+ should (be|have|match) ")
_OBJECTS = ("model_attributes_type", "model_type", "dict_type")
_WORDS = {
    "missing": "is required",
    "union_tag_not_found": "action is required",
    "string_pattern_mismatch": "has characters that a name must not have, or is too long",
    "list_type": "expected an array",
    **dict.fromkeys(_OBJECTS, "expected an object"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
}
"""Messages in place of pydantic's, by its type of fault."""

_log = logging.getLogger("listwright.service")


class Fault(BaseModel):
    """One thing that is wrong, and where."""

    path: Annotated[
        str, Field(description="JSON path below the body; ?NAME for a parameter of the query string; NAME of a header")
    ]
    message: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(description="stable name of the kind of problem")]
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[Fault] = []
    expected: Annotated[list[str], Field(description="names that the bundle was fitted on")] = []
    sent: Annotated[list[str], Field(description="names that arrived, at most as many as expected and ten more")] = []
    fingerprint: Annotated[str | None, Field(description="of the served schema")] = None
    error: Annotated[str, Field(description="detail once more, where inference clients look; below /v2")] = ""


STATUS: dict[type[Exception], int] = {
    UndecodableBodyError: 400,
    AbandonedError: 400,
    EmptyListError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    UnknownModelError: 404,
    UnknownStrategyError: 404,
    SlowBodyError: 408,
    SchemaMismatchError: 409,
    ReloadRefusedError: 409,
    TooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    CandidateError: 422,
    RepeatedNameError: 422,
    RateLimitedError: 429,
    OverloadedError: 429,
    NotReadyError: 503,
    EventsNotKeptError: 503,
    ExplanationFailedError: 503,
    DegradedError: 504,
    UnexplainedError: 504,
}
"""Status of every error that is raised on purpose; subclasses stand before their base."""

DOCUMENTED: dict[int, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The body cannot be decoded, or the list is empty",
        401: "No key, or a wrong one",
        403: "The key opens other paths",
        404: "Unknown model, version, strategy or specialist",
        408: "The body did not arrive in time",
        409: "Well-formed, but does not fit the served feature schema",
        413: "Too many candidates or bytes",
        415: "The body is of another media type, or compressed",
        422: "Wrong types or values; every fault with its JSON path",
        429: "More requests than can be answered in time, or than the key may send; Retry-After says when to ask again",
        503: "No bundle is loaded, the process is draining, its answers are degraded, or too many are connected to it",
        504: "A stage failed or would have missed the deadline, and the settings allow no degraded answer",
    }.items()
}
DOCUMENTED[429]["headers"] = {
    "Retry-After": {
        "description": "whole seconds, from what is queued, or until the key may send one more",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def install(app: FastAPI) -> None:
    """Answer every exception with a problem body."""
    for kind in STATUS:
        app.add_exception_handler(kind, deliberate)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def json_path(parts: Iterable[str | int]) -> str:
    """Format a path, such as ``$.candidates[3].features.price``."""
    text = "$"
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{_clipped(part)}"
        else:
            text += f"[{_clipped(part)!r}]"
    return text


def _place(parts: Sequence[str | int]) -> str:
    """Format the place of a fault: in the body, the query string or a header."""
    if parts[0] == "header":
        return str(parts[1])
    if parts[0] == "query":
        return f"?{_clipped(str(parts[1]))}"
    return json_path(parts[1:])


def _clipped(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def body(
    status: http.HTTPStatus, kind: str, detail: str, request_id: str, path: str = "", **more: object
) -> dict[str, object]:
    """Build a problem body, of the form of :class:`Problem`.

    Args:
        status: Status of the answer.
        kind: Stable name of the problem, for programs.
        detail: Description of the problem, for people.
        request_id: Id of the request.
        path: Path of the request; inference clients find the detail under a name of their own.
        more: Fields that not every problem has.
    """
    content: dict[str, object] = {
        "type": f"urn:listwright:{kind}",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "request_id": request_id,
        "errors": [],
    }
    if paths.is_inference(path):
        content["error"] = detail
    return content | {name: value for name, value in more.items() if value is not None}


def encode(status: http.HTTPStatus, kind: str, detail: str, request_id: str, *, path: str = "") -> bytes:
    """Encode a problem body without FastAPI, for refusals that must be cheap or come before an ASGI request exists.

    The words must be our own: they are neither cleaned nor clipped.
    """
    return json.dumps(body(status, kind, detail, request_id, path)).encode()


def problem(
    request: Request, status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None, **more: object
) -> JSONResponse:
    """Build FastAPI's response for a problem; ``detail`` may repeat what the caller sent."""
    detail = _clipped(_clean(detail), MAX_DETAIL)
    content = body(http.HTTPStatus(status), kind, detail, request.state.request_id, request.scope["path"], **more)
    return JSONResponse(content, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def _clean(text: str) -> str:
    """Escape lone surrogates, which callers' words may hold and UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


async def deliberate(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of :data:`STATUS`."""
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    kind = _kind(type(error).__name__)
    if isinstance(error, SchemaMismatchError):
        faults = [] if error.path is None else [_fault(json_path(error.path), str(error))]
        return problem(
            request,
            status,
            kind,
            str(error),
            expected=list(error.expected),
            sent=[_clipped(name) for name in error.sent[: len(error.expected) + 10]],
            fingerprint=request.state.fingerprint,
            errors=faults,
        )
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthorizedError) else {}
    if isinstance(error, OverloadedError | EventsNotKeptError):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, SlowBodyError) or (isinstance(error, OverloadedError) and error.closes):
        headers |= _CLOSING  # the rest of the body is not read
    if isinstance(error, CandidateError | PlacedError):
        path = json_path(error.path)
        return problem(request, status, kind, f"{path}: {error.message}", errors=[_fault(path, error.message)])
    return problem(request, status, kind, str(error), headers=headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    faults = [_fault(_place(fault["loc"]), _message(fault, request)) for fault in errors[:MAX_FAULTS]]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return problem(request, 422, "invalid-request", f"{faults[0]['path']}: {faults[0]['message']}{more}", errors=faults)


def faults_of(error: ValidationError, model: type[BaseModel], *place: str | int) -> list[dict[str, Any]]:
    """Return pydantic's faults; the first have their places in the request, and a function that returns the fields.

    Args:
        error: Error of the validation.
        model: Model that was validated.
        place: Path of the validated part of the request; none: the body.
    """
    faults: list[Any] = error.errors(include_url=False)
    for fault in faults[:MAX_FAULTS]:
        path = fault["loc"]
        parts = (*path[:2], *path[3:]) if path[:1] == ("rules",) else path  # without the action behind a rule's number
        fault |= {"loc": (*(place or ("body",)), *parts), "fields": partial(fields_at, model, path[:-1])}
    return faults


def fields_at(model: Any, place: Sequence[str | int]) -> list[str]:
    """Return the fields of the models at a place; of several kinds, those of the one that a part of the place names."""
    models = list(_models(model))
    for part in place:
        if inner := [kind.model_fields[part].annotation for kind in models if part in kind.model_fields]:
            models = [kind for annotation in inner for kind in _models(annotation)]
        else:
            kinds = [kind for kind in models if any(part in get_args(f.annotation) for f in kind.model_fields.values())]
            models = kinds or models
    return [name for kind in models for name in kind.model_fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _fault(path: str, message: str) -> dict[str, str]:
    """Build a fault, of the form of :class:`Fault`."""
    return {"path": _clean(path), "message": _clean(message)}


def _message(fault: dict[str, Any], request: Request) -> str:
    sent = fault.get("input")
    if fault["type"] == "literal_error" and fault["loc"][-1] == "strategy" and isinstance(sent, str):
        models = request.app.service.current.models
        bundles = () if models is None else models.current.values()
        known = dict.fromkeys(name for bundle in bundles for name in ("auto", *bundle.manifest.strategies))
        return unknown("strategy", sent, [*known])
    return describe(fault)


def describe(fault: Mapping[str, Any]) -> str:
    """Describe a fault of pydantic in words of JSON and of the contract, with the value if it is short."""
    kind, context, sent = fault["type"], fault.get("ctx", {}), fault.get("input")
    if kind == "extra_forbidden":
        return unknown("field", str(fault["loc"][-1]), fault["fields"]())
    if kind == "union_tag_invalid":
        return unknown(
            context["discriminator"].strip("'"), context["tag"], re.findall(r"\w+", context["expected_tags"])
        )
    text = str(fault["msg"]).removeprefix("Value error, ").partition(" after validation")[0]
    message = _WORDS.get(kind) or _SHOULD.sub("expected ", text)
    if kind in _OBJECTS or kind == "value_error" or not (isinstance(sent, str) or is_number(sent)):
        return message
    return f"{message}, found {json.dumps(_clipped(sent, 100) if isinstance(sent, str) else sent)}"


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """Describe a name that is unknown: with the one that resembles it, else with all."""
    close = get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    return f"unknown {what} {_clipped(name)!r}: {remedy}"


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == http.HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.scope['path']}: see the paths in /openapi.json"
    if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not allowed at {request.scope['path']}"
    headers = dict(error.headers or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # a route of its own, see listwright.service.app
    kind = _kind(http.HTTPStatus(error.status_code).phrase.title().replace(" ", ""))
    return problem(request, error.status_code, kind, detail, headers=headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """Log an unexpected error in full, and answer 500 without internals."""
    request_id = request.state.request_id
    _log.error("unexpected error", exc_info=error, extra={"facts": {"request_id": request_id}})
    detail = "an unexpected error; it was logged under this request id"
    return problem(request, 500, "internal-error", detail, headers={"X-Request-ID": request_id})


def _kind(name: str) -> str:
    """Convert a class name, ``SchemaMismatchError``, to a kind, ``schema-mismatch``."""
    name = name.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
