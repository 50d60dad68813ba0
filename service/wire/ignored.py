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
    """Features that a process has ignored. For one thread: the event loop's."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._noted_names: dict[tuple[str, str], set[str]] = {}

    def note(self, manifest: Manifest, names: Sequence[str]) -> None:
        """Count and log unknown features of a request, at least one."""
        self._telemetry.ignored.labels(manifest.name, manifest.version).inc(len(names))
        key = (manifest.name, manifest.version)
        if key not in self._noted_names and len(self._noted_names) == MOST_VERSIONS:
            self._noted_names.pop(next(iter(self._noted_names)))
        noted_names = self._noted_names.setdefault(key, set())
        for name in map(shorten, names):
            if len(noted_names) < MOST_NAMED and name not in noted_names:
                noted_names.add(name)
                _log.warning("%s/%s does not know feature %r: ignored, as LISTWRIGHT_UNKNOWN_FEATURES says", *key, name)
                if len(noted_names) == MOST_NAMED:
                    _log.warning("%s/%s: further unknown features are not logged", *key)
