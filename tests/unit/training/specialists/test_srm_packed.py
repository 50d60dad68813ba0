"""The specialists' graph and the packed form beside it compute what was fitted."""

import numpy as np
import pytest
import torch

from listwright.ranking.compiled import linear as packed_linear
from listwright.ranking.compiled.linear import LinearScorer, PackedLinear, open_specialists
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.export.second_stages import to_onnx
from listwright.training.recipe.config import Srm
from listwright.training.specialists.rankers import LinearRanker, NetworkRanker, SrmNetwork, Standardise

SCHEMA = FeatureSchema(
    features=(
        Feature(name="plain"),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
        Feature(name="holey", missing_in_training=True),
        Feature(name="same"),
        Feature(name="place", kind="categorical", categories=("here", "there")),
    )
)


def rows(rng, count=200):
    plain, holey = rng.normal(size=count), np.where(rng.random(count) < 0.3, np.nan, rng.lognormal(size=count))
    columns = [plain, rng.integers(0, 5, count), holey, np.full(count, 3.0), rng.integers(0, 3, count)]
    return np.column_stack(columns).astype(np.float32)


def network(rng, *, transform="none", hidden=()):
    standardise = Standardise(SCHEMA, rows(rng), transform)
    spec = Srm(hidden=hidden)
    if hidden:
        return SrmNetwork(standardise, [NetworkRanker(standardise.width, spec, rng) for _ in range(3)])
    rankers = [LinearRanker(standardise.width, 1.0, concave=True) for _ in range(3)]
    for ranker in rankers:
        ranker.w = torch.from_numpy(rng.normal(size=standardise.width))
    return SrmNetwork(standardise, rankers)


@pytest.mark.nightly
@pytest.mark.skipif(
    packed_linear.linear_product is None, reason="ranking.compiled.linear_product is not built: there was no C compiler"
)
def test_graph_and_packed_rankers_compute_what_was_fitted():
    rng = np.random.default_rng(0)
    module = network(rng)
    x = rows(rng)
    x[rng.random(x.shape) < 0.1] = np.nan  # also where training had no missing values, and of categories
    x[:5, 0] = 1e30
    expected = module.double()(torch.from_numpy(x).double()).detach().numpy()
    packed = module.float().pack()
    graph = to_onnx(module, 5, {packed_linear.METADATA: packed.to_text()})
    opened = open_specialists(graph, 5, 3, "specialists' graph")
    assert isinstance(opened, LinearScorer), "the packed form must agree with the graph"
    for scorer in (opened, LinearScorer(PackedLinear.from_text(packed.to_text()))):
        assert scorer.score(x) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", [{"transform": "log"}, {"hidden": (4,)}])
def test_networks_and_logarithms_are_left_to_the_graph(options):
    assert network(np.random.default_rng(0), **options).pack() is None
