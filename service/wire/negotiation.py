"""The media types of a request's body and of its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from starlette.requests import Request

from listwright.service.errors import UnsupportedMediaTypeError

JSON = re.compile(r"\s*application/([^/;]+\+)?json\s*(;.*)?", re.DOTALL | re.IGNORECASE)
"""Values of ``Content-Type`` that announce JSON."""

_RANGE = re.compile(r"\s*(?P<range>[^\s;/]+/[^\s;/]+)\s*(?:;(?P<parameters>.*))?", re.DOTALL)
_QUALITY = re.compile(r"(?:^|;)\s*q\s*=\s*(?P<q>[^;]*)", re.IGNORECASE)
_VALUE = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


def media_type_of(request: Request) -> str:
    """Return the media type that the body is announced as, without parameters; ``none`` if it has none."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()


def unsupported(request: Request, remedy: str) -> UnsupportedMediaTypeError:
    """Return the error for a body of a media type that the endpoint does not read."""
    return UnsupportedMediaTypeError(f"the body is announced as {media_type_of(request)!r}: send {remedy}")


class _Preference(NamedTuple):
    """A caller's preference for a media type; the larger wins."""

    quality: float  # q, from 0 (never) to 1
    specific: int  # 2 if it is named, 1 for ``type/*``, 0 for ``*/*`` or no ``Accept`` at all


def prefers(accept: Iterable[str], media_type: str, default: str) -> bool:
    """Return whether the answer should have a media type instead of the default one.

    Args:
        accept: Lines of the ``Accept`` header.
        media_type: Media type that the answer can have instead of the default one.
        default: Media type of an answer to a caller without a preference.

    Convention: between two of the same quality, the one that is named wins, and the first of two that are. Where
    neither is acceptable, the answer has the default one: the header may be disregarded.
    """
    ranges = dict(_ranges(accept))
    preference, default_preference = _preference(ranges, media_type), _preference(ranges, default)
    wins = preference > default_preference or (preference == default_preference and preference.specific == 2)
    return preference.quality > 0.0 and wins


def _preference(ranges: Mapping[str, float], media_type: str) -> _Preference:
    """Return the preference of the most specific range that matches; without any range, everything is accepted."""
    if not ranges:
        return _Preference(1.0, 0)
    for specific, name in ((2, media_type), (1, media_type.partition("/")[0] + "/*"), (0, "*/*")):
        if name in ranges:
            return _Preference(ranges[name], specific)
    return _Preference(0.0, 0)


def _ranges(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield ranges with their q; malformed ones are skipped. No known type has parameters in quotes."""
    for line in accept:
        for element in line.split(","):
            match = _RANGE.fullmatch(element)
            quality = _QUALITY.search(match["parameters"] or "") if match else None
            value = quality["q"].strip() if quality else "1"
            if match and _VALUE.fullmatch(value):
                yield match["range"].lower(), float(value)
