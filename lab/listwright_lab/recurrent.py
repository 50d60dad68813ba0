"""DLCM and DCM, rivals of QILCM that read a list one candidate after the other.

Both read it by the first stage's score, or as it is presented. The order is made inside the network, by counting who
stands before whom: exact, the same in torch and in ONNX where sorting is not, and equal scores keep input order.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from listwright.training.networks.qilcm import Encoder, Output
from listwright.training.recipe.model import DcmSpec, DlcmSpec


class _RecurrentNetwork(nn.Module):
    """Network with a recurrent layer that reads one candidate after the other."""

    reader: nn.RNNBase

    def replace_reader(self) -> None:
        """Replace the reader by its ONNX operator, for export; the network computes nothing in torch from then on."""
        self.add_module("reader", OnnxReader(self.reader))


class DlcmNetwork(_RecurrentNetwork):
    """DLCM, the Deep Listwise Context Model.

    Definition (Ai, Bi, Guo, Croft, SIGIR 2018, and the authors' code, strategy ``multi``):
        o_1 .. o_n, s = GRU(h_n .. h_1), the best candidate last
        score_i = 1/H sum_a v_a <o_i, tanh(W_a s + b_a)>

    The GRU is as wide as the encoded candidates; padding is never read.

    Args:
        width: Number X of columns of the dense input.
        spec: Settings of the network.
    """

    def __init__(self, width: int, spec: DlcmSpec) -> None:
        super().__init__()
        self.by_first_stage = spec.order == "first_stage"
        self.encoder = Encoder(width, spec.encoder_width)
        size = self.encoder.encoded
        self.reader = nn.GRU(size, size, batch_first=True)
        self.questions = nn.Linear(size, spec.heads * size)
        self.weights = nn.Linear(spec.heads, 1, bias=False)
        self.heads = spec.heads
        self.dropout = nn.Dropout(spec.dropout)

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, first: Float[Tensor, "B L"] | None
    ) -> Output:
        """Return ``(B, L)`` logits."""
        h = self.dropout(self.encoder(x))
        places = reading_places(h, mask, first if self.by_first_stage else None, best_first=False)
        outputs, state = read(self.reader, h, places, mask)
        questions = torch.tanh(self.questions(state[0])).reshape(len(h), self.heads, -1)  # (B, heads, H)
        answers = outputs @ questions.transpose(1, 2)  # (B, L, heads)
        return Output(self.weights(answers).squeeze(-1) / self.heads)


class DcmNetwork(_RecurrentNetwork):
    """DCM, the Deep Choice Model: a pointer network that points once.

    Definition (Mottini, Acuna-Agost, KDD 2017):
        e_1 .. e_n, s = LSTM(h_1 .. h_n)
        d = one step of the decoder LSTM from s
        score_i = v' tanh(W_1 e_i + W_2 d)

    All widths are our reading: the QILCM paper names none. The decoder starts from a learned input.

    Args:
        width: Number X of columns of the dense input.
        spec: Settings of the network.
    """

    def __init__(self, width: int, spec: DcmSpec) -> None:
        super().__init__()
        self.by_first_stage = spec.order == "first_stage"
        self.encoder = Encoder(width, spec.encoder_width)
        size = spec.state_width
        self.reader = nn.LSTM(self.encoder.encoded, size, batch_first=True)
        self.start = nn.Parameter(torch.zeros(size))
        self.decoder = nn.LSTMCell(size, size)
        self.of_candidate = nn.Linear(size, size)
        self.of_list = nn.Linear(size, size, bias=False)
        self.point = nn.Linear(size, 1, bias=False)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, first: Float[Tensor, "B L"] | None
    ) -> Output:
        """Return ``(B, L)`` logits."""
        h = self.dropout(self.encoder(x))
        places = reading_places(h, mask, first if self.by_first_stage else None, best_first=True)
        outputs, (state, cell) = read(self.reader, h, places, mask)
        decoded, _ = self.decoder(self.start.expand_as(state[0]), (state[0], cell[0]))
        pointing = torch.tanh(self.of_candidate(outputs) + self.of_list(decoded)[:, None])  # (B, L, state)
        return Output(self.point(pointing).squeeze(-1))


def network_of(spec: DlcmSpec | DcmSpec, width: int) -> DlcmNetwork | DcmNetwork:
    """Return the network of a recipe over ``width`` columns of dense input."""
    return DlcmNetwork(width, spec) if isinstance(spec, DlcmSpec) else DcmNetwork(width, spec)


def reading_places(
    h: Float[Tensor, "B L H"],
    mask: Bool[Tensor, "B L"] | None,
    first: Float[Tensor, "B L"] | None,
    *,
    best_first: bool,
) -> Int[Tensor, "B L"]:
    """Return when each candidate is read, from 0; padding comes last.

    Args:
        h: ``(B, L, H)`` encoded candidates, whose shape alone matters.
        mask: ``(B, L)`` True for a real candidate; None if there is no padding.
        first: ``(B, L)`` first-stage scores; None for input order.
        best_first: Whether the best candidate is read first; False for last.
    """
    position = torch.arange(h.shape[1], device=h.device).expand(h.shape[:2])
    if first is None:
        first = -position.to(h.dtype)
    own, others = first[:, :, None], first[:, None, :]
    sooner = position[:, None, :] < position[:, :, None]  # (B, i, j): j comes before i
    before = (others > own) | ((others == own) & sooner)
    if not best_first:
        before = ~before & (position[:, None, :] != position[:, :, None])
    if mask is None:
        return before.sum(dim=-1)
    places = (before & mask[:, None, :]).sum(dim=-1)
    padding = (~mask).cumsum(dim=-1) - 1 + mask.sum(dim=-1, keepdim=True)
    return torch.where(mask, places, padding)


def read(
    reader: nn.Module, h: Float[Tensor, "B L H"], places: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"] | None
) -> tuple[Float[Tensor, "B L state"], Any]:
    """Return the reader's output for every candidate, in input order, and its state after the last real one.

    On a CPU the reader computes in float32 also under autocast: many CPUs have no bfloat16 kernel of the LSTM.
    """
    if h.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return read(reader, h.float(), places, mask)
    ordered = torch.zeros_like(h).scatter(1, places[..., None].expand_as(h), h)
    if mask is None:
        outputs, state = reader(ordered)
    else:
        lengths = mask.sum(dim=-1).clamp(min=1).cpu()  # a list of nothing but padding is read for one step of zeros
        sequences = nn.utils.rnn.pack_padded_sequence(ordered, lengths, batch_first=True, enforce_sorted=False)
        outputs, state = reader(sequences)
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=h.shape[1])
    return outputs.gather(1, places[..., None].expand(-1, -1, outputs.shape[-1])), state


_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""Order of torch's gates in ONNX: update, reset, new; and input, output, forget, cell."""


class OnnxReader(nn.Module):
    """Reader of one layer as ONNX's own operator; it computes nothing in torch.

    Left to itself, torch's exporter writes a loop of small operators, or unrolls it to the example's length. ONNX has
    GRU and LSTM as operators, which its runtimes compute at once: only the gates stand in another order there.

    Args:
        reader: Recurrent layer with ``batch_first`` and biases, whose weights are copied.
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
