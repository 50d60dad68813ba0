"""QILCM equals values computed in plain loops by someone else (shared/reference/qilcm_forward.json)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from listwright.training.losses import att_rank
from listwright.training.losses.confusion import confusion_loss
from listwright.training.networks import qilcm
from listwright.training.recipe.model import QilcmSpec

SMALL = Path(__file__).parent / "qilcm_small.json"
"""The shortest of the reference cases, so that a checkout without the reference folder checks numbers too."""

NAMES = {
    "h": "encoded",
    "attention": "attention",
    "context": "context",
    "refined": "refined",
    "normalised": "normalised",
}


def network(case, form):
    params = case["params"]
    width, encoder = np.array(params["encoder"][0]["weight"]).shape[::-1]
    hidden = tuple(len(layer["bias"]) for layer in params["attention"][:-1])
    model = qilcm.QilcmNetwork(width, QilcmSpec(encoder_width=encoder, hidden=hidden, query_norm=form)).double()
    for part, layers in (
        (model.encoder, params["encoder"]),
        (model.attention, params["attention"]),
        (model.ranking, params["ranking"]),
    ):
        linears = [module for module in part if isinstance(module, torch.nn.Linear)]
        for linear, layer in zip(linears, layers, strict=True):
            linear.load_state_dict(
                {name: torch.tensor(layer[name], dtype=torch.float64) for name in ("weight", "bias")}
            )
    return model.eval()


def padded(case, fill=0.0):
    lists = [np.array(features, dtype=np.float64) for features in case["features"]]
    length = max(map(len, lists))
    x = np.full((len(lists), length, lists[0].shape[1]), fill)
    labels = np.zeros((len(lists), length), dtype=np.int64)
    mask = np.zeros((len(lists), length), dtype=bool)
    for n, features in enumerate(lists):
        x[n, : len(features)] = features
        labels[n, : len(features)] = case["labels"][n]
        mask[n, : len(features)] = True
    return torch.from_numpy(x), torch.from_numpy(labels), torch.from_numpy(mask)


@torch.no_grad()
def check(case, form, tolerance=1e-9):
    expected = case["expected"][form]
    assert expected["eps"] == (qilcm.PAPER_EPSILON if form == "paper" else qilcm.STABLE_EPSILON)
    model = network(case, form)
    x, labels, mask = padded(case)
    found = model.represent(x, mask)
    logits = model.score(found.normalised)
    for n, values in enumerate(expected["lists"]):
        length = len(case["labels"][n])
        for theirs, ours in NAMES.items():
            value = getattr(found, ours)[n]
            value = value if theirs == "context" else value[:length]
            assert value.detach().numpy() == pytest.approx(np.array(values[theirs]), abs=tolerance, rel=tolerance), (
                theirs
            )
        scores = torch.softmax(logits[n, :length], dim=0)
        assert logits[n, :length].tolist() == pytest.approx(values["logits"], abs=tolerance, rel=tolerance)
        assert scores.tolist() == pytest.approx(values["scores"], abs=tolerance, rel=tolerance)
        alone = att_rank(logits[n : n + 1], labels[n : n + 1], mask[n : n + 1])
        assert float(alone) == pytest.approx(expected["attrank_per_list"][n], abs=tolerance)
    per_query = float(att_rank(logits, labels, mask))
    assert per_query == pytest.approx(np.mean(expected["attrank_per_list"]), rel=tolerance)
    assert float(att_rank(logits, labels, mask, form="paper")) == pytest.approx(
        expected["rank_loss_eq12"], rel=tolerance
    )
    conf = float(confusion_loss(found.normalised, mask))
    assert conf == pytest.approx(expected["confusion_loss_eq13"], rel=tolerance)


@pytest.mark.parametrize("form", ["paper", "stable"])
def test_small_reference_case(form):
    check(json.loads(SMALL.read_text()), form, tolerance=1e-6)


@pytest.mark.parametrize("form", ["paper", "stable"])
def test_all_reference_cases(form, reference_folder):
    cases = json.loads((reference_folder / "qilcm_forward.json").read_text())
    cases = cases["cases"] if isinstance(cases, dict) else cases
    assert len(cases) == 3
    for case in cases:
        check(case, form)
