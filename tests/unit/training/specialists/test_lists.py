"""Lists that are padded block by block are the lists that are padded at once."""

import numpy as np
import pytest
import torch

from listwright.training.specialists import lists as module
from listwright.training.specialists.em import Mixture, log_likelihoods
from listwright.training.specialists.lists import BlockedLists
from listwright.training.specialists.rankers import LinearRanker

LENGTHS = (4, 2, 5, 3, 6, 2, 3, 4)


@pytest.fixture
def made(monkeypatch):
    """Lists in blocks of at least so many rows, with rows of no list between them, and which rows were asked for."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(2 * sum(LENGTHS), 3)))
    starts = 2 * torch.tensor(np.cumsum((0, *LENGTHS[:-1])))
    labels = torch.from_numpy(rng.integers(0, 3, len(x)).astype(np.float64))
    labels[starts], labels[starts + 1] = 0.0, 1.0
    asked = []

    def inputs(rows):
        asked.append(len(rows))
        return x[rows]

    def lists(block_rows, held=False):
        monkeypatch.setattr(module, "BLOCK_ROWS", block_rows)
        return BlockedLists(inputs, labels, starts, torch.tensor(LENGTHS), top=None, held=held), asked

    return lists


@pytest.mark.parametrize("rows", [1, 6, 7, 12, 100])
def test_blocks_are_whole_lists_in_order(made, rows):
    lists, asked = made(rows)
    blocks = list(lists.blocks())
    assert [n for at, _ in blocks for n in range(at.start, at.stop)] == list(range(len(LENGTHS)))
    lengths = [n for _, block in blocks for n in block.mask.sum(dim=1).tolist()]
    assert lengths == list(LENGTHS)
    assert all(size >= rows for size in asked[:-1])
    assert max(asked) < rows + max(LENGTHS)
    whole = lists.batch(torch.arange(len(lists)))
    assert torch.equal(torch.cat([block.x for _, block in blocks]), whole.x)
    assert lists.group_count == whole.group_count


@pytest.mark.parametrize("held", [False, True])
def test_em_of_blocks_is_em_of_all(made, held):
    lists, _ = made(7, held)
    whole = lists.batch(torch.arange(len(lists)))
    shares = torch.full((len(lists), 2), 0.5, dtype=torch.float64)
    found = []
    for one in (lists, whole):
        rankers = [LinearRanker(3, 0.7) for _ in range(2)]
        for n, ranker in enumerate(rankers):
            ranker.forget(np.random.default_rng(n))
        mixture = Mixture(one, rankers, shares, alpha=1.1, seed=(0,))
        found.append(([step.objective for step in mixture.iterate(4)], log_likelihoods(one, rankers)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-10)


def test_blocks_that_are_not_held_are_read_again_and_others_are_not(made):
    for held, times in ((False, 2), (True, 1)):
        lists, asked = made(7, held)
        asked.clear()
        for _ in range(2):
            assert sum(len(block.x) for _, block in lists.blocks()) == sum(LENGTHS)
        assert sum(asked) == times * sum(LENGTHS)


def test_some_lists_have_their_own_rows(made):
    lists, _ = made(5)
    picked = torch.tensor([6, 1, 4])
    part = lists.select(picked)
    assert torch.equal(torch.cat([block.x for _, block in part.blocks()]), lists.batch(picked).x)
