"""DLCM, DCM and QILCM2 equal their equations, worked out in NumPy one candidate after the other."""

import numpy as np
import pytest
import torch

from listwright.training.networks.qilcm import STABLE_EPSILON, Qilcm2Network
from listwright.training.recipe.model import DcmSpec, DlcmSpec, Qilcm2Spec
from listwright_lab.recurrent import DcmNetwork, DlcmNetwork

WIDTH, LENGTHS = 4, (5, 1, 3)
SCORES = np.array([-1.0, 0.5, 2.0, 2.5])
"""First-stage scores of the training rows: QILCM2 standardises by their mean and deviation."""


def sigmoid(value):
    return 1.0 / (1.0 + np.exp(-value))


def elu(value):
    return np.where(value > 0.0, value, np.expm1(np.minimum(value, 0.0)))


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


class Weights:
    """The weights of a network by name, in the letters of the equations."""

    def __init__(self, network):
        self.by_name = {name: value.numpy() for name, value in network.state_dict().items()}

    def __getitem__(self, name):
        return self.by_name[name]

    def linear(self, name, value):
        found = self[f"{name}.weight"] @ value
        return found + self.by_name.get(f"{name}.bias", 0.0)

    def layers(self, name, value, numbers):
        """Linear layers with an ELU behind each but the last."""
        for number in numbers[:-1]:
            value = elu(self.linear(f"{name}.{number}", value))
        return self.linear(f"{name}.{numbers[-1]}", value)

    def encoded(self, name, x):
        return np.concatenate([x, elu(self.layers(name, x, (0, 2)))])

    def recurrent(self, name, x, state, suffix="_l0"):
        """What a gate gets: of the input and of the state, apart."""
        return (
            self[f"{name}.weight_ih{suffix}"] @ x + self[f"{name}.bias_ih{suffix}"],
            self[f"{name}.weight_hh{suffix}"] @ state + self[f"{name}.bias_hh{suffix}"],
        )

    def gru(self, name, x, state):
        """Cho et al. (2014) in the form of torch, with the reset gate behind the product."""
        of_input, of_state = self.recurrent(name, x, state)
        size = len(state)
        reset = sigmoid(of_input[:size] + of_state[:size])
        update = sigmoid(of_input[size : 2 * size] + of_state[size : 2 * size])
        new = np.tanh(of_input[2 * size :] + reset * of_state[2 * size :])
        return (1.0 - update) * new + update * state

    def lstm(self, name, x, state, cell, suffix="_l0"):
        """Hochreiter & Schmidhuber (1997) with a forget gate."""
        gates = np.split(sum(self.recurrent(name, x, state, suffix)), 4)
        cell = sigmoid(gates[1]) * cell + sigmoid(gates[0]) * np.tanh(gates[2])
        return sigmoid(gates[3]) * np.tanh(cell), cell


def by_score(first):
    """Best first; equal scores in input order."""
    return sorted(range(len(first)), key=lambda i: (-first[i], i))


def dlcm(w, x, first, spec):
    h = [w.encoded("encoder", row) for row in x]
    state, outputs = np.zeros(len(h[0])), {}
    for i in reversed(by_score(first)):
        outputs[i] = state = w.gru("reader", h[i], state)
    asked = np.tanh(w.linear("questions", state)).reshape(spec.heads, -1)
    return [
        sum(w["weights.weight"][0, a] * outputs[i] @ asked[a] for a in range(spec.heads)) / spec.heads
        for i in range(len(x))
    ]


def dcm(w, x, first, spec):
    state, cell, outputs = np.zeros(spec.state_width), np.zeros(spec.state_width), {}
    for i in by_score(first):
        state, cell = w.lstm("reader", w.encoded("encoder", x[i]), state, cell)
        outputs[i] = state
    decoded, _ = w.lstm("decoder", w["start"], state, cell, suffix="")
    of_list = w.linear("of_list", decoded)
    return [w.linear("point", np.tanh(w.linear("of_candidate", outputs[i]) + of_list))[0] for i in range(len(x))]


def qilcm2(w, x, first, spec):
    return np.mean([member(w, f"members.{m}", x, first, spec) for m in range(spec.members)], axis=0)


def member(w, name, x, first, spec):
    h = np.stack([w.encoded(f"{name}.encoder", row) for row in x])
    normalised = (h - h.mean(axis=0)) / np.sqrt(h.var(axis=0) + STABLE_EPSILON**2)
    mix = sigmoid(w[f"{name}.mix"])
    seen = {"seeds": by_seeds, "blocks": by_blocks}[spec.context](w, f"{name}.context", h, spec)
    crossed = (mix * normalised + (1.0 - mix) * h) * (1.0 + seen)
    added = np.array([w.layers(f"{name}.ranking", row, (0, 2))[0] for row in crossed])
    return added + np.exp(w[f"{name}.log_weight"]) * (first - SCORES.mean()) / SCORES.std()


def by_seeds(w, name, h, spec):
    logits = np.stack([w.linear(f"{name}.attention", row) for row in h])
    pooled = [softmax(logits[:, s]) @ h for s in range(spec.seeds)]
    return np.tile(w.linear(f"{name}.out", np.concatenate(pooled)), (len(h), 1))


def by_blocks(w, name, h, spec):
    z = np.stack([w.linear(f"{name}.into", row) for row in h])
    for number in range(2):
        z = block(w, f"{name}.blocks.{number}", z, spec.heads)
    return np.stack([w.linear(f"{name}.out", row) for row in z])


def block(w, name, z, heads):
    """Attention of Vaswani et al. (2017), normalised before each part (Xiong et al., 2020)."""
    projected = np.stack([w.linear(f"{name}.project", layer_norm(w, f"{name}.before", row)) for row in z])
    query, key, value = np.split(projected, 3, axis=1)
    size = query.shape[1] // heads
    attended = np.empty_like(query)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(z)):
            weights = softmax(key[:, part] @ query[i, part] / np.sqrt(size))
            attended[i, part] = weights @ value[:, part]
    z = z + np.stack([w.linear(f"{name}.out", row) for row in attended])
    return z + np.stack([w.layers(f"{name}.feed", layer_norm(w, f"{name}.between", row), (0, 2)) for row in z])


def layer_norm(w, name, row):
    scaled = (row - row.mean()) / np.sqrt(row.var() + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


CASES = {
    "dlcm": (dlcm, DlcmNetwork, DlcmSpec(encoder_width=3, heads=2)),
    "dcm": (dcm, DcmNetwork, DcmSpec(encoder_width=3, state_width=5)),
    "qilcm2-seeds": (
        qilcm2,
        Qilcm2Network,
        Qilcm2Spec(encoder_width=3, context="seeds", seeds=2, hidden=(6,), members=2),
    ),
    "qilcm2-blocks": (qilcm2, Qilcm2Network, Qilcm2Spec(encoder_width=6, context="blocks", heads=4, hidden=(6,))),
}


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_equations(name):
    equations, kind, spec = CASES[name]
    torch.manual_seed(0)
    network = (kind(WIDTH, spec, SCORES) if kind is Qilcm2Network else kind(WIDTH, spec)).double().eval()
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in network.parameters():  # some start at 0, and would hide a mistake
            parameter.copy_(torch.from_numpy(rng.normal(0.0, 0.7, parameter.shape)))
    x = rng.normal(size=(len(LENGTHS), max(LENGTHS), WIDTH))
    first = rng.integers(0, 3, x.shape[:2]).astype(float)  # with equal scores
    mask = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    with torch.no_grad():
        found = network(torch.from_numpy(x), torch.from_numpy(mask), torch.from_numpy(first)).logits.numpy()
        alone = network(torch.from_numpy(x[:1]), None, torch.from_numpy(first[:1])).logits.numpy()
    weights = Weights(network)
    for n, length in enumerate(LENGTHS):
        expected = equations(weights, x[n, :length], first[n, :length], spec)
        assert found[n, :length] == pytest.approx(expected, abs=1e-6, rel=1e-6)
    assert alone[0] == pytest.approx(found[0], abs=1e-9)
    assert np.ptp(found[0]) > 0.1, "the candidates are told apart"
