"""ONNX graphs whose metadata hold a packed form of themselves, which compiled code scores faster."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from listwright.ranking.scorers import OnnxScorer, Scorer

TOLERANCE = 1e-5
"""Largest difference from ONNX Runtime, in units of the largest score, or of 1; both add up in float32."""

log = logging.getLogger(__name__)

Compile = Callable[[str], tuple[Scorer, Float[np.ndarray, "R E"]]]
"""From the metadata entry to its compiled scorer and the rows to compare it on."""


def open_packed(
    model: bytes, width: int, columns: int, name: str, *, entry: str, compile_packed: Compile | None
) -> Scorer:
    """Open a graph's scorer: compiled where that is built and equals ONNX Runtime on probe rows.

    Args:
        model: Serialised ONNX graph.
        width: Number E of columns of the graph's input.
        columns: Number of columns of the graph's output.
        name: Name of the stage, for messages.
        entry: Name of the metadata entry that holds the packed form.
        compile_packed: Function that reads the packed form; None where the compiled code is not built.

    Raises:
        ScoringError: if it is not such a graph, or the packed form is damaged.
    """
    graph = OnnxScorer(model, width, columns=columns, name=name)
    text = graph.metadata.get(entry)
    if text is None or compile_packed is None:
        return graph
    compiled, rows = compile_packed(text)
    expected = graph.score(rows)
    if np.abs(compiled.score(rows) - expected).max() > TOLERANCE * max(1.0, float(np.abs(expected).max())):
        log.error("the compiled %s differs from its ONNX graph, which is slower and scores instead", name)
        return graph
    return compiled
