"""ONNX graphs as scorers: one score per candidate, the whole list looked at."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import onnxruntime
from jaxtyping import Float
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from listwright.ranking.errors import ScoringError
from listwright.ranking.first_stage import all_finite
from listwright.ranking.onnx_graph import checked

_ORT_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    UnicodeDecodeError,  # where ONNX Runtime quotes the bytes of a damaged graph
)


@runtime_checkable
class Scorer(Protocol):
    """Scores a list as a whole."""

    def score(self, features: Float[np.ndarray, "C E"]) -> Float[np.ndarray, " C *columns"]:
        """``(C,)`` finite scores, comparable within this list only; ``(C, K)`` for K specialists.

        Raises:
            ScoringError: if the graph fails or a score is not finite.
        """
        ...


class OnnxScorer:
    """An ONNX graph ``features (C, E) float32 -> scores (C,) or (C, K) float32`` on one thread.

    One thread because parallelism is across requests and worker processes; spinning is off because a request that
    waits must not burn the core that another one needs.

    Args:
        model: the serialised graph, with its weights inside.
        width: E, columns of the input.
        columns: K; None for one score per row without a column axis.
        name: of the stage, for messages.

    Raises:
        ScoringError: if it is not such a graph, or holds what :mod:`listwright.ranking.onnx_graph` does not let
            through.
    """

    def __init__(self, model: bytes, width: int, *, columns: int | None = None, name: str = "second stage") -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.load_model_format", "ONNX")
        options.log_severity_level = 4  # it would write to stderr itself; its errors arrive as exceptions
        try:
            self._session = onnxruntime.InferenceSession(checked(model), options, providers=["CPUExecutionProvider"])
        except _ORT_ERRORS as error:
            raise ScoringError(f"not an ONNX graph that can run here: {error}") from error
        self._name, self._tail = name, () if columns is None else (columns,)
        inputs = [(i.name, i.shape[1:], i.type) for i in self._session.get_inputs()]
        outputs = [o.name for o in self._session.get_outputs()]
        if inputs != [("features", [width], "tensor(float)")] or outputs != ["scores"]:
            expected = "(C,)" if columns is None else f"(C, {columns})"
            raise ScoringError(f"the graph maps {inputs} to {outputs}, not features (C, {width}) to scores {expected}")

    def score(self, features: Float[np.ndarray, "C E"]) -> Float[np.ndarray, " C *columns"]:
        """``(C,)`` or ``(C, K)`` finite scores."""
        try:
            (scores,) = self._session.run(["scores"], {"features": features})
        except _ORT_ERRORS as error:
            raise ScoringError(f"the {self._name} failed: {error}") from error
        if scores.shape != (len(features), *self._tail):
            raise ScoringError(f"the {self._name} gave scores of shape {scores.shape} for {len(features)} candidates")
        return all_finite(scores, self._name)
