"""What was trained and what is served are one computation."""

import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.reranker import Reranker
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import NetworkStage
from listwright.training.data.load import load
from listwright.training.export.parity import _check_list, _sensitivity, check_parity
from listwright.training.export.second_stages import ranker_graph, to_onnx
from listwright.training.networks.ranker import Ranker, Unbatched
from listwright.training.recipe import config
from listwright.training.recipe.model import QilcmSpec
from support.service import bundles
from support.service.bundles import NUMERIC, make_bundle


def test_the_gate_notices_another_model(fitted, recipe):
    """The gate compares a torch module with a bundle: one with other weights must not pass."""
    splits = load(config.load(str(recipe)), [])
    rows = np.column_stack([splits.train.features, np.zeros(splits.train.rows, np.float32)])
    torch.manual_seed(1)
    stranger = Unbatched(Ranker(splits.train.schema, rows, config.load(str(recipe)).model))
    reranker = bundle.load(fitted).reranker
    stage, rng = reranker.manifest.second_stage, np.random.default_rng(0)
    with pytest.raises(ScoringError, match="exported and trained scores differ"):
        check_parity(stranger, reranker, stage, splits.valid.features, longest=12, rng=rng)


class Enlarged(torch.nn.Module):
    """Enlarges what distinguishes candidates, as query normalisation does where they are nearly equal."""

    def forward(self, x):
        return 1000.0 * (x - x.mean()).flatten() + x.flatten()


@pytest.mark.parametrize(
    ("module", "level", "error", "passes"),
    [
        (torch.nn.Flatten(0), 0.0, 2e-4, False),
        (torch.nn.Flatten(0), 300.0, 2e-4, True),
        (torch.nn.Flatten(0), 300.0, 0.1, False),
        (Enlarged(), 1.0, 2e-4, True),
        (Enlarged(), 1.0, 0.02, False),
    ],
)
def test_rounding_counts_in_proportion_to_what_it_changes(module, level, error, passes):
    """Two candidates that are nearly alike can have scores far from 0, and single precision rounds those more."""
    inputs = np.array([[level + 1.0], [level]] if level != 1.0 else [[1.0], [1.0 - 2**-20]])
    scores = module(torch.from_numpy(inputs)).numpy()
    ranking = SimpleNamespace(
        scores=scores + np.array([error, 0.0]), first_stage_scores=scores, order=np.array([0, 1]), reason=None
    )
    schema = FeatureSchema(features=(Feature(name="x"),))
    reranker = create_autospec(Reranker, instance=True, relative=None, schema=schema)
    reranker.rerank.return_value = ranking
    stage = NetworkStage(kind="qilcm", file="qilcm.onnx", cutoff=100, first_stage_score=False, relative=False)
    check = partial(_check_list, module, reranker, stage, None, inputs.astype(np.float32), "list")
    if passes:
        check()
    else:
        with pytest.raises(ScoringError, match="scores differ"):
            check()


def test_codes_of_categories_are_not_rounded():
    """A code that is rounded down is another category, whose score says nothing about rounding."""
    module = torch.nn.Sequential(
        torch.nn.Flatten(0), type("Code", (torch.nn.Module,), {"forward": lambda _, x: x.floor()})()
    )
    codes = np.array([[3.0], [2.0]], dtype=np.float32)
    assert _sensitivity(module, None, codes, np.array([0])) >= 0.3
    assert _sensitivity(module, None, codes, np.array([], dtype=int)) == 0.0


def test_a_graph_that_fails_on_real_rows_does_not_pass(tmp_path):
    reranker = bundle.load(make_bundle(tmp_path / "shop" / "1", graph="nan")).reranker
    features = bundles.rows(np.random.default_rng(0), 20).astype(np.float32)
    features[:, NUMERIC.index("price")] = 2000.0  # the graph gives NaN for it
    with pytest.raises(ScoringError, match="parity, qilcm, plain list of 1: the second stage gave nan"):
        check_parity(
            torch.nn.Identity(),
            reranker,
            reranker.manifest.second_stage,
            features,
            longest=3,
            rng=np.random.default_rng(0),
        )


def test_exported_graph_has_a_dynamic_list_axis_and_no_second_file(recipe):
    splits = load(config.load(str(recipe)), [])
    rows = np.column_stack([splits.train.features, np.zeros(splits.train.rows, np.float32)])
    module = Unbatched(Ranker(splits.train.schema, rows, config.load(str(recipe)).model)).eval()
    scorer = OnnxScorer(to_onnx(module, rows.shape[1]), rows.shape[1])
    for length in (1, 2, 3, 50, 400):
        picked = np.ascontiguousarray(rows[np.arange(length) % len(rows)])
        with torch.inference_mode():
            expected = module(torch.from_numpy(picked)).numpy()
        assert scorer.score(picked) == pytest.approx(expected, abs=1e-4)


def test_an_exported_graph_names_no_folder_of_the_machine(recipe):
    splits = load(config.load(str(recipe)), [])
    rows = np.column_stack([splits.train.features, np.zeros(splits.train.rows, np.float32)])
    module = Unbatched(Ranker(splits.train.schema, rows, config.load(str(recipe)).model))
    graph = to_onnx(module, rows.shape[1])
    for place in (training.__file__, torch.__file__):
        assert str(Path(place).parent).encode() not in graph


def test_a_graph_of_one_length_is_not_exported():
    """The exporter fixes the list axis without a word where a module asks for its length as a number."""

    class Fixed(torch.nn.Module):
        def forward(self, features):
            return features.sum(dim=1) + torch.arange(len(features))

    with pytest.raises(ScoringError, match="takes lists of 3 only: the list axis is not dynamic"):
        to_onnx(Fixed(), 4)


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["full", "V1"])
def test_the_printed_form_serves_what_was_trained_where_candidates_are_alike(variant):
    """1 / (sigma + eps) blows up whatever the encoder's rounding leaves of a constant dimension."""
    rng = np.random.default_rng(0)
    rows = rng.lognormal(size=(500, 20)).astype(np.float32)
    schema = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(20)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ranker = Ranker(schema, rows, QilcmSpec(query_norm="paper", first_stage_score=False, variant=variant)).eval()
        with torch.no_grad():
            for parameter in ranker.network.parameters():
                parameter.mul_(1.5)
    scorer = OnnxScorer(ranker_graph(ranker), 20)
    exact = Unbatched(copy.deepcopy(ranker).double())
    for length in (2, 100, 101):
        constant = np.repeat(rows[:1], length, axis=0)
        nearly = constant + np.float32(1e-5) * rng.normal(size=constant.shape).astype(np.float32)
        for features in (constant, nearly, rows[:length]):
            with torch.inference_mode():
                expected = exact(torch.from_numpy(features).double()).numpy()
            assert scorer.score(features) == pytest.approx(expected, abs=1e-5)
    assert {parameter.dtype for parameter in ranker.parameters()} == {torch.float32}, "the fitted model is left alone"
