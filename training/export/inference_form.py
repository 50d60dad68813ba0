"""What is exported: of QILCM the function that :class:`listwright.training.networks.ranker.Unbatched` is, with less to
compute.

Runtimes know few of the fusions below, so they are made here, by algebra:

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

The rivals are exported as they are, but for a reader's recurrence. Left to itself, torch's exporter writes a loop of
small operators, or unrolls it to the example's length. ONNX has GRU and LSTM as operators, which its runtimes compute
at once: only the gates stand in another order there.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from listwright.training.networks.qilcm import PAPER_EPSILON, STABLE_EPSILON, QilcmNetwork
from listwright.training.networks.ranker import Preprocess, Ranker, Unbatched
from listwright.training.networks.recurrent import DcmNetwork, DlcmNetwork

_LARGE = 1e30


def to_export(model: Ranker) -> nn.Module:
    """Return the module for one list without padding, ``(L, E) -> (L,)``, in the form that is fastest to serve."""
    if isinstance(model.network, QilcmNetwork):
        return InferenceForm(model)
    if isinstance(model.network, DlcmNetwork | DcmNetwork):
        model = copy.deepcopy(model)
        reader = model.network.get_submodule("reader")
        assert isinstance(reader, nn.RNNBase)
        model.network.add_module("reader", OnnxReader(reader))
    return Unbatched(model)


class InferenceForm(nn.Module):
    """One list without padding, ``(L, E) -> (L,)``, in eval mode.

    Args:
        model: a fitted QILCM; its weights are copied.
    """

    shift: Tensor
    of_products: Tensor
    of_plain: Tensor

    def __init__(self, model: Ranker) -> None:
        super().__init__()
        network = model.network
        assert isinstance(network, QilcmNetwork)
        self.query_norm = network.query_norm
        precision = torch.float64 if self.query_norm == "paper" else torch.float32
        self.scale = _Scale(copy.deepcopy(model.preprocess).to(precision))
        width = model.preprocess.width
        shift = torch.cat([torch.zeros(width), torch.ones(network.width // 2 - width)])
        self.register_buffer("shift", shift[None].to(precision))
        self.encoder = _Layers(network.encoder, precision=precision)
        self.attention = None if network.attention is None else _Layers(network.attention, shift)
        self.ranking = _Layers(network.ranking)
        of_products, of_plain = self.ranking.weights[0].detach().chunk(2)
        self.register_buffer("of_products", of_products.clone())
        self.register_buffer("of_plain", of_plain.clone())

    def forward(self, features: Float[Tensor, "L E"]) -> Float[Tensor, " L"]:
        """Return ``(L,)`` scores."""
        x = self.scale(features.to(self.shift))
        h = torch.cat([x, self.encoder(x)], dim=1)  # (L, H), with 1 more than h in the encoder's half
        a = self._attended(h)
        mean = _mean(h, a)  # (1, H)
        c = mean - self.shift
        if self.query_norm is None:
            return self._ranked(h - self.shift, c)
        centred = h - mean
        centred = centred - _mean(centred, a)  # twice, as in training
        variance = _mean(centred * centred, a)
        products, plain = self._inverse(c * c * variance), self._inverse(variance)
        return self._ranked(centred * plain, c * products / plain)

    def _attended(self, h: Float[Tensor, "L H"]) -> Float[Tensor, "1 L"] | None:
        """Return attention weights; None where every candidate counts alike."""
        if self.attention is None:
            return None
        return torch.softmax(self.attention(h.to(self.of_plain)).T, dim=1).to(h)

    def _ranked(self, h: Float[Tensor, "L H"], ratio: Float[Tensor, "1 H"]) -> Float[Tensor, " L"]:
        """Return the scores of ``[ratio * h, h]``, eq. (9)."""
        weights = self.of_plain + ratio.T.to(self.of_plain) * self.of_products
        scores: Tensor = self.ranking(h.to(weights), weights)
        return scores.squeeze(1)

    def _inverse(self, variance: Float[Tensor, "1 H"]) -> Float[Tensor, "1 H"]:
        if self.query_norm == "stable":
            return torch.reciprocal(torch.sqrt(variance + STABLE_EPSILON**2))
        return torch.reciprocal(torch.sqrt(variance) + PAPER_EPSILON)


def _mean(values: Float[Tensor, "L H"], a: Float[Tensor, "1 L"] | None) -> Float[Tensor, "1 H"]:
    """Return the mean, weighted by attention or plain."""
    return values.mean(dim=0, keepdim=True) if a is None else a @ values


class _Layers(nn.Module):
    """Linear and ELU layers in turn; after an ELU at the end, 1 is left to be taken off."""

    def __init__(
        self,
        layers: nn.Sequential,
        shift: Float[Tensor, " X"] | None = None,
        *,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self.ends_in_elu = isinstance(layers[-1], nn.ELU)
        above = [torch.zeros(linear[0].in_features) if shift is None else shift]
        above += [torch.ones(layer.in_features) for layer in linear[1:]]
        self.weights = nn.ParameterList(layer.weight.detach().T.to(precision, copy=True) for layer in linear)
        self.biases = nn.ParameterList(
            (layer.bias.detach().double() - layer.weight.detach().double() @ more.double()).to(precision)
            for layer, more in zip(linear, above, strict=True)
        )

    def forward(self, x: Float[Tensor, "L X"], first: Float[Tensor, "X H"] | None = None) -> Float[Tensor, "L out"]:
        """Return ``(L, out)``; with the weights ``first`` instead of the first layer's own."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.addmm(bias, x, weight if number or first is None else first)
            if number < last or self.ends_in_elu:
                x = torch.relu(x) + torch.exp(torch.clamp(x, max=0.0))
        return x


class _Scale(nn.Module):
    """:class:`listwright.training.networks.ranker.Preprocess` over one list."""

    factors: Tensor

    def __init__(self, preprocess: Preprocess) -> None:
        super().__init__()
        self.preprocess = preprocess
        self.register_buffer("factors", torch.where(preprocess.ranges > 0, 1.0 / preprocess.ranges, 0.0))

    def forward(self, raw: Float[Tensor, "L E"]) -> Float[Tensor, "L X"]:
        return self.preprocess.assemble(raw, self._scaled)

    def _scaled(self, numbers: Float[Tensor, "L M"], missing: Tensor) -> Float[Tensor, "L M"]:
        size = numbers.abs()
        u = 1.0 + size
        log = torch.log(u) + (size - (u - 1.0)) / u
        sign = torch.clamp(numbers * _LARGE, -1.0, 1.0)  # which has an operator of its own, three times as slow
        values = torch.where(missing, self.preprocess.fills, sign * log)
        return torch.clamp((values - self.preprocess.lows) * self.factors, 0.0, 1.0)


_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""Order of torch's gates in ONNX: update, reset, new; and input, output, forget, cell."""


class OnnxReader(nn.Module):
    """Replaces a reader of one layer during export; it computes nothing in torch.

    Args:
        reader: with ``batch_first`` and biases; its weights are copied.
    """

    weights: Tensor
    recurrent: Tensor
    biases: Tensor

    def __init__(self, reader: nn.RNNBase) -> None:
        super().__init__()
        self.operator, self.size = reader.mode, reader.hidden_size
        weights, recurrent, *biases = (_reordered(value, reader.mode) for value in reader.parameters())
        self.register_buffer("weights", weights[None])
        self.register_buffer("recurrent", recurrent[None])
        self.register_buffer("biases", torch.cat(biases)[None])

    def forward(self, x: Float[Tensor, "1 L H"]) -> tuple[Float[Tensor, "1 L state"], Any]:
        """Return the reader's outputs, and its last state or states."""
        gru = self.operator == "GRU"
        last = (1, 1, self.size)
        shapes = [(x.shape[1], *last), last] + ([] if gru else [last])
        attributes: dict[str, Any] = {"hidden_size": self.size} | ({"linear_before_reset": 1} if gru else {})
        outputs, *states = torch.onnx.ops.symbolic_multi_out(
            self.operator,
            [x.transpose(0, 1), self.weights, self.recurrent, self.biases],  # the list comes first in ONNX
            attributes,
            dtypes=[x.dtype] * len(shapes),
            shapes=shapes,
        )
        return outputs[:, 0].transpose(0, 1), states[0] if gru else tuple(states)


def _reordered(value: Tensor, mode: str) -> Tensor:
    """Return the gates of a weight or bias in ONNX's order."""
    gates = value.detach().chunk(len(_GATES[mode]))
    return torch.cat([gates[gate] for gate in _GATES[mode]])
