"""``python -m benchmarks.load.bodies``: how long a request body may hold the event loop, beside the longest honest
list.

Bodies as hostile as we could think of, each as large as the service lets pass, go through the application in process,
in turns with honest lists of the most candidates by name. The promise: none takes more than three times as long as the
slowest of these.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from starlette.types import Message

from benchmarks.wide_bundle import RANKER, build
from listwright.ranking import bundle
from listwright.ranking.features import FeatureSchema
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.service.wire.json_codec import Bounds, bounds_of
from listwright_lab import machine

HONEST = ("by name", "by name, each in another order", "by name, with accents", "a colon in an id")
"""Lists that people send: most JSON libraries escape what is not ASCII. The slowest of them is the measure."""

ROUNDS = 7
"""Number of turns of all bodies; the quickest time of each counts, as only the machine makes one longer."""

LIMIT = 3.0
"""Largest time of a hostile body, as a multiple of the longest honest list's."""

JSON, NPY = b"application/json", b"application/x-npy"

NamedBody = tuple[str, bytes]


class Maker:
    """Bodies for one schema, just below the limits.

    Args:
        schema: Features of the served bundle.
        bounds: Limits that the service sets to bodies.
    """

    def __init__(self, schema: FeatureSchema, bounds: Bounds) -> None:
        self._names, self._bounds = schema.names, bounds
        rng = np.random.default_rng(5)
        self._rows = np.round(rng.normal(0.0, 3.0, (bounds.candidates, len(schema))), 4).tolist()
        for column in schema.categorical:
            for row in self._rows:
                row[column] = schema.features[column].categories[0]

    def honest(self) -> bytes:
        """Return the longest list by name."""
        return json.dumps({"candidates": self._rows_by_name(), "top_n": 10}).encode()

    def hostile(self) -> Iterator[NamedBody]:
        """Yield every kind of JSON for ``/rerank``."""
        return chain(self._honest_but_slow(), self._ends_in_a_fault(), self._names_and_faults(), self._long_texts())

    def tensors(self) -> Iterator[NamedBody]:
        """Yield JSON for the Open Inference Protocol."""
        head = b'{"inputs":[{"name":"features","shape":[%d,%d],"datatype":"FP32","data":[' % (
            self._bounds.candidates,
            len(self._names),
        )
        yield "tensor of strings", head + self._many(lambda _: b'"a"') + b"]}]}"
        yield "tensor of arrays", head + self._many(lambda _: b"[]") + b"]}]}"

    def matrix(self) -> bytes:
        """Return a ``.npy`` file of missing values."""
        file = io.BytesIO()
        np.save(file, np.full((self._bounds.candidates, len(self._names)), np.nan, dtype="<f4"))
        return file.getvalue()

    def _rows_by_name(self, **more: Any) -> list[dict[str, Any]]:
        return [
            {"id": f"sku-{n}", "features": dict(zip(self._names, row, strict=True)) | more}
            for n, row in enumerate(self._rows)
        ]

    def _many(self, element: Callable[[int], bytes]) -> bytes:
        """Return as many elements as values and bytes allow, with commas."""
        parts, size = list[bytes](), 200
        for number in range(self._bounds.values - 200):
            parts.append(element(number))
            size += len(parts[-1]) + 1
            if size > self._bounds.size_of(number, 2):
                parts.pop()
                break
        return b",".join(parts)

    def _honest_but_slow(self) -> Iterator[NamedBody]:
        backwards = [{**row, "features": dict(reversed(row["features"].items()))} for row in self._rows_by_name()]
        yield "by name, each in another order", json.dumps({"candidates": backwards}).encode()
        escaped = json.dumps([{**row, "id": f"Prag\u00e9 {n}"} for n, row in enumerate(self._rows_by_name())])
        yield "by name, with accents", b'{"candidates":' + escaped.encode() + b"}"
        yield "a colon in an id", self.honest().replace(b'"sku-0"', b'"a\\":b"', 1)
        yield "numbers of 300 digits", b'{"features":[[' + self._many(lambda _: b"0." + b"1" * 300) + b"]]}"

    def _ends_in_a_fault(self) -> Iterator[NamedBody]:
        yield "numbers, then NaN", b'{"features":[[' + self._many(lambda _: b"1") + b",NaN]]}"
        yield "strings, then NaN", b'{"features":[[' + self._many(lambda _: b'"' + b"a" * 26 + b'"') + b",NaN]]}"
        yield "names, then NaN", b'{"context":{' + self._many(lambda n: b'"%d":1' % n) + b'},"id":NaN}'
        yield "rows, then half a surrogate", self.honest()[:-1] + b',"id":"\\ud800"}'
        yield "whole numbers of 4000 digits", b'{"features":[[' + self._many(lambda _: b"7" * 4000) + b"]]}"

    def _names_and_faults(self) -> Iterator[NamedBody]:
        names, one_name = self._many(lambda n: b'"%d":1' % n), self._many(lambda _: b'"a":1')
        texts = self._many(lambda n: b'"%d"' % n)
        count = self._bounds.candidates
        unknown = [{"features": {f"u{n}-{d}": 1 for d in range(len(self._names))}} for n in range(count)]
        fields = b",".join(b'"%d":1' % d for d in range(min(30, self._bounds.values // count - 3)))
        yield "names twice in the context", b'{"context":{' + one_name + b',"a":1}}'
        yield "names twice in a candidate", b'{"candidates":[{"features":{' + one_name + b"}}]}"
        yield "the last name twice", b'{"candidates":[{"features":{' + names + b',"0":1}}]}'
        yield "unknown names in a candidate", b'{"candidates":[{"features":{' + names + b"}}]}"
        yield "unknown names everywhere", json.dumps({"candidates": unknown}).encode()
        yield "one unknown name everywhere", json.dumps({"candidates": self._rows_by_name(unknown=1)}).encode()
        yield "feature_names", b'{"features":[[1]],"feature_names":[' + texts + b"]}"
        yield "ids", b'{"features":[[1]],"ids":[' + texts + b"]}"
        yield "ids of a wrong type", b'{"features":[[1]],"ids":[' + self._many(lambda _: b"1") + b"]}"
        yield "unknown fields", b'{"candidates":[' + b",".join([b"{%s}" % fields] * count) + b"]}"
        yield "faults", b'{"candidates":[' + b",".join([b'{"id":1,"features":[]}'] * count) + b"]}"
        yield "arrays", b'{"features":[' + self._many(lambda _: b"[]") + b"]}"
        deep = b"[" * 190 + b"]" * 190
        yield "deep arrays", b'{"features":[' + b",".join([deep] * (self._bounds.containers // 200)) + b"]}"

    def _long_texts(self) -> Iterator[NamedBody]:
        size = self._bounds.size_of(0, 1) - 200
        for what, unit in (
            ("colons", b'\\":'),
            ("commas", b'\\",'),
            ("brackets", b"["),
            ("backslashes", b"\\\\"),
            ("escapes", b"\\u00e9"),
            ("surrogate pairs", b"\\ud83d\\ude00"),
        ):
            yield f"an id of {what}", b'{"id":"' + unit * (size // len(unit)) + b'"}'
            yield f"an id of {what} and a half", b'{"id":"' + unit * (size // len(unit)) + b'\\ud800"}'
        for what, unit in (("commas", b'\\",'), ("brackets", b"[")):  # as long as is looked at
            yield f"a refused id of {what}", b'{"id":"' + unit * ((self._bounds.size - 200) // len(unit)) + b'"}'
        yield "blanks", b'{"features":[[1]],"id":' + b" " * size + b'"a"}'
        yield "one long name", b'{"' + b"a" * size + b'":1}'


async def answered(app: Any, path: str, media_type: bytes, content: bytes) -> tuple[int, float]:
    """Send a body; return the status of the answer, and the seconds; exit if another ranker than QILCM ranked it."""
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(content))]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "root_path": ""}
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
    status, answer = 0, bytearray()

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        answer.extend(message.get("body", b""))

    began = time.perf_counter()
    await app(scope, receive, send)
    took = time.perf_counter() - began
    if path == "/rerank" and status == 200 and media_type == JSON:
        route = json.loads(answer)["route"]["strategy"]
        if route != RANKER:
            raise SystemExit(f"ranked by {route}: this benchmark measures {RANKER}")
    return status, took


async def measured(served: Path, rounds: int) -> dict[str, Any]:
    """Time all bodies; return the times, and their multiples of the longest honest list's."""
    settings = Settings(bundle=served, timeout_ms=600_000)
    served_bundle = bundle.load(served)
    schema = served_bundle.reranker.schema
    app = create_app(settings, models=served_bundle)
    maker = Maker(schema, bounds_of(settings.max_candidates, [schema]))
    infer = f"/v2/models/{served_bundle.manifest.name}/infer"
    bodies = {"by name": ("/rerank", JSON, maker.honest()), "a matrix of NaN": ("/rerank", NPY, maker.matrix())}
    bodies |= {kind: ("/rerank", JSON, content) for kind, content in maker.hostile()}
    bodies |= {kind: (infer, JSON, content) for kind, content in maker.tensors()}
    seconds: dict[str, list[float]] = {kind: [] for kind in bodies}
    statuses = {}
    async with app.router.lifespan_context(app):
        for _ in range(rounds):
            for kind, body in bodies.items():
                statuses[kind], took = await answered(app, *body)
                seconds[kind].append(took)
    best = {kind: min(times) for kind, times in seconds.items()}
    assert {statuses[kind] for kind in HONEST} == {200}
    honest = max(best[kind] for kind in HONEST)
    table = [
        {
            "body": kind,
            "bytes": len(bodies[kind][2]),
            "status": statuses[kind],
            "ms": round(took * 1000.0, 2),
            "times_honest": round(took / honest, 2),
        }
        for kind, took in sorted(best.items(), key=lambda item: -item[1])
    ]
    facts = {"features": len(schema), "candidates": settings.max_candidates}
    return facts | {"honest_ms": round(honest * 1000.0, 2), "bodies": table}


def main() -> int:
    """Run the command line; write ``benchmarks/results/bodies.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.bodies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, Any] = {
            "demo": asyncio.run(measured(Path("models/demo/1"), options.rounds)),
            "wide": asyncio.run(measured(build(Path(folder) / "wide" / "1"), options.rounds)),
        }
    for name, result in results.items():
        print(f"{name}: the longest honest list, of {result['features']} features, takes {result['honest_ms']} ms")
        for row in result["bodies"]:
            size = f"{row['bytes'] / 1e6:6.2f} MB"
            print(f"{row['times_honest']:7.2f} x {row['ms']:8.2f} ms {size}  {row['status']}  {row['body']}")
    print(machine.save("bodies", "python -m benchmarks.load.bodies", results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
