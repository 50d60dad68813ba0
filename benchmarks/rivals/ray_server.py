"""Ray Serve: ``python -m benchmarks.rivals.ray_server PORT FOLDER``; a replica per core behind its HTTP proxy."""

from __future__ import annotations

import os
import signal
import sys
import threading

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.rivals.pipeline import Pipeline

WORKERS = int(os.environ["RIVALS_WORKERS"])


@serve.deployment(num_replicas=WORKERS, ray_actor_options={"num_cpus": 1}, logging_config={"enable_access_log": False})
class Reranker:
    """Scores candidate lists."""

    def __init__(self) -> None:
        self._pipeline = Pipeline()

    async def __call__(self, request: Request) -> dict[str, list[float]]:
        """Return scores in input order."""
        return {"scores": self._pipeline.scores((await request.json())["features"])}


if __name__ == "__main__":
    port, folder = int(sys.argv[1]), sys.argv[2]
    ray.init(
        num_cpus=WORKERS,
        object_store_memory=200 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"enable_access_log": False})
    serve.run(Reranker.bind(), route_prefix="/rerank")  # type: ignore[attr-defined]
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    serve.shutdown()
    ray.shutdown()
