"""Values of a request, as the contract has them or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request

from listwright.service.wire.schemas import Envelope, Strict

Sent = TypeVar("Sent", bound=Strict)

UNIT = "Listwright-Unit"
"""Header of the unit: what stands in a query string is logged by many a proxy."""

BODY_ONLY = frozenset(("context",))
"""Words of a request that a query string has no spelling for."""


def validated(model: type[Sent], value: object) -> Sent:
    """What was sent, as the contract has it.

    Raises:
        RequestValidationError: if it is not; with the faults and their paths. Of lists that may be long the first item
            at fault is told, with all that is wrong with it: a list may hold thousands.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(error) from None


def words_beside(request: Request, words: type[Envelope]) -> dict[str, Any]:
    """What a request says beside its body: in the query string, as text, and in the header :data:`UNIT`.

    Args:
        request: of any body.
        words: what it may say.

    Raises:
        RequestValidationError: for a parameter that is unknown, repeated or no such value.
    """
    outer_words: dict[str, Any] = {}
    if request.scope["query_string"]:
        check_query(request, words.model_fields.keys() - BODY_ONLY)
        try:
            options = words.model_validate_strings(dict(request.query_params), strict=False)
        except ValidationError as error:
            raise _invalid(error, "query") from None
        outer_words = options.model_dump(exclude_unset=True)
    for sent in request.headers.getlist(UNIT):
        try:
            unit = sent.encode("latin-1").decode()  # Starlette decodes headers as Latin-1
            words.model_validate({"unit": unit})
        except UnicodeDecodeError:
            raise RequestValidationError([_fault(("header", UNIT), "is no UTF-8")]) from None
        except ValidationError as error:
            raise RequestValidationError([{**fault, "loc": ("header", UNIT)} for fault in error.errors()]) from None
        outer_words = merge_words({"unit": unit}, outer_words)
    return outer_words


def check_query(request: Request, known: Collection[str] = ()) -> None:
    """Raise unless each parameter of the query string is known and stands once, and all is UTF-8.

    Raises:
        RequestValidationError: with the name of each that is not.
    """
    text = request.scope["query_string"]
    if not text:
        return
    try:
        unquote_to_bytes(text.decode("ascii")).decode()
    except UnicodeDecodeError:
        message = "the query string is not valid UTF-8: percent-encode it as UTF-8"
        raise RequestValidationError([_fault(("query", ""), message)]) from None
    names = [name for name, _ in request.query_params.multi_items()]
    parameters = ", ".join(sorted(known)) or "none"
    faults = [(name, f"is no parameter of this path, which has {parameters}") for name in names if name not in known]
    faults += [(name, "is repeated: send it once") for name in known if names.count(name) > 1]
    if faults:
        raise RequestValidationError([_fault(("query", name), message) for name, message in faults])


def merge_words(body: Any, words: Mapping[str, Any]) -> Any:
    """A body with the words that were sent beside it; null in the body says nothing.

    Raises:
        RequestValidationError: if both say the same word, and not the same of it.
    """
    if not words or not isinstance(body, dict):
        return body
    for name, value in words.items():
        if body.get(name) is not None:
            check_agreement(body[name], value, ("query", name))
    return {**body, **words}


def check_agreement(one: object, other: object, place: tuple[str, str]) -> None:
    """Raise RequestValidationError, with the place of the latter, unless both are equal."""
    if one != other:
        raise RequestValidationError(
            [_fault(place, f"is {other!r}, and {one!r} elsewhere in the request: say it once")]
        )


def _fault(place: tuple[str, ...], message: str) -> dict[str, Any]:
    return {"type": "value_error", "loc": place, "msg": message}


def _invalid(error: ValidationError, where: str = "body") -> RequestValidationError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**fault, "loc": (where, *fault["loc"])} for fault in faults])
