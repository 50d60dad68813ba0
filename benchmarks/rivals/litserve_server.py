"""LitServe: ``python -m benchmarks.rivals.litserve_server PORT``; an inference worker and an API process per core.

LitServe reads the annotations as objects: no ``from __future__ import annotations`` here.
"""

import os
import sys
from typing import Any

import litserve

from benchmarks.rivals.pipeline import Pipeline


class Reranker(litserve.LitAPI):
    """Scores candidate lists."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        """Load the pipeline, once in every worker."""
        self._pipeline = Pipeline()

    def decode_request(self, request: dict[str, Any]) -> list[list[float]]:
        """Return the rows."""
        rows: list[list[float]] = request["features"]
        return rows

    def predict(self, x: list[list[float]]) -> list[float]:
        """Return scores in input order."""
        return self._pipeline.scores(x)

    def encode_response(self, output: list[float]) -> dict[str, list[float]]:
        """Return the body."""
        return {"scores": output}


if __name__ == "__main__":
    workers = int(os.environ["RIVALS_WORKERS"])
    server = litserve.LitServer(Reranker(api_path="/rerank"), accelerator="cpu", workers_per_device=workers)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=workers,
        generate_client_file=False,
        log_level="warning",
    )
