"""Plain FastAPI: a pydantic model with ``list[list[float]]`` and a plain function, which FastAPI runs in a thread."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.rivals.pipeline import Pipeline


class Request(BaseModel):
    """One row of features per candidate."""

    features: list[list[float]]


class Answer(BaseModel):
    """One score per candidate."""

    scores: list[float]


app = FastAPI()
pipeline = Pipeline()


@app.post("/rerank")
def rerank(request: Request) -> Answer:
    """Return scores in input order."""
    return Answer(scores=pipeline.scores(request.features))
