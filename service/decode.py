"""From a body's bytes to plain values: JSON as the contract allows it, in bounded time and memory. Any thread's work.

The parser holds Python's global lock from the first byte to the last, so whatever could make it take long is counted
before, by NumPy, which does not: arrays and objects, which cost most, and values. Names that stand twice cannot be seen
in what it returns; they show as more colons than names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic_core
from jaxtyping import UInt8

from service.problems import RepeatedNameError, TooLargeError, UndecodableBodyError
from service.schemas import MAX_CONTEXT, MAX_FIELDS

LEAST_VALUES = 2**17
"""Values that any body may have: a list for another bundle shall hear what differs, not that it is large."""

ENVELOPE = MAX_FIELDS + MAX_CONTEXT

BLOCK = 2**20
"""Bytes looked at together: bounds the memory of the looking."""

_QUOTE, _COLON, _COMMA, _BLANK = b'":, '
_OPENING = b"[{"

_SURROGATE = re.compile("[\ud800-\udfff]")

Bytes = UInt8[np.ndarray, " n"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a body may hold.

    Args:
        candidates: the longest list.
        features: of the widest schema that is served.
    """

    candidates: int
    features: int

    @property
    def containers(self) -> int:
        """Arrays and objects: twice what the longest list has in its wordiest form, and the envelope."""
        return 4 * self.candidates + 64

    @property
    def values(self) -> int:
        """Commas: those of the longest list in its wordiest form, of a row of names, and of the envelope."""
        return max(LEAST_VALUES, (self.candidates + 1) * (self.features + 2) + ENVELOPE)


def decode(body: bytes, bounds: Bounds) -> Any:
    """The body's value.

    Raises:
        TooLargeError: if it has too many candidates, values, arrays or objects.
        UndecodableBodyError: if it is empty or no JSON; NaN and Infinity are none, nor are halves of surrogate pairs.
        RepeatedNameError: if a name stands twice in one object.
    """
    if not body:
        raise UndecodableBodyError("the body is empty: send a JSON object, see /openapi.json")
    text = np.frombuffer(body, dtype=np.uint8)
    _check_counts(body, text, bounds)
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UndecodableBodyError(f"the body is no JSON: {error}", _place_of_fault(body)) from error
    _check_lengths(value, bounds.candidates)
    if _names(value) != _colons(text):
        _check_repeated(body)
    return value


def _blocks(text: Bytes) -> Iterator[Bytes]:
    return (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))


def _check_counts(body: bytes, text: Bytes, bounds: Bounds) -> None:
    """Raise TooLargeError if there is more than the longest list could need."""
    for characters, limit, what in (
        (_OPENING, bounds.containers, "arrays and objects"),
        ((_COMMA,), bounds.values, "values"),
    ):
        count = sum(int(np.count_nonzero(block == c)) for block in _blocks(text) for c in characters)
        if count > limit:
            count = _count_outside_strings(body, characters)  # ids may be full of them
        if count > limit:
            raise TooLargeError(
                f"the body has {count} {what}, the limit is {limit} for lists of {bounds.candidates} candidates "
                f"(LISTWRIGHT_MAX_CANDIDATES) with {bounds.features} features"
            )


def _count_outside_strings(body: bytes, characters: bytes | tuple[int, ...]) -> int:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes opens or closes a string
    count, inside = 0, False
    for block in _blocks(np.frombuffer(plain, dtype=np.uint8)):
        within = np.logical_xor.accumulate(block == _QUOTE) ^ inside
        count += sum(int(np.count_nonzero((block == c) & ~within)) for c in characters)
        inside = bool(within[-1])
    return count


def _check_lengths(body: object, limit: int) -> None:
    """Raise TooLargeError for a list above the limit: before validation, which would look at every candidate."""
    for name in ("candidates", "features"):
        rows = body.get(name) if isinstance(body, dict) else None
        if isinstance(rows, list):
            check_length(len(rows), limit, (name,))


def check_length(length: int, limit: int, path: tuple[str | int, ...] = ()) -> None:
    """Raise TooLargeError for a list above the limit."""
    if length > limit:
        raise TooLargeError(
            f"the list has {length} candidates, the limit is {limit} (LISTWRIGHT_MAX_CANDIDATES): send the best "
            "ones; a list must not be split over requests",
            path,
        )


def _names(body: object) -> int:
    """Names in the objects that the contract knows."""
    if not isinstance(body, dict):
        return 0
    candidates = body.get("candidates")
    rows = [row for row in candidates if isinstance(row, dict)] if isinstance(candidates, list) else []
    inner = [body.get("context"), *(row.get("features") for row in rows)]
    return len(body) + sum(map(len, rows)) + sum(len(names) for names in inner if isinstance(names, dict))


def _colons(text: Bytes) -> int:
    """Colons after a quote or a blank: all that follow names, and those in strings that look like it.

    So they are never fewer than names, and as many only if every name was kept.
    """
    count = 0
    for start in range(1, len(text), BLOCK):
        before, here = text[start - 1 : start - 1 + BLOCK], text[start : start + BLOCK]
        before = before[: len(here)]
        count += int(np.count_nonzero((here == _COLON) & ((before == _QUOTE) | (before <= _BLANK))))
    return count


class _Repeated(dict[str, Any]):
    """An object in which a name stood twice, and which."""

    name = ""


def _check_repeated(body: bytes) -> None:
    """Raise RepeatedNameError if a name stands twice: reads the body anew, with an eye on every object."""

    def seen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for name, value in pairs:
            if name in names:
                found = _Repeated(names)
                found.name = name
                return found
            names[name] = value
        return names

    value = json.loads(body.decode(), object_pairs_hook=seen)
    found = _first(value, lambda part: isinstance(part, _Repeated))
    if found is not None:
        path, part = found
        raise RepeatedNameError("stands twice in this object: send each name once", (*path, part.name))


def _place_of_fault(body: bytes) -> tuple[str | int, ...]:
    """Where the first number or string stands that JSON does not have; the whole body for any other fault."""
    try:
        found = _first(json.loads(body.decode()), _is_none_of_json)
    except (ValueError, RecursionError):
        return ()
    return () if found is None else found[0]


def _is_none_of_json(part: Any) -> bool:
    if isinstance(part, float):
        return not math.isfinite(part)
    strings = part if isinstance(part, dict) else [part] if isinstance(part, str) else ()
    return any(_SURROGATE.search(string) for string in strings)


def _first(value: Any, wanted: Callable[[Any], bool]) -> tuple[tuple[str | int, ...], Any] | None:
    """Path and value of the first part of a document, in its order, that is wanted."""
    parts: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while parts:
        path, part = parts.pop()
        if wanted(part):
            return path, part
        inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        parts += [((*path, key), child) for key, child in inner][::-1]
    return None
