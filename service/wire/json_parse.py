"""From a body's bytes to plain values: JSON as the contract allows it, in bounded time and memory. Any thread's work.

The parser holds Python's global lock from the first byte to the last. So one quick pass before it counts everything
that takes time: arrays and objects, which cost most, values, and bytes beyond what those need. Names that
stand twice cannot be seen in what the parser returns; they show as more colons than names. All limits are those of the
longest list that is served: no body below them takes much longer than such a list (``benchmarks/load/bodies.py``).
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic_core
from jaxtyping import UInt8

from listwright.ranking.features import FeatureSchema
from listwright.service.errors import RepeatedNameError, TooLargeError, UndecodableBodyError, why_no_json
from listwright.service.wire.compiled import json_fast
from listwright.service.wire.schemas import MAX_CONTEXT, MAX_FIELDS

LEAST_VALUES = 2**13
"""Values that any body may have: a list for another bundle is told the difference, not that it is large."""

ENVELOPE_BYTES, CONTAINER_BYTES, VALUE_BYTES = 2**16, 256, 40
"""Bytes that a body may have for its envelope, for each array and object (a candidate has two, and an id), and for each
value beside a name and a category: digits, quotes, indentation."""

LEAST_IGNORED, IGNORED_SPELLING = 32, 100
"""Where unknown features are ignored: how many a candidate may have at least, and bytes of their names."""

ENVELOPE = MAX_FIELDS + MAX_CONTEXT

SEARCHED = 2**15
"""Values of a body that is searched for the place of a fault; of a larger one the fault is told without."""

BLOCK = 2**20
"""Bytes looked at together where nothing was compiled: bounds the memory of the looking."""

_QUOTE, _COMMA, _COLON, _OPENING = b'"', b",", b":", b"[{"

_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""What may be half of a surrogate pair."""

Bytes = UInt8[np.ndarray, " n"]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a body may hold.

    Args:
        candidates: the longest list.
        features: of the widest schema that is served.
        spelling: bytes of the longest name and the longest category.
    """

    candidates: int
    features: int
    spelling: int

    @property
    def why(self) -> str:
        """Words behind a limit."""
        return why(self.candidates, self.features)

    @property
    def size(self) -> int:
        """Bytes: those of the longest list in its wordiest form."""
        return self.size_of(self.values, self.containers)

    def size_of(self, values: int, containers: int) -> int:
        """Bytes that these values, arrays and objects may have."""
        return ENVELOPE_BYTES + values * (self.spelling + VALUE_BYTES) + containers * CONTAINER_BYTES

    @property
    def containers(self) -> int:
        """Arrays and objects: twice what the longest list has in its wordiest form, and the envelope."""
        return 4 * self.candidates + 64

    @property
    def values(self) -> int:
        """Commas: those of the longest list in its wordiest form, of a row of names, and of the envelope."""
        return max(LEAST_VALUES, (self.candidates + 1) * (self.features + 2) + ENVELOPE)


def why(candidates: int, features: int) -> str:
    """Words behind a limit: what has room within it, and which setting changes it."""
    return f"for lists of {candidates} candidates (LISTWRIGHT_MAX_CANDIDATES) with {features} features"


def bounds_of(candidates: int, schemas: Iterable[FeatureSchema], *, ignores: bool = False) -> Bounds:
    """What a body may hold that is for any of the schemas; where unknown features are ignored, with as many of them."""
    sizes = [(len(schema), schema.spelling) for schema in schemas]
    features, spelling = max(size[0] for size in sizes), max(size[1] for size in sizes)
    if ignores:
        return Bounds(candidates, features + most_ignored(features), max(spelling, IGNORED_SPELLING))
    return Bounds(candidates, features, spelling)


def most_ignored(features: int) -> int:
    """Unknown features that a candidate may have beside the known ones, where they are ignored."""
    return max(features, LEAST_IGNORED)


def decode(body: bytes, bounds: Bounds) -> Any:
    """The body's value.

    Raises:
        TooLargeError: if it has too many bytes, candidates, values, arrays or objects.
        UndecodableBodyError: if it is empty or no JSON; NaN and Infinity are none, nor are halves of surrogate pairs.
        RepeatedNameError: if a name is repeated in one object.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body:
        raise UndecodableBodyError("the body is empty: send a JSON object, see /openapi.json")
    if len(body) > bounds.size:
        raise _too_large(f"{len(body)} bytes", bounds.size, bounds)
    commas, openings, colons = _counted(body)
    _check_counts(len(body), commas, openings, bounds)
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        place = _place_of_fault(body) if commas <= SEARCHED else ()
        raise UndecodableBodyError(f"the body is not valid JSON: {why_no_json(body, error)}", place) from error
    _check_lengths(value, bounds.candidates)
    if _names(value) != colons:
        if commas <= SEARCHED:
            _check_repeated(body)
        elif _all_names(value) != colons:
            raise RepeatedNameError("a name is repeated in an object: send each name once")
    return value


def _counted(body: bytes) -> tuple[int, int, int]:
    """Commas, opening brackets and braces, and colons outside of strings."""
    if json_fast is not None:
        counts: tuple[int, int, int] = json_fast.counted(body)
        return counts
    return _outside_strings(body, _COMMA), _outside_strings(body, _OPENING), _outside_strings(body, _COLON)


def _outside_strings(body: bytes, characters: bytes) -> int:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes opens or closes a string
    text = np.frombuffer(plain, dtype=np.uint8)
    count, inside = 0, False
    for start in range(0, len(text), BLOCK):
        block: Bytes = text[start : start + BLOCK]
        within = np.logical_xor.accumulate(block == _QUOTE[0]) ^ inside
        count += sum(int(np.count_nonzero((block == c) & ~within)) for c in characters)
        inside = bool(within[-1])
    return count


def _check_counts(size: int, values: int, containers: int, bounds: Bounds) -> None:
    """Raise TooLargeError if there is more than the longest list could need, or more bytes than the values do."""
    if containers > bounds.containers:
        raise _too_large(f"{containers} arrays and objects", bounds.containers, bounds)
    if values > bounds.values:
        raise _too_large(f"{values} values", bounds.values, bounds)
    if size > (limit := bounds.size_of(values, containers)):
        raise _too_large(f"{size} bytes for {values} values", limit, bounds)


def _too_large(found: str, limit: int, bounds: Bounds) -> TooLargeError:
    return TooLargeError(f"the body has {found}, the limit is {limit} {bounds.why}")


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


def _all_names(value: object) -> int:
    """Names in all objects."""
    count, parts = 0, [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            count += len(part)
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return count


class _Repeated(dict[str, Any]):
    """An object in which a name stood twice, and which."""

    name = ""


def _check_repeated(body: bytes) -> None:
    """Raise RepeatedNameError if a name is repeated: reads the body again and checks each object."""
    repeated: list[_Repeated] = []

    def seen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) == len(pairs):
            return names
        counts = Counter(name for name, _ in pairs)
        repeated.append(_Repeated(names))
        repeated[-1].name = next(name for name, count in counts.items() if count > 1)
        return repeated[-1]

    value = json.loads(body.decode(), object_pairs_hook=seen, parse_int=float)  # float reads any number of digits
    if repeated:
        path = _place(value, lambda part: isinstance(part, _Repeated)) or ()
        part = value
        for key in path:
            part = part[key]
        raise RepeatedNameError("is repeated in this object: send each name once", (*path, part.name))


def _place_of_fault(body: bytes) -> Path:
    """Where the first number or string stands that JSON does not have; the whole body for any other fault."""
    wanted = _is_half if _HALF.search(body) else _is_not_finite
    try:
        return _place(json.loads(body.decode()), wanted) or ()
    except (ValueError, RecursionError):
        return ()


def _is_not_finite(part: Any) -> bool:
    return type(part) is float and not math.isfinite(part)


def _is_half(part: Any) -> bool:
    """Whether a part is no number, or holds half of a surrogate pair."""
    if type(part) is str:
        return _SURROGATE.search(part) is not None
    if type(part) is dict:
        return any(map(_SURROGATE.search, part))
    return _is_not_finite(part)


def _place(value: Any, wanted: Callable[[Any], bool]) -> Path | None:
    """Path of the first part of a document, in its order, that is wanted; the path is made of what leads there only."""
    if wanted(value):
        return ()
    ways, path = [_parts(value)], list[str | int]()
    while ways:
        for key, part in ways[-1]:
            if wanted(part):
                return (*path, key)
            if isinstance(part, dict | list):
                path.append(key)
                ways.append(_parts(part))
                break
        else:
            ways.pop()
            if path:
                path.pop()
    return None


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list) else iter(())
