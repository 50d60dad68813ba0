"""Fitted second stages as ONNX graphs, ``features (C, E) -> scores (C,)``.

QILCM's is written operator by operator, in milliseconds where torch's exporter takes seconds. Runtimes know few of the
fusions below, so they are made here, by algebra:

- ``elu(x) + 1 = max(x, 0) + exp(min(x, 0))`` runs in vector registers where ELU does not; the 1 goes into the bias of
  the layer that follows, and centring removes it from the representation.
- Query normalisation works per dimension, so the mean and variance of ``c * h`` are ``c`` and ``c^2`` times those of
  ``h``: they are computed once, over half of the dimensions, and as matrix products with the attention.
- What the ranking MLP sees twice, times the mean and as it is, are the same columns at two scales. The scales go into
  the weights of its first layer, which is then half as wide: cheaper from some thirty candidates on, a few
  microseconds dearer below.
- ``log(1 + x)`` is corrected by its own rounding error to first order, without a branch.
- ``1 / (sigma + eps)`` as printed turns float32's rounding of a constant dimension into 0.1 and more. So under
  ``query_norm = "paper"`` all up to the normalised representation is computed in float64, but for the attention.

The rivals are exported as they are, but for the recurrence of those of ``listwright-lab``.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from jaxtyping import Float
from onnx import TensorProto, helper
from torch import nn

from listwright.ranking.errors import ScoringError
from listwright.ranking.features import UNKNOWN_CODE
from listwright.training.export.graph_writer import IR_VERSION, OPSET, GraphWriter
from listwright.training.networks.qilcm import PAPER_EPSILON, STABLE_EPSILON, QilcmNetwork
from listwright.training.networks.ranker import Preprocess, Ranker, Unbatched

_LARGE = 1e30

_ROUNDING = 5e-7
"""Spread over a list, as a share of the mean, that equal candidates can have: runtimes compute the last rows of a
matrix product by other instructions than the rest. Query normalisation would enlarge it by ``1 / STABLE_EPSILON``.
"""


def ranker_graph(model: Ranker) -> bytes:
    """Return the graph of a fitted second stage, for one list without padding, in the form that is fastest to serve."""
    width = len(model.preprocess.numeric) + len(model.preprocess.categorical)
    if isinstance(model.network, QilcmNetwork):
        return _QilcmGraph(model.network).of(model.preprocess, width)
    if hasattr(model.network, "replace_reader"):  # a rival of listwright-lab
        model = copy.deepcopy(model)
        network: Any = model.network
        network.replace_reader()
    return to_onnx(Unbatched(model), width)


class _QilcmGraph(GraphWriter):
    """Graph of a fitted QILCM under construction: each method appends operators, and returns an output's name."""

    def __init__(self, network: QilcmNetwork) -> None:
        super().__init__()
        self._network = network
        self._type = np.dtype(np.float64 if network.query_norm == "paper" else np.float32)

    def of(self, preprocess: Preprocess, width: int) -> bytes:
        """Return the serialised graph over ``width`` input columns."""
        network = self._network
        x = self._dense(preprocess, self._cast("features", np.float32, self._type))
        shift = np.repeat([0.0, 1.0], [preprocess.width, network.width // 2 - preprocess.width])
        # (L, H), with 1 more than h in the encoder's half
        h = self.add("Concat", x, self._layers(x, network.encoder, np.zeros(preprocess.width), self._type), axis=1)
        a = self._attention(h, shift)
        mean = self._mean(h, a)  # (1, H)
        c = self.add("Sub", mean, self._array(shift[None]))
        if network.query_norm is None:
            representation, ratio = self.add("Sub", h, self._array(shift[None])), c
        else:
            centred = self.add("Sub", h, mean)
            centred = self.add("Sub", centred, self._mean(centred, a))  # twice, as in training
            variance = self._mean(self.add("Mul", centred, centred), a)
            of_product = self._inverse(self.add("Mul", self.add("Mul", c, c), variance))
            alone = self._inverse(variance)
            ratio = self.add("Div", self.add("Mul", c, of_product), alone)
            if network.query_norm == "stable":
                alone = self.add("Mul", alone, self._varies(mean, variance))
            representation = self.add("Mul", centred, alone)
        products, plain = np.split(_to_float64(network.ranking[0].weight).T.astype(np.float32), 2)
        ratio = self.add("Transpose", self._cast(ratio, self._type, np.float32))
        weights = self.add("Add", plain, self.add("Mul", ratio, products))
        representation = self._cast(representation, self._type, np.float32)
        last = self._layers(representation, network.ranking, np.zeros(network.width), weights=weights)
        self.nodes.append(helper.make_node("Squeeze", [last, self.constant(np.array([1]))], ["scores"]))
        graph = helper.make_graph(
            self.nodes,
            "qilcm",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["candidates", width])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["candidates"])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString())

    def _array(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=self._type)

    def _cast(self, value: str, source: Any, target: Any) -> str:
        if np.dtype(source) == np.dtype(target):
            return value
        return self.cast(value, target)

    def _columns(self, value: str, places: list[int]) -> str:
        """Append some columns, taken as rows, which are copied whole: faster from some hundred candidates on."""
        rows = self.add("Gather", self.add("Transpose", value), np.array(places, dtype=np.int64))
        return self.add("Transpose", rows)

    def _dense(self, preprocess: Preprocess, features: str) -> str:
        """Append :class:`listwright.training.networks.ranker.Preprocess`."""
        zero, one = self._array(0.0), self._array(1.0)
        fills, lows, ranges = (
            self._array(_to_float64(value)) for value in (preprocess.fills, preprocess.lows, preprocess.ranges)
        )
        numbers = features
        if preprocess.categorical:
            numbers = self._columns(features, preprocess.numeric)
        missing, size = self.add("IsNaN", numbers), self.add("Abs", numbers)
        u = self.add("Add", size, one)
        rounding = self.add("Sub", size, self.add("Sub", u, one))
        log = self.add("Add", self.add("Log", u), self.add("Div", rounding, u))
        # which has an operator of its own, three times as slow
        sign = self.add("Clip", self.add("Mul", numbers, self._array(_LARGE)), -one, one)
        values = self.add("Where", missing, fills, self.add("Mul", sign, log))
        factors = np.divide(1.0, ranges, out=np.zeros_like(ranges), where=ranges > 0)
        scaled = self.add("Mul", self.add("Sub", values, lows), factors)
        parts = [self.add("Clip", scaled, zero, one)]
        if preprocess.indicated:
            parts.append(self._cast(self._columns(missing, preprocess.indicated), np.bool_, self._type))
        for column, categories, embedding in zip(
            preprocess.categorical, preprocess.sizes, preprocess.embeddings, strict=True
        ):
            code = self.add("Gather", features, np.array(column), axis=1)
            inside = self.add("LessOrEqual", code, self._array(categories))
            inside = self.add("And", self.add("GreaterOrEqual", code, one), inside)
            known = self.add("Where", inside, code, self._array(UNKNOWN_CODE))
            table = self._array(_to_float64(embedding.weight))
            parts.append(self.add("Gather", table, self._cast(known, self._type, np.int64)))
        return self.add("Concat", *parts, axis=1)

    def _layers(
        self,
        x: str,
        layers: nn.Sequential,
        shift: Float[np.ndarray, " X"],
        dtype: Any = np.float32,
        weights: str | None = None,
    ) -> str:
        """Append linear and ELU layers over inputs with ``shift`` too much; after an ELU at the end, 1 is too much."""
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        for number, layer in enumerate(linear, start=1):
            weight = _to_float64(layer.weight)
            bias = _to_float64(layer.bias) - weight @ shift
            x = self.add("Gemm", x, weights or weight.T.astype(dtype), bias.astype(dtype))
            weights, shift = None, np.ones(len(weight))
            if number < len(linear) or isinstance(layers[-1], nn.ELU):
                below = self.add("Clip", x, "", np.zeros((), dtype=dtype))
                x = self.add("Add", self.add("Relu", x), self.add("Exp", below))
        return x

    def _attention(self, h: str, shift: Float[np.ndarray, " H"]) -> str | None:
        """Append ``(1, L)`` attention weights; None where every candidate counts alike."""
        if self._network.attention is None:
            return None
        logits = self._layers(self._cast(h, self._type, np.float32), self._network.attention, shift)
        return self._cast(self.add("Softmax", self.add("Transpose", logits), axis=1), np.float32, self._type)

    def _mean(self, values: str, a: str | None) -> str:
        """Append the ``(1, H)`` mean, weighted by attention or plain."""
        return self.add("ReduceMean", values, np.array([0])) if a is None else self.add("MatMul", a, values)

    def _varies(self, mean: str, variance: str) -> str:
        """Append 1 for a dimension that varies over the list, and 0 for one whose spread is rounding."""
        rounding = self.add("Mul", self.add("Add", self.add("Abs", mean), self._array(1.0)), self._array(_ROUNDING))
        varies = self.add("Greater", variance, self.add("Mul", rounding, rounding))
        return self._cast(varies, np.bool_, self._type)

    def _inverse(self, variance: str) -> str:
        """Append the factor of query normalisation."""
        if self._network.query_norm == "stable":
            sigma = self.add("Sqrt", self.add("Add", variance, self._array(STABLE_EPSILON**2)))
        else:
            sigma = self.add("Add", self.add("Sqrt", variance), self._array(PAPER_EPSILON))
        return self.add("Reciprocal", sigma)


def _to_float64(value: Any) -> Float[np.ndarray, "*shape"]:
    """Return a weight in float64."""
    numbers: Float[np.ndarray, "*shape"] = value.detach().double().numpy()
    return numbers


def to_onnx(module: torch.nn.Module, width: int, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a single-file ONNX graph ``features (C, E) -> scores (C,)`` or ``(C, K)`` with a dynamic list axis.

    Args:
        module: Module that maps ``(C, E)`` float32 to ``(C,)`` scores, or ``(C, K)`` of K specialists, preprocessing
            included; put in eval mode here.
        width: E, raw input columns.
        metadata: Entries of the graph's metadata.

    Returns:
        The serialised graph with every weight inside: a second file with weights could get lost or swapped.
    """
    module = module.eval().to("cpu")
    example = torch.zeros(3, width)  # length 1 would be burnt into the graph as a constant
    with tempfile.TemporaryDirectory() as folder, _quiet_exporter():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            module,
            (example,),
            str(path),
            dynamo=True,
            external_data=False,
            opset_version=OPSET,
            input_names=["features"],
            output_names=["scores"],
            dynamic_shapes={"features": {0: torch.export.Dim("candidates", min=1)}},
            verbose=False,
        )
        graph = onnx.load(path)
    for part in (graph.graph, *graph.graph.node, *graph.graph.value_info, *graph.graph.input, *graph.graph.output):
        del part.metadata_props[:]  # the exporter's notes: where on this machine each line of code stands
    length = graph.graph.input[0].type.tensor_type.shape.dim[0]
    if length.HasField("dim_value"):  # the exporter does not report a length that the module fixed
        raise ScoringError(f"the exported graph takes lists of {length.dim_value} only: the list axis is not dynamic")
    if metadata:
        onnx.helper.set_model_props(graph, dict(metadata))
    return bytes(graph.SerializeToString())


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence the exporter: its warnings about its own internals do not help the person who runs a fit."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
