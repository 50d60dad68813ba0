"""Every error a caller can meet, as one body (RFC 9457) and one table."""

from __future__ import annotations

import http
import logging
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ranking.errors import CandidateError, EmptyListError, ListwrightError, SchemaMismatchError, UnknownStrategyError
from service.schemas import Fault, Problem

MEDIA_TYPE = "application/problem+json"
INFERENCE_PATHS = ("/v2/models/", "/v2/health/")
"""Where clients of the Open Inference Protocol ask, which look for a member ``error``."""

MAX_FAULTS = 20
MAX_DETAIL = 2000
"""Characters; some details repeat what was sent."""

_log = logging.getLogger("listwright.service")


class UndecodableBodyError(ListwrightError):
    """The body is not what it is announced as."""


class UnsupportedMediaTypeError(ListwrightError):
    """The body is announced as something that is not read."""


class TooLargeError(ListwrightError):
    """The body or the list is larger than the limits."""


class UnknownModelError(ListwrightError):
    """The caller asked for a bundle that is not served."""


class NotReadyError(ListwrightError):
    """No bundle is loaded, or the process is draining."""


STATUS: dict[type[Exception], int] = {
    UndecodableBodyError: 400,
    EmptyListError: 400,
    UnknownModelError: 404,
    UnknownStrategyError: 404,
    SchemaMismatchError: 409,
    TooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    CandidateError: 422,
    NotReadyError: 503,
}
"""Status of every error that is raised on purpose; subclasses stand before their base."""

DOCUMENTED = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The body cannot be decoded, or the list is empty",
        404: "Unknown model, version, strategy or specialist",
        409: "Well-formed, but does not fit the served feature schema",
        413: "Too many candidates or bytes",
        415: "The body is of another media type, or compressed",
        422: "Wrong types or values; every fault with its JSON path",
        503: "No bundle is loaded, or the process is draining",
    }.items()
}


def install(app: FastAPI) -> None:
    """Answer every exception with a problem body."""
    for kind in STATUS:
        app.add_exception_handler(kind, _deliberate)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def json_path(parts: Iterable[str | int]) -> str:
    """``$.candidates[3].features.price``"""
    text = "$"
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{_clipped(part)}"
        else:
            text += f"[{_clipped(part)!r}]"
    return text


def _clipped(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def problem(
    request: Request, status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None, **more: object
) -> JSONResponse:
    """One problem body; ``kind`` is stable, ``detail`` is for people."""
    detail = _clipped(_clean(detail), MAX_DETAIL)
    body = Problem.model_validate(
        {
            "type": f"urn:listwright:{kind}",
            "title": http.HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            "request_id": request.state.request_id,
            "error": detail if request.url.path.startswith(INFERENCE_PATHS) else "",
            **more,
        }
    )
    content = body.model_dump(exclude_defaults=True) | {"errors": [fault.model_dump() for fault in body.errors]}
    return JSONResponse(content, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def _clean(text: str) -> str:
    """Callers' own words may hold lone surrogates, which no UTF-8 body can carry."""
    return text.encode("utf-8", "backslashreplace").decode()


async def _deliberate(request: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    kind = _kind(type(error).__name__)
    if isinstance(error, SchemaMismatchError):
        return problem(
            request,
            status,
            kind,
            str(error),
            expected=list(error.expected),
            sent=[_clipped(name) for name in error.sent[: len(error.expected) + 10]],
            fingerprint=request.app.state.bundle.manifest.fingerprint,
        )
    if isinstance(error, CandidateError):
        fault = Fault(path=_clean(json_path(error.path)), message=_clean(error.message))
        return problem(request, status, kind, f"{json_path(error.path)}: {error.message}", errors=[fault])
    return problem(request, status, kind, str(error))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    faults = [
        Fault(path=_clean(json_path(fault["loc"][1:])), message=_clean(_said(fault))) for fault in found[:MAX_FAULTS]
    ]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return problem(request, 422, "invalid-request", f"{faults[0].path}: {faults[0].message}{more}", errors=faults)


def _said(fault: dict[str, Any]) -> str:
    """pydantic's words, but for those that speak of Python."""
    if fault["type"] in ("model_attributes_type", "model_type", "dict_type"):
        return "expected an object"
    return str(fault["msg"]).removeprefix("Value error, ")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == http.HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}: the paths stand in /openapi.json"
    if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not allowed at {request.url.path}"
    headers = dict(error.headers or {})
    kind = _kind(http.HTTPStatus(error.status_code).phrase.title().replace(" ", ""))
    return problem(request, error.status_code, kind, detail, headers=headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """A bug of ours: logged with everything, answered with nothing internal."""
    request_id = request.state.request_id
    _log.error("unexpected error", exc_info=error, extra={"facts": {"request_id": request_id}})
    detail = "an unexpected error; it was logged under this request id"
    return problem(request, 500, "internal-error", detail, headers={"X-Request-ID": request_id})


def _kind(name: str) -> str:
    """``SchemaMismatchError`` becomes ``schema-mismatch``."""
    name = name.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
