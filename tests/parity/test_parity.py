"""What was trained and what is served are one computation."""

from pathlib import Path

import numpy as np
import pytest
import torch

import training
from ranking import bundle
from ranking.errors import ScoringError
from ranking.scorers import OnnxScorer
from training import config
from training.data.load import load
from training.export import check_parity, to_onnx
from training.ranker import Ranker, Unbatched


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
