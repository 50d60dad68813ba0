"""What networks see of rows on disk is what they see of rows in memory."""

import numpy as np
import pytest
import torch

from listwright.training.data.dataset import Splits
from listwright.training.data.shards.rows import Rows
from listwright.training.networks.ranker import Preprocess
from listwright.training.pipeline.workspace import digest_of
from listwright.training.recipe.config import Srm
from listwright.training.second_stage.batching import Lists
from listwright.training.specialists import lists, srm
from listwright.training.specialists.rankers import Standardise
from support.training.on_disk import on_disk
from support.training.planted import ranking_data


@pytest.fixture
def both(tmp_path):
    memory = ranking_data(np.random.default_rng(0))
    return memory, on_disk(memory, tmp_path / "shards")


@pytest.mark.parametrize("cutoff", [4, 1000])
@pytest.mark.parametrize("append_score", [False, True])
def test_batches_are_the_same(both, cutoff, append_score):
    scores = np.random.default_rng(1).normal(size=both[0].rows)
    memory, disk = (Lists(data, scores, cutoff=cutoff, append_score=append_score) for data in both)
    assert isinstance(disk.matrix, Rows)
    assert disk.matrix.shape == memory.matrix.shape
    for n in (0, 7):
        np.testing.assert_array_equal(disk.inputs(n), memory.inputs(n))
    batches = [list(lists.batches(16, np.random.default_rng(2))) for lists in (memory, disk)]
    for one, other in zip(*batches, strict=True):
        assert torch.equal(other.mask, one.mask)
        assert torch.equal(other.features.nan_to_num(-1.0), one.features.nan_to_num(-1.0))
        assert torch.equal(other.labels, one.labels)


@pytest.mark.parametrize("layer", [Preprocess, lambda schema, rows: Standardise(schema, rows, "log")])
def test_statistics_are_the_same(both, layer):
    memory, disk = (layer(data.schema, data.features) for data in both)
    for name, value in memory.state_dict().items():
        if "embedding" not in name:
            assert torch.equal(disk.state_dict()[name], value)
    assert (disk.numeric, disk.indicated) == (memory.numeric, memory.indicated)


def test_labels_are_read_without_features(both):
    _, disk = both
    assert [labels.tolist() for labels in disk.label_lists()] == [labels.tolist() for _, labels in disk.lists()]


@pytest.mark.nightly
def test_specialists_are_the_same_block_by_block(both, monkeypatch):
    monkeypatch.setattr(lists, "BLOCK_ROWS", 20)
    spec = Srm(specialists=2, cutoff=None, first_stage_score=False, restarts=2, max_iterations=3)
    memory, disk = (srm.fit_srm(spec, data, seed=0) for data in both)
    assert len(memory.steps) > 1
    assert disk.steps == memory.steps
    for one, other in zip(disk.rankers, memory.rankers, strict=True):
        assert torch.equal(one.w, other.w)


def test_the_digest_of_the_data_is_the_same(both):
    splits = [Splits(data, data, data, "") for data in both]
    assert digest_of(splits[0]) == digest_of(splits[1])
