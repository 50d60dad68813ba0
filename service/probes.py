"""Which requests machines send on and on: neither logged nor traced, and answered when nothing else is."""

from __future__ import annotations

import re

PROBES = frozenset(
    (
        "/livez",
        "/readyz",
        "/metrics",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/{name}/ready",
        "/v2/models/{name}/versions/{version}/ready",
    )
)
"""Paths of routes."""

_MODEL_READY = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/ready")


def is_probe(path: str) -> bool:
    """Whether a request's path is a probe's."""
    return path in PROBES or _MODEL_READY.fullmatch(path) is not None
