"""A GRU or LSTM as the one ONNX operator that it is.

Left to itself, torch's exporter writes a loop of small operators, or unrolls the recurrence to the example's length.
ONNX has both cells as operators, which its runtimes compute at once: only the gates stand in another order there.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""Which of torch's gates stands where in ONNX: update, reset, new; and input, output, forget, cell."""


class OnnxReader(nn.Module):
    """Stands for a reader of one layer while it is exported; it computes nothing in torch.

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

    def forward(self, x: Float[Tensor, "1 L H"]) -> tuple[Float[Tensor, "1 L S"], Any]:
        """What the reader gives: outputs, and its last state or states."""
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
    """The gates of a weight or bias in ONNX's order."""
    gates = value.detach().chunk(len(_GATES[mode]))
    return torch.cat([gates[gate] for gate in _GATES[mode]])
