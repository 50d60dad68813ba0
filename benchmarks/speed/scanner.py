"""``python -m benchmarks.speed.scanner``: from a JSON body to a float32 matrix, by our scanner and by libraries.

Lists of 10, 100 and 1000 candidates with 136 features, in both forms: rows by name, and one matrix under shared names.
The libraries read the same bodies as an engineer would write it, with the types declared where the library knows types,
and check nothing else. Ours checks the whole contract. All take turns; a ratio is of medians.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pydantic_core
import simdjson
from jaxtyping import Float
from starlette.datastructures import State

from benchmarks.load.service import bodies
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright.service.bundles.models import Models, models_of
from listwright.service.settings import Settings
from listwright.service.wire import json_codec
from listwright.service.wire.json_codec import JsonBounds, JsonCodec
from listwright_lab import machine

ROUNDS = {10: 400, 100: 200, 1000: 30}
WARM_UP = 5

Matrix = Float[np.ndarray, "L D"]
Reader = Callable[[bytes], Matrix]


class NamedRow(msgspec.Struct):
    """Candidate with its features by name."""

    features: dict[str, float | None]


class NamedRows(msgspec.Struct):
    """Request body with rows by name."""

    candidates: list[NamedRow]


class SharedNames(msgspec.Struct):
    """Request body with one matrix."""

    features: list[list[float | None]]


def main() -> int:
    """Run the command line; write ``benchmarks/results/scanner.json``."""
    with tempfile.TemporaryDirectory() as folder:
        models = models_of(bundle.load(build(Path(folder) / "wide" / "1")))
        table = [row for length in ROUNDS for row in compare(models, length)]
    print(machine.save("scanner", "python -m benchmarks.speed.scanner", {"features": 136, "table": table}))
    return 0


def compare(models: Models, length: int) -> list[dict[str, object]]:
    """Return each reader's milliseconds for one length, in both forms; exit if two readers disagree."""
    usual = models.default_bundle
    assert usual is not None
    names = usual.reranker.schema.names
    sent = bodies(usual.reranker, rows(np.random.default_rng(length), length))
    table: list[dict[str, object]] = []
    for form, by_name in (("rows_by_name", True), ("matrix", False)):
        readers = {**ours(models), **(libraries_by_name(names) if by_name else libraries_of_matrix())}
        matrices = {name: read(sent[form]) for name, read in readers.items()}
        if not all(np.array_equal(matrix, matrices["scanner"]) for matrix in matrices.values()):
            raise SystemExit(f"the readers disagree on {form} of {length} candidates")
        medians = timed(readers, sent[form], ROUNDS[length])
        for name, milliseconds in medians.items():
            over = round(milliseconds / medians["scanner"], 2)
            row = {"candidates": length, "form": form, "reader": name, "ms": round(milliseconds, 4)}
            table.append({**row, "over_scanner": over})
            print(row, over, flush=True)
    return table


def timed(readers: dict[str, Reader], body: bytes, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(WARM_UP + rounds):
        for name, read in readers.items():
            began = time.perf_counter()
            read(body)
            if number >= WARM_UP:
                times[name].append((time.perf_counter() - began) * 1e3)
    return {name: float(np.median(values)) for name, values in times.items()}


def ours(models: Models) -> dict[str, Reader]:
    """Return the service's codec as it is, and without its scanner: pydantic's parser, then validation."""
    settings = Settings()
    bounds = JsonBounds(settings)

    def scanned(body: bytes) -> Matrix:
        return JsonCodec(bounds, models, settings, State()).decode(body).candidates.features

    def general(body: bytes) -> Matrix:
        module = vars(json_codec)
        scanner, module["json_fast"] = module["json_fast"], None
        try:
            return scanned(body)
        finally:
            module["json_fast"] = scanner

    return {"scanner": scanned, "without the scanner": general}


def libraries_by_name(names: tuple[str, ...]) -> dict[str, Reader]:
    """Return readers of rows by name."""
    typed = msgspec.json.Decoder(NamedRows)
    parser: Any = simdjson.Parser()

    def by_msgspec(body: bytes) -> Matrix:
        candidates = typed.decode(body).candidates
        return np.array([[candidate.features[name] for name in names] for candidate in candidates], dtype=np.float32)

    def by_simdjson(body: bytes) -> Matrix:
        candidates = parser.parse(body)["candidates"]
        return np.array([[candidate["features"][name] for name in names] for candidate in candidates], dtype=np.float32)

    def by_pydantic(body: bytes) -> Matrix:
        candidates = pydantic_core.from_json(body)["candidates"]
        return np.array([[candidate["features"][name] for name in names] for candidate in candidates], dtype=np.float32)

    return {"msgspec": by_msgspec, "simdjson": by_simdjson, "pydantic_core": by_pydantic}


def libraries_of_matrix() -> dict[str, Reader]:
    """Return readers of one matrix."""
    typed = msgspec.json.Decoder(SharedNames)
    parser: Any = simdjson.Parser()

    def by_msgspec(body: bytes) -> Matrix:
        return np.array(typed.decode(body).features, dtype=np.float32)

    def by_simdjson(body: bytes) -> Matrix:
        features = parser.parse(body)["features"]
        flat = np.frombuffer(features.as_buffer(of_type="d"))
        return flat.reshape(len(features), -1).astype(np.float32)

    def by_pydantic(body: bytes) -> Matrix:
        return np.array(pydantic_core.from_json(body)["features"], dtype=np.float32)

    return {"msgspec": by_msgspec, "simdjson": by_simdjson, "pydantic_core": by_pydantic}


if __name__ == "__main__":
    sys.exit(main())
