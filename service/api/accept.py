"""What a caller accepts as the answer: the header ``Accept`` (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_RANGE = re.compile(r"\s*(?P<range>[^\s;/]+/[^\s;/]+)\s*(?:;(?P<parameters>.*))?", re.DOTALL)
_QUALITY = re.compile(r"(?:^|;)\s*q\s*=\s*(?P<q>[^;]*)", re.IGNORECASE)
_VALUE = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class _Preference(NamedTuple):
    """How much a caller wants a media type; the larger wins.

    Args:
        quality: q, from 0 (never) to 1.
        specific: 2 if it is named, 1 for ``type/*``, 0 for ``*/*`` or no ``Accept`` at all.
    """

    quality: float
    specific: int


def prefers(accept: Iterable[str], media_type: str, default: str) -> bool:
    """Whether the answer should have a media type and not the default one.

    Args:
        accept: lines of the header.
        media_type, default: the two that can be had.

    Convention: between two that are equally wanted, the one that is named wins, and the first of two that are. Where
    neither is wanted, the answer has the default one: the header may be disregarded.
    """
    ranges = dict(_ranges(accept))
    wanted, otherwise = _preference(ranges, media_type), _preference(ranges, default)
    return wanted.quality > 0.0 and (wanted > otherwise or (wanted == otherwise and wanted.specific == 2))


def _preference(ranges: Mapping[str, float], media_type: str) -> _Preference:
    """What the most specific range that matches says; without any range, everything is accepted."""
    if not ranges:
        return _Preference(1.0, 0)
    for specific, name in ((2, media_type), (1, media_type.partition("/")[0] + "/*"), (0, "*/*")):
        if name in ranges:
            return _Preference(ranges[name], specific)
    return _Preference(0.0, 0)


def _ranges(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Ranges with their q; one that is malformed says nothing. No type that we know has parameters in quotes."""
    for line in accept:
        for element in line.split(","):
            found = _RANGE.fullmatch(element)
            quality = _QUALITY.search(found["parameters"] or "") if found else None
            value = quality["q"].strip() if quality else "1"
            if found and _VALUE.fullmatch(value):
                yield found["range"].lower(), float(value)
