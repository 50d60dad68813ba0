"""Every path that the service answers, and which of them are probes."""

from __future__ import annotations

import re

RERANK = "/rerank"
RERANK_ALIASES = ("/v1/rerank", "/v2/rerank")
"""Paths that clients of other rerankers use."""

EXPLAIN = "/explain"

EVENTS = "/ubi/events"

LIVE, READY = "/livez", "/readyz"
INFO, METRICS, OPENAPI = "/info", "/metrics", "/openapi.json"

ADMIN = "/admin/"
"""Prefix of the paths that only the operator's key opens."""

RELOAD, ROLLBACK = f"{ADMIN}reload", f"{ADMIN}rollback"

INFERENCE = "/v2"
INFERENCE_LIVE, INFERENCE_READY = f"{INFERENCE}/health/live", f"{INFERENCE}/health/ready"
INFERENCE_MODELS = f"{INFERENCE}/models/"
MODEL = (f"{INFERENCE_MODELS}{{name}}", f"{INFERENCE_MODELS}{{name}}/versions/{{version}}")
"""A model of the Open Inference Protocol: its current version, and the one that is named."""

INFER = (f"{MODEL[0]}/infer", f"{MODEL[1]}/infer")
MODEL_READY = (f"{MODEL[0]}/ready", f"{MODEL[1]}/ready")

GRPC_SERVICE = "inference.GRPCInferenceService"
"""The service of the Open Inference Protocol over gRPC, and its methods as paths; below, that of gRPC's health."""

GRPC_INFER, GRPC_MODEL, GRPC_MODEL_READY, GRPC_LIVE, GRPC_READY, GRPC_METADATA = GRPC = tuple(
    f"/{GRPC_SERVICE}/{method}"
    for method in ("ModelInfer", "ModelMetadata", "ModelReady", "ServerLive", "ServerReady", "ServerMetadata")
)

GRPC_HEALTH_SERVICE = "grpc.health.v1.Health"
GRPC_CHECK, GRPC_LIST, GRPC_WATCH = GRPC_CHECKS = tuple(
    f"/{GRPC_HEALTH_SERVICE}/{method}" for method in ("Check", "List", "Watch")
)

UI = "/ui"
UI_PAGE, UI_FILES = f"{UI}/", f"{UI}/{{name:path}}"
"""The page and its files, which need no key: they hold no data."""

UI_BUNDLE, UI_REPORT = f"{UI}/bundle", f"{UI}/report"

HEALTH = frozenset((LIVE, READY, INFERENCE_LIVE, INFERENCE_READY))
GRPC_HEALTH = frozenset((GRPC_LIVE, GRPC_READY, *GRPC_CHECKS))
INFORMATION = frozenset((INFO, METRICS, OPENAPI))

PROBES = frozenset((*HEALTH, METRICS, *MODEL_READY, *GRPC_HEALTH, GRPC_MODEL_READY))
"""Paths that machines poll: neither logged nor traced, and answered when nothing else is."""


def _pattern_of(routes: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern for the paths of routes; each placeholder is one segment."""
    return re.compile("|".join(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(route)) for route in routes))


_PROBES = _pattern_of(tuple(sorted(PROBES)))
RANKINGS = _pattern_of((RERANK, *RERANK_ALIASES, *INFER, GRPC_INFER))
"""The paths that rank."""


def is_inference(path: str) -> bool:
    """Return whether a path is of the Open Inference Protocol, whose clients look for a member ``error``."""
    return (path == INFERENCE or path.startswith(f"{INFERENCE}/")) and path not in RERANK_ALIASES


def is_probe(path: str) -> bool:
    """Return whether a path is a probe's."""
    return _PROBES.fullmatch(path) is not None


def route_of(path: str) -> str:
    """Return the route of a path that ranks: names are replaced by their placeholders."""
    if not path.startswith(INFERENCE_MODELS):
        return path
    return INFER[1] if "/versions/" in path else INFER[0]
