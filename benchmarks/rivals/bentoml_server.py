"""BentoML: a service class, a worker per core; the argument is an array, as its own examples take features."""

from __future__ import annotations

import os

import bentoml
import numpy as np
from numpy.typing import NDArray

from benchmarks.rivals.pipeline import Pipeline


@bentoml.service(workers=int(os.environ["RIVALS_WORKERS"]), logging={"access": {"enabled": False}})
class Reranker:
    """Scores candidate lists."""

    def __init__(self) -> None:
        self._pipeline = Pipeline()

    @bentoml.api
    def rerank(self, features: NDArray[np.float32]) -> list[float]:
        """Return scores in input order."""
        return self._pipeline.scores(features)
