"""Servers to compare, how each is started, and the formats in which each is asked.

Everyone gets the same lists: one process that computes for each of its cores, one thread per inference, no log line per
request.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from benchmarks.rivals.processes import free_port

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Format:
    """Request format: how a list becomes a body, and how the answer becomes ranks in input order."""

    name: str
    path: str
    content_type: str
    write: Callable[[Float[np.ndarray, "L D"], Sequence[str]], bytes]
    read: Callable[[bytes], Int[np.ndarray, " L"]]


@dataclass(frozen=True, slots=True)
class Place:
    """Surroundings of a server: its programs, port and workers, the bundle, a folder for its files."""

    programs: Path
    port: int
    workers: int
    bundle: Path
    scratch: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """Server to measure. ``environment`` names its environment and requirements; None is this one: ours."""

    name: str
    title: str
    environment: str | None
    start: Callable[[Place], tuple[list[str], dict[str, str]]]
    formats: tuple[Format, ...]


def _digits(features: Float[np.ndarray, "L D"]) -> list[list[float]]:
    """Return rows with the digits that float32 has."""
    return [[float(str(value)) for value in row] for row in features.astype(np.float32)]


def _matrix(features: Float[np.ndarray, "L D"], _: Sequence[str]) -> bytes:
    return json.dumps({"features": _digits(features)}).encode()


def _rows_by_name(features: Float[np.ndarray, "L D"], names: Sequence[str]) -> bytes:
    rows = [dict(zip(names, row, strict=True)) for row in _digits(features)]
    return json.dumps({"candidates": [{"id": f"sku-{n}", "features": row} for n, row in enumerate(rows)]}).encode()


def _npy(features: Float[np.ndarray, "L D"], _: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, features)
    return buffer.getvalue()


def _inference_request(features: Float[np.ndarray, "L D"], _: Sequence[str]) -> bytes:
    flat = [value for row in _digits(features) for value in row]
    tensor = {"name": "features", "shape": list(features.shape), "datatype": "FP32", "data": flat}
    return json.dumps({"inputs": [tensor]}).encode()


def _ranks(answer: bytes) -> Int[np.ndarray, " L"]:
    return np.asarray(json.loads(answer)["ranks"])


def _ranks_by(find: Callable[[Any], list[float]]) -> Callable[[bytes], Int[np.ndarray, " L"]]:
    """Return a function that ranks by the scores that ``find`` picks out of a JSON answer."""

    def read(answer: bytes) -> Int[np.ndarray, " L"]:
        order = np.argsort(-np.asarray(find(json.loads(answer))), kind="stable")
        return np.argsort(order) + 1

    return read


SCORES = Format("JSON rows", "/rerank", JSON, _matrix, _ranks_by(lambda answer: answer["scores"]))


def _fastapi(place: Place) -> tuple[list[str], dict[str, str]]:
    uvicorn = [str(place.programs / "uvicorn"), "benchmarks.rivals.fastapi_server:app", "--workers", str(place.workers)]
    quiet = ["--log-level", "warning", "--no-access-log"]
    return [*uvicorn, "--host", "127.0.0.1", "--port", str(place.port), *quiet], {}


def _bentoml(place: Place) -> tuple[list[str], dict[str, str]]:
    bentoml = [str(place.programs / "bentoml"), "serve", "benchmarks.rivals.bentoml_server:Reranker"]
    environment = {"BENTOML_HOME": str(place.scratch), "BENTOML_DO_NOT_TRACK": "True"}
    return [*bentoml, "--host", "127.0.0.1", "--port", str(place.port)], environment


def _litserve(place: Place) -> tuple[list[str], dict[str, str]]:
    return [str(place.programs / "python"), "-m", "benchmarks.rivals.litserve_server", str(place.port)], {}


def _mlserver(place: Place) -> tuple[list[str], dict[str, str]]:
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": str(place.port),
        "GRPC_PORT": str(free_port()),
        "METRICS_PORT": str(free_port()),
        "PARALLEL_WORKERS": str(place.workers if place.workers > 1 else 0),  # one is dearer than none: see the docs
        "DEBUG": "false",
        "MODEL_NAME": "wide",
        "MODEL_IMPLEMENTATION": "benchmarks.rivals.mlserver_server.Reranker",
    }
    environment = {f"MLSERVER_{name}": value for name, value in settings.items()}
    return [str(place.programs / "mlserver"), "start", str(place.scratch)], environment


def _ray(place: Place) -> tuple[list[str], dict[str, str]]:
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # it would write a token into the home directory
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: one machine, the loopback interface only
    }
    ray = [str(place.programs / "python"), "-m", "benchmarks.rivals.ray_server"]
    return [*ray, str(place.port), str(place.scratch)], environment


def _ours(place: Place) -> tuple[list[str], dict[str, str]]:
    settings = {"BUNDLE": place.bundle, "PORT": place.port, "WORKERS": place.workers, "LOG_LEVEL": "warning"}
    return [sys.executable, "-m", "service"], {f"LISTWRIGHT_{name}": str(value) for name, value in settings.items()}


RIVALS = (
    Contender("fastapi", "plain FastAPI", "fastapi", _fastapi, (SCORES,)),
    Contender(
        "bentoml",
        "BentoML",
        "bentoml",
        _bentoml,
        (Format("JSON rows", "/rerank", JSON, _matrix, _ranks_by(lambda answer: answer)),),
    ),
    Contender("litserve", "LitServe", "litserve", _litserve, (SCORES,)),
    Contender(
        "mlserver",
        "MLServer",
        "mlserver",
        _mlserver,
        (
            Format(
                "JSON tensor",
                "/v2/models/wide/infer",
                JSON,
                _inference_request,
                _ranks_by(lambda answer: answer["outputs"][0]["data"]),
            ),
        ),
    ),
    Contender("ray", "Ray Serve", "ray", _ray, (SCORES,)),
)

OURS = Contender(
    "listwright",
    "Listwright",
    None,
    _ours,
    (
        Format("JSON rows", "/rerank", JSON, _matrix, _ranks),
        Format("JSON rows by name", "/rerank", JSON, _rows_by_name, _ranks),
        Format(".npy", "/rerank", "application/x-npy", _npy, _ranks),
    ),
)
