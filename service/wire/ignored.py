"""Features that callers send and a bundle does not know, where they are ignored: counted, and named once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from listwright.ranking.manifest import Manifest
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.json_codec import shorten

MOST_NAMED = 100
"""Names of a version that are logged: a caller could send any number of them."""

MOST_VERSIONS = 64

_log = logging.getLogger("listwright.service")


class IgnoredFeatures:
    """Features that a process has ignored. For one thread: the event loop's.

    Args:
        telemetry: where ignored features are counted.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._named: dict[tuple[str, str], set[str]] = {}

    def note(self, manifest: Manifest, names: Sequence[str]) -> None:
        """Count and log unknown features of a request, at least one."""
        self._telemetry.ignored.labels(manifest.name, manifest.version).inc(len(names))
        key = (manifest.name, manifest.version)
        if key not in self._named and len(self._named) == MOST_VERSIONS:
            self._named.pop(next(iter(self._named)))
        named = self._named.setdefault(key, set())
        for name in map(shorten, names):
            if len(named) < MOST_NAMED and name not in named:
                named.add(name)
                _log.warning("%s/%s does not know feature %r: ignored, as LISTWRIGHT_UNKNOWN_FEATURES says", *key, name)
                if len(named) == MOST_NAMED:
                    _log.warning("%s/%s: no further unknown feature is named", *key)
