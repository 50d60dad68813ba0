"""What scores a list as a whole: ONNX graphs, and the second stages of a bundle made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import onnxruntime
from jaxtyping import Float, Int
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from listwright.ranking.candidates import FirstPass, Route
from listwright.ranking.errors import ScoringError
from listwright.ranking.manifest import Manifest
from listwright.ranking.onnx_graph import check_graph
from listwright.ranking.order import mixture
from listwright.ranking.stages import NetworkStage, SecondStage

ORT_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    UnicodeDecodeError,  # where ONNX Runtime quotes the bytes of a damaged graph
)


def session_options() -> onnxruntime.SessionOptions:
    """Return the options of a session on one thread: parallelism is across requests and worker processes.

    Spinning is off because a request that waits must not burn the core that another one needs.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.log_severity_level = 4  # it would write to stderr itself; its errors arrive as exceptions
    return options


@runtime_checkable
class Scorer(Protocol):
    """A model that scores a list as a whole."""

    def score(self, features: Float[np.ndarray, "C E"]) -> Float[np.ndarray, " C *columns"]:
        """Return ``(C,)`` finite scores, comparable within this list only; ``(C, K)`` for K specialists.

        Raises:
            ScoringError: if the graph fails or a score is not finite.
        """
        ...


class OnnxScorer:
    """An ONNX graph ``features (C, E) float32 -> scores (C,) or (C, K) float32`` on one thread.

    Args:
        model: Serialised graph, with its weights inside.
        width: Number E of columns of the input.
        columns: Number K of columns of the output; None for one score per row without a column axis.
        name: Name of the stage, for messages.

    ``metadata`` are the graph's own.

    Raises:
        ScoringError: if it is not such a graph, or holds what :mod:`listwright.ranking.onnx_graph` does not let
            through.
    """

    def __init__(self, model: bytes, width: int, *, columns: int | None = None, name: str = "second stage") -> None:
        try:
            self._session = onnxruntime.InferenceSession(
                check_graph(model), session_options(), providers=["CPUExecutionProvider"]
            )
        except ORT_ERRORS as error:
            raise ScoringError(f"not an ONNX graph that can run here: {error}") from error
        self.metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map
        self._name, self._tail = name, () if columns is None else (columns,)
        inputs = [(i.name, i.shape[1:], i.type) for i in self._session.get_inputs()]
        outputs = [o.name for o in self._session.get_outputs()]
        if inputs != [("features", [width], "tensor(float)")] or outputs != ["scores"]:
            expected = "(C,)" if columns is None else f"(C, {columns})"
            raise ScoringError(f"the graph maps {inputs} to {outputs}, not features (C, {width}) to scores {expected}")

    def score(self, features: Float[np.ndarray, "C E"]) -> Float[np.ndarray, " C *columns"]:
        """Return ``(C,)`` or ``(C, K)`` finite scores."""
        try:
            (scores,) = self._session.run(["scores"], {"features": features})
        except ORT_ERRORS as error:
            raise ScoringError(f"the {self._name} failed: {error}") from error
        if scores.shape != (len(features), *self._tail):
            raise ScoringError(f"the {self._name} gave scores of shape {scores.shape} for {len(features)} candidates")
        return all_finite(scores, self._name)


def all_finite(scores: Float[np.ndarray, " L *columns"], what: str) -> Float[np.ndarray, " L *columns"]:
    """Return the scores, if every one is finite.

    Raises:
        ScoringError: naming the first candidate without a score.
    """
    finite = np.isfinite(scores)
    if not finite.all():
        where = int(np.argwhere(~finite)[0][0])
        raise ScoringError(f"the {what} gave {scores[~finite][0]} for candidate {where}")
    return scores


class SecondPass:
    """Scores by networks, specialists and their mixture. Threads may share it.

    Args:
        manifest: Manifest of the bundle.
        networks: Networks by kind.
        specialists: SRM's rankers, ``(C, E) -> (C, K)``; None where the bundle has none.
    """

    def __init__(self, manifest: Manifest, networks: Mapping[str, Scorer], specialists: Scorer | None = None) -> None:
        self.manifest, self.networks, self.specialists = manifest, networks, specialists
        self._stages: dict[str, NetworkStage] = {stage.kind: stage for stage in manifest.second_stages}

    def stage(self, strategy: str) -> SecondStage:
        """Return the manifest's entry of a strategy that has one: a network's kind, or ``srm``."""
        if strategy == "srm":
            assert self.manifest.srm is not None
            return self.manifest.srm
        return self._stages[strategy]

    def score(
        self, first: FirstPass, route: Route, specialists: Float[np.ndarray, "M K"] | None = None
    ) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, " C"]]:
        """Return the candidates that reach the route's stage, in input order, and their scores.

        Args:
            first: List after the first stage.
            route: Route to a second stage.
            specialists: ``(M, K)`` scores of all K specialists for the M candidates that reach them, if routing has
                computed them.

        Raises:
            ScoringError: if the stage fails.
        """
        stage = self.stage(route.strategy)
        positions = first.select(stage)
        if route.strategy != "srm":
            return positions, self.networks[route.strategy].score(first.inputs(positions, stage))
        if specialists is None:
            positions, specialists = self.specialist_scores(first)
        return positions, self.routed(specialists, route)

    def specialist_scores(self, first: FirstPass) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, "C K"]]:
        """Return the candidates that reach the specialists, in input order, and their scores by each of them."""
        assert self.specialists is not None
        stage = self.stage("srm")
        positions = first.select(stage)
        return positions, self.specialists.score(first.inputs(positions, stage))

    def routed(self, scores: Float[np.ndarray, "C K"], route: Route) -> Float[np.ndarray, " C"]:
        """Return the scores of the route's specialist; or the mixture's, where it names none.

        The mixture stands under the router's probabilities, or under its own weights where the router did not run.
        """
        if route.specialist is not None:
            return scores[:, route.specialist]
        if route.probabilities is not None:
            return mixture(scores, route.probabilities)
        assert self.manifest.srm is not None
        return mixture(scores, np.array([specialist.weight for specialist in self.manifest.srm.specialists]))
