"""Every kind of graph that is exported or brought along is let through, and no operator that none of them needs."""

import numpy as np
import onnx
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.onnx_graph import OPERATORS
from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.forest import forest_graph
from listwright.training.export.second_stages import ranker_graph, to_onnx
from listwright.training.first_stage.bring_your_own import canonical
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.config import Srm
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, Qilcm2Spec, QilcmSpec
from listwright.training.specialists.rankers import LinearRanker, NetworkRanker, SrmNetwork, Standardise
from listwright.training.specialists.router import fit_forest
from support.first_stages import given_networks

SCHEMA = FeatureSchema(
    features=(
        Feature(name="plain"),
        Feature(name="holey", missing_in_training=True),
        Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
    )
)
SMALL = {"encoder_width": 8, "hidden": (4,)}
READER = {"encoder_width": 8}
ALONE = {"first_stage_score": False}
NETWORKS = (
    QilcmSpec(**SMALL, query_norm="paper"),
    Qilcm2Spec(**SMALL, context="seeds"),
    Qilcm2Spec(**SMALL, **ALONE, heads=3),
    Qilcm2Spec(**SMALL, members=2),
    DlcmSpec(**READER),
    DcmSpec(**READER, **ALONE, order="presented", state_width=8),
    MlpSpec(**SMALL),
)
"""One of each kind; ``tests/battery`` loads the graphs of the others."""


def rows(rng, count=200):
    """Raw rows, with the first stage's score last."""
    holey = np.where(rng.random(count) < 0.3, np.nan, rng.normal(size=count))
    columns = [rng.lognormal(size=count), holey, rng.integers(0, 4, count), rng.normal(size=count)]
    return np.column_stack(columns).astype(np.float32)


def networks(rng):
    for spec in NETWORKS:
        raw = rows(rng)[:, : len(SCHEMA) + spec.first_stage_score]
        ranker = Ranker(SCHEMA, raw, spec, len(SCHEMA) if spec.first_stage_score else None)
        yield ranker_graph(ranker), raw.shape[1], None


def specialists(rng):
    raw = rows(rng)
    for transform, hidden in (("log", ()), ("none", (4,))):
        standardise = Standardise(SCHEMA, raw, transform)
        linear = [LinearRanker(standardise.width, 1.0) for _ in range(2)]
        for ranker in linear:
            ranker.w = torch.from_numpy(rng.normal(size=standardise.width))
        mlps = [NetworkRanker(standardise.width, Srm(hidden=hidden), rng) for _ in range(2)]
        module = SrmNetwork(standardise, mlps if hidden else linear)
        yield to_onnx(module, raw.shape[1]), raw.shape[1], 2


def forests(rng):
    x, y = rng.normal(size=(100, 3)).astype(np.float32), rng.normal(size=(100, 4))
    yield fit_forest(x, seed=0)[0], 3, 1
    fitted = make_pipeline(SimpleImputer(), ExtraTreesRegressor(5, random_state=0)).fit(x, y)
    yield forest_graph(fitted, 3, 4).SerializeToString(), 3, 4


def given(_rng):
    """Rankers of other libraries; XGBoost and CatBoost write forests only."""
    schema = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(given_networks.WIDTH)))
    for graph in given_networks.graphs():
        yield canonical(graph, schema), given_networks.WIDTH, None


def operators(graphs):
    """Of all graphs, each of which has to load."""
    found = set()
    for content, width, columns in graphs:
        OnnxScorer(content, width, columns=columns)
        found |= {(node.domain, node.op_type) for node in onnx.ModelProto.FromString(content).graph.node}
    return found


@pytest.mark.nightly
def test_what_is_allowed_is_what_is_exported():
    rng = np.random.default_rng(0)
    kinds = (forests, networks, specialists, given)
    found = set().union(*(operators(kind(rng)) for kind in kinds))
    assert found == {(domain, name) for domain, names in OPERATORS.items() for name in names}


def test_forests_are_let_through():
    assert {domain for domain, _ in operators(forests(np.random.default_rng(0)))} == {"", "ai.onnx.ml"}
