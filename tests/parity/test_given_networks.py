"""Rankers of torch and scikit-learn that are brought along score as they did."""

import functools

import numpy as np
import pytest
import torch

from listwright.ranking.errors import ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages import given_networks
from support.first_stages.given_networks import (
    WIDTH,
    Listwise,
    Pointwise,
    network,
    new_exporter,
    old_exporter,
    ridge,
    rows,
)

SCHEMA = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, WIDTH + 1)))
LENGTHS = (1, 2, 3, 40)


def stage(graph):
    return OnnxFirstStage(canonical(graph, SCHEMA), SCHEMA)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "export"),
    [
        (Pointwise, functools.partial(new_exporter, opset=20)),
        (Pointwise, old_exporter),
        (Listwise, functools.partial(new_exporter, opset=18)),
    ],
    ids=["one at a time", "one at a time, old exporter", "the list at once"],
)
def test_torch(kind, export):
    module = network(kind)
    found = stage(export(module))
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        features = rows(rng, length)
        with torch.inference_mode():
            expected = module(torch.from_numpy(features)).numpy().reshape(length)
        assert np.abs(found.score(features) - expected).max() < 1e-4
        assert length == 1 or np.ptp(expected) > 0.01, "the comparison could fail"


def test_scikit_learn():
    model, graph = ridge()
    features = rows(np.random.default_rng(1), 40)
    assert np.abs(stage(graph).score(features) - model.predict(features)).max() < 1e-5


@pytest.mark.nightly
def test_a_graph_of_one_length_is_refused_by_name():
    """What torch's exporter writes where nobody says that the length varies."""
    with pytest.raises(ScoringError, match=r"takes lists of 3 only: .*dynamic_shapes"):
        canonical(given_networks.exported(network(Pointwise), dynamo=True), SCHEMA)
