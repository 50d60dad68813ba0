"""Values of a request, as the contract has them or not at all."""

from __future__ import annotations

from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import QueryParams

from listwright.service.wire.schemas import Strict

Sent = TypeVar("Sent", bound=Strict)


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


def validated_query(model: type[Sent], query: QueryParams) -> Sent:
    """The same from text: numbers and booleans are spelled. Of a repeated parameter the last one counts."""
    try:
        return model.model_validate_strings(dict(query), strict=False)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> RequestValidationError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults])
