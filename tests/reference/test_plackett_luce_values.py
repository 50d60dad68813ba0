"""Values of the likelihood with ties, and of its gradient, computed in 50 digits by someone else; and choix."""

import json

import choix
import numpy as np
import pytest
import torch

from listwright.training.losses.exact_plackett_luce import LabelGroups, evaluate, log_likelihood, log_likelihood_of_top
from listwright_lab.science.plackett_luce_paper import by_subsets


@pytest.fixture(scope="module")
def cases(reference_folder):
    return json.loads((reference_folder / "plackett_luce_ties.json").read_text())


def batch(cases, dtype):
    """All cases as one padded batch."""
    width = max(len(case["scores"]) for case in cases)
    scores, labels = torch.full((len(cases), width), torch.nan, dtype=dtype), torch.zeros(len(cases), width)
    mask = torch.zeros(len(cases), width, dtype=torch.bool)
    for n, case in enumerate(cases):
        length = len(case["scores"])
        scores[n, :length] = torch.tensor(case["scores"], dtype=dtype)
        labels[n, :length] = torch.tensor(case["labels"])
        mask[n, :length] = True
    return scores, labels, mask


def test_values_and_gradients(cases):
    scores, labels, mask = batch(cases, torch.float64)
    found = evaluate(scores, LabelGroups.of(labels, mask), nodes=64)
    for n, case in enumerate(cases):
        assert found.value[n].item() == pytest.approx(case["log_p"], abs=1e-9)
        assert found.gradient[n, : len(case["grad"])].tolist() == pytest.approx(case["grad"], abs=1e-9)


def test_float32(cases):
    scores, labels, mask = batch(cases, torch.float32)
    found = evaluate(scores, LabelGroups.of(labels, mask))
    for n, case in enumerate(cases):
        assert found.value[n].item() == pytest.approx(case["log_p"], rel=1e-5, abs=1e-5)
        assert found.gradient[n, : len(case["grad"])].tolist() == pytest.approx(case["grad"], rel=1e-5, abs=1e-5)


def test_top_m(cases):
    compared = 0
    for case in cases:
        scores, labels = torch.tensor([case["scores"]], dtype=torch.float64), torch.tensor([case["labels"]])
        for top, expected in case.get("top_m", {}).items():
            found = log_likelihood_of_top(scores, labels, top=int(top), nodes=64).item()
            assert found == pytest.approx(expected, abs=1e-9)
            compared += 1
    assert compared > 100


def test_the_papers_dynamic_program(cases):
    small = [case for case in cases if len(case["scores"]) <= 20]
    assert len(small) > 20
    for case in small:
        found = by_subsets(np.array(case["scores"]), np.array(case["labels"]))
        assert found == pytest.approx(case["log_p"], abs=1e-10)


def test_choix_agrees_where_nothing_ties():
    rng = np.random.default_rng(0)
    for length in (2, 5, 30):
        scores = rng.normal(size=length)
        labels = rng.permutation(length)
        expected = choix.log_likelihood_rankings([tuple(np.argsort(-labels))], scores)
        found = log_likelihood(torch.tensor(scores)[None], torch.tensor(labels)[None], nodes=64).item()
        assert found == pytest.approx(expected, abs=1e-9)
