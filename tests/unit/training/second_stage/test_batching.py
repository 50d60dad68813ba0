"""Every list once an epoch, padded but not altered, cut where the first stage says."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.second_stage.batching import Lists


def dataset(lengths):
    """Feature 0 is the row number, feature 1 the query number."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = int(offsets[-1])
    queries = np.repeat(np.arange(len(lengths)), lengths)
    return Dataset(
        features=np.column_stack([np.arange(rows), queries]).astype(np.float32),
        labels=(np.arange(rows) % 3).astype(np.int32),
        offsets=offsets,
        qids=tuple(f"q{n}" for n in range(len(lengths))),
        schema=FeatureSchema(features=(Feature(name="row"), Feature(name="query"))),
    )


def unscored(data, **options):
    """Scores that say nothing: the first stage keeps input order."""
    return Lists(data, np.zeros(data.rows), **options)


def rows_of(batch):
    return [features[mask][:, 0].tolist() for features, mask in zip(batch.features, batch.mask, strict=True)]


def test_cutoff_keeps_the_best_in_input_order():
    data = dataset([5, 2])
    scores = np.array([0.1, 0.9, 0.5, 0.9, 0.5, 0.0, 1.0])
    lists = Lists(data, scores, cutoff=3, append_score=False)
    assert lists.rows.tolist() == [1, 2, 3, 5, 6]  # of the two at 0.5 the first one
    assert lists.offsets.tolist() == [0, 3, 5]
    assert lists.mean_length == 2.5


def test_score_is_the_last_column():
    scores = np.array([0.25, -0.5, 1e-3])
    lists = Lists(dataset([2, 1]), scores, cutoff=9, append_score=True)
    assert lists.matrix[:, 2].tolist() == scores.astype(np.float32).tolist()
    assert lists.matrix.dtype == np.float32
    batch = lists.batch(np.array([1]))
    assert batch.features.shape == (1, 1, 3)
    assert batch.features[0, 0].tolist() == [2.0, 1.0, np.float32(1e-3)]


def test_batch_is_padded_to_its_longest_list():
    batch = unscored(dataset([2, 4, 1]), cutoff=9, append_score=False).batch(np.array([2, 0]))
    assert batch.mask.tolist() == [[True, False], [True, True]]
    assert rows_of(batch) == [[6.0], [0.0, 1.0]]
    assert [labels[mask].tolist() for labels, mask in zip(batch.labels, batch.mask, strict=True)] == [[0], [0, 1]]
    assert torch.isfinite(batch.features).all()


@pytest.mark.parametrize("shuffled", [True, False])
def test_every_list_comes_once_an_epoch(shuffled):
    lengths = np.random.default_rng(0).integers(1, 30, 103)
    data = dataset(lengths)
    rng = np.random.default_rng(1) if shuffled else None
    batches = list(unscored(data, cutoff=100, append_score=False).batches(10, rng))
    assert sorted(len(batch.mask) for batch in batches) == [3, *[10] * 10]
    found = [rows for batch in batches for rows in rows_of(batch)]
    expected = [data.features[data.slice(n), 0].tolist() for n in range(len(data))]
    assert sorted(found) == expected
    assert (found == expected) is not shuffled


def test_order_is_new_each_epoch_and_repeats_with_the_generator():
    lists = unscored(dataset([3] * 40), cutoff=9, append_score=False)

    def epochs(seed):
        rng = np.random.default_rng(seed)
        return [[rows_of(batch) for batch in lists.batches(8, rng)] for _ in range(2)]

    assert epochs(0) == epochs(0)
    assert epochs(0) != epochs(1)
    first, second = ({frozenset(map(tuple, batch)) for batch in epoch} for epoch in epochs(0))
    assert first != second  # other lists together, not only another order of the same batches


def test_similar_lengths_share_a_batch():
    lengths = np.random.default_rng(0).integers(1, 200, 800)
    lists = unscored(dataset(lengths), cutoff=1000, append_score=False)
    batches = list(lists.batches(80, np.random.default_rng(2)))
    padded = sum(batch.mask.numel() for batch in batches)
    assert padded < 1.2 * lengths.sum()
    at_random = lists.batches(80, np.random.default_rng(2), similar=False)
    assert sum(batch.mask.numel() for batch in at_random) > 1.6 * lengths.sum()


def test_batches_of_one_bucket_come_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 200, 64)
    lists = unscored(dataset(lengths), cutoff=1000, append_score=False)
    order = [batch.mask.shape[1] for batch in lists.batches(8, np.random.default_rng(2))]
    assert order != sorted(order)


def test_small_batches_have_one_thread():
    lists, most = unscored(dataset([30] * 200), cutoff=100, append_score=False), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        found = [(batch.mask.numel(), torch.get_num_threads()) for batch in lists.batches(90)]
        assert found == [(2700, 3), (2700, 3), (600, 1)]
        next(lists.batches(10))
        assert torch.get_num_threads() == 3, "an iteration that is given up leaves them as they were"
    finally:
        torch.set_num_threads(most)
