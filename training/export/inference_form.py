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
from typing import Any

import numpy as np
import onnx
from jaxtyping import Float
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from listwright.ranking.features import UNKNOWN_CODE
from listwright.training.export.onnx import OPSET, to_onnx
from listwright.training.networks.qilcm import PAPER_EPSILON, STABLE_EPSILON, QilcmNetwork
from listwright.training.networks.ranker import Preprocess, Ranker, Unbatched

_LARGE = 1e30

_ROUNDING = 5e-7
"""Spread over a list, as a share of the mean, that equal candidates can have: runtimes compute the last rows of a
matrix product by other instructions than the rest. Query normalisation would enlarge it by ``1 / STABLE_EPSILON``.
"""

_IR_VERSION = 10
"""IR version that torch's exporter writes."""


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


class _QilcmGraph:
    """Graph of a fitted QILCM under construction: each method appends operators, and returns an output's name."""

    def __init__(self, network: QilcmNetwork) -> None:
        self._network = network
        self._type = np.dtype(np.float64 if network.query_norm == "paper" else np.float32)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def of(self, preprocess: Preprocess, width: int) -> bytes:
        """Return the serialised graph over ``width`` input columns."""
        network = self._network
        x = self._dense(preprocess, self._cast("features", np.float32, self._type))
        shift = np.repeat([0.0, 1.0], [preprocess.width, network.width // 2 - preprocess.width])
        # (L, H), with 1 more than h in the encoder's half
        h = self._add("Concat", x, self._layers(x, network.encoder, np.zeros(preprocess.width), self._type), axis=1)
        a = self._attention(h, shift)
        mean = self._mean(h, a)  # (1, H)
        c = self._add("Sub", mean, self._array(shift[None]))
        if network.query_norm is None:
            representation, ratio = self._add("Sub", h, self._array(shift[None])), c
        else:
            centred = self._add("Sub", h, mean)
            centred = self._add("Sub", centred, self._mean(centred, a))  # twice, as in training
            variance = self._mean(self._add("Mul", centred, centred), a)
            of_product = self._inverse(self._add("Mul", self._add("Mul", c, c), variance))
            alone = self._inverse(variance)
            ratio = self._add("Div", self._add("Mul", c, of_product), alone)
            if network.query_norm == "stable":
                alone = self._add("Mul", alone, self._varies(mean, variance))
            representation = self._add("Mul", centred, alone)
        products, plain = np.split(_to_float64(network.ranking[0].weight).T.astype(np.float32), 2)
        ratio = self._add("Transpose", self._cast(ratio, self._type, np.float32))
        weights = self._add("Add", plain, self._add("Mul", ratio, products))
        representation = self._cast(representation, self._type, np.float32)
        last = self._layers(representation, network.ranking, np.zeros(network.width), weights=weights)
        self._nodes.append(helper.make_node("Squeeze", [last, self._constant(np.array([1]))], ["scores"]))
        graph = helper.make_graph(
            self._nodes,
            "qilcm",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["candidates", width])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["candidates"])],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString())

    def _add(self, operator: str, *inputs: str | np.ndarray | np.generic, **attributes: Any) -> str:
        """Append an operator over earlier outputs and constants."""
        output = f"{operator}_{len(self._nodes)}"
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, value: np.ndarray | np.generic) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def _array(self, values: Any) -> np.ndarray:
        return np.asarray(values, dtype=self._type)

    def _cast(self, value: str, source: Any, target: Any) -> str:
        if np.dtype(source) == np.dtype(target):
            return value
        return self._add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))

    def _columns(self, value: str, places: list[int]) -> str:
        """Append some columns, taken as rows, which are copied whole: faster from some hundred candidates on."""
        rows = self._add("Gather", self._add("Transpose", value), np.array(places, dtype=np.int64))
        return self._add("Transpose", rows)

    def _dense(self, preprocess: Preprocess, features: str) -> str:
        """Append :class:`listwright.training.networks.ranker.Preprocess`."""
        zero, one = self._array(0.0), self._array(1.0)
        fills, lows, ranges = (
            self._array(_to_float64(value)) for value in (preprocess.fills, preprocess.lows, preprocess.ranges)
        )
        numbers = features
        if preprocess.categorical:
            numbers = self._columns(features, preprocess.numeric)
        missing, size = self._add("IsNaN", numbers), self._add("Abs", numbers)
        u = self._add("Add", size, one)
        rounding = self._add("Sub", size, self._add("Sub", u, one))
        log = self._add("Add", self._add("Log", u), self._add("Div", rounding, u))
        # which has an operator of its own, three times as slow
        sign = self._add("Clip", self._add("Mul", numbers, self._array(_LARGE)), -one, one)
        values = self._add("Where", missing, fills, self._add("Mul", sign, log))
        factors = np.divide(1.0, ranges, out=np.zeros_like(ranges), where=ranges > 0)
        scaled = self._add("Mul", self._add("Sub", values, lows), factors)
        parts = [self._add("Clip", scaled, zero, one)]
        if preprocess.indicated:
            parts.append(self._cast(self._columns(missing, preprocess.indicated), np.bool_, self._type))
        for column, categories, embedding in zip(
            preprocess.categorical, preprocess.sizes, preprocess.embeddings, strict=True
        ):
            code = self._add("Gather", features, np.array(column), axis=1)
            inside = self._add("LessOrEqual", code, self._array(categories))
            inside = self._add("And", self._add("GreaterOrEqual", code, one), inside)
            known = self._add("Where", inside, code, self._array(UNKNOWN_CODE))
            table = self._array(_to_float64(embedding.weight))
            parts.append(self._add("Gather", table, self._cast(known, self._type, np.int64)))
        return self._add("Concat", *parts, axis=1)

    def _layers(
        self,
        x: str,
        layers: nn.Sequential,
        shift: Float[np.ndarray, " X"],
        dtype: Any = np.float32,
        weights: str | None = None,
    ) -> str:
        """Append linear and ELU layers in turn, over inputs with ``shift`` too much, the first one with other weights
        where given; after an ELU at the end, 1 is left to be taken off.
        """
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        for number, layer in enumerate(linear, start=1):
            weight = _to_float64(layer.weight)
            bias = _to_float64(layer.bias) - weight @ shift
            x = self._add("Gemm", x, weights or weight.T.astype(dtype), bias.astype(dtype))
            weights, shift = None, np.ones(len(weight))
            if number < len(linear) or isinstance(layers[-1], nn.ELU):
                below = self._add("Clip", x, "", np.zeros((), dtype=dtype))
                x = self._add("Add", self._add("Relu", x), self._add("Exp", below))
        return x

    def _attention(self, h: str, shift: Float[np.ndarray, " H"]) -> str | None:
        """Append ``(1, L)`` attention weights; None where every candidate counts alike."""
        if self._network.attention is None:
            return None
        logits = self._layers(self._cast(h, self._type, np.float32), self._network.attention, shift)
        return self._cast(self._add("Softmax", self._add("Transpose", logits), axis=1), np.float32, self._type)

    def _mean(self, values: str, a: str | None) -> str:
        """Append the ``(1, H)`` mean, weighted by attention or plain."""
        return self._add("ReduceMean", values, np.array([0])) if a is None else self._add("MatMul", a, values)

    def _varies(self, mean: str, variance: str) -> str:
        """Append 1 for a dimension that varies over the list, and 0 for one whose spread is rounding."""
        rounding = self._add("Mul", self._add("Add", self._add("Abs", mean), self._array(1.0)), self._array(_ROUNDING))
        varies = self._add("Greater", variance, self._add("Mul", rounding, rounding))
        return self._cast(varies, np.bool_, self._type)

    def _inverse(self, variance: str) -> str:
        """Append the factor of query normalisation."""
        if self._network.query_norm == "stable":
            sigma = self._add("Sqrt", self._add("Add", variance, self._array(STABLE_EPSILON**2)))
        else:
            sigma = self._add("Add", self._add("Sqrt", variance), self._array(PAPER_EPSILON))
        return self._add("Reciprocal", sigma)


def _to_float64(value: Any) -> Float[np.ndarray, "*shape"]:
    """Return a weight in float64."""
    numbers: Float[np.ndarray, "*shape"] = value.detach().double().numpy()
    return numbers
