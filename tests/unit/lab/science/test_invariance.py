"""What says whether representations are query-invariant knows when they are."""

import numpy as np
import pytest
import torch

from listwright_lab.science import invariance


def lists(offsets, *, length=20, width=4, seed=0):
    """Candidates from one distribution, each list moved by its own offset; the last list has two candidates only."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(len(offsets), length, width)))
    rows += torch.as_tensor(offsets, dtype=torch.float64)[:, None, None]
    mask = torch.ones(len(offsets), length, dtype=torch.bool)
    mask[-1, 2:] = False
    rows[~mask] = 1e3  # padding must not matter
    return rows, mask


def test_moved_lists_are_told_apart_and_lists_of_one_distribution_are_not():
    alike, moved = lists(np.zeros(60)), lists(np.linspace(-9, 9, 60))
    assert invariance.query_share(*alike) < 0.1
    assert invariance.query_share(*moved) > 0.9
    rng = np.random.default_rng
    assert invariance.distance_to_others(*alike, rng(0)) == pytest.approx(1.0, abs=0.05)
    assert invariance.distance_to_others(*moved, rng(0)) > 3.0


def test_lists_of_mean_zero_share_no_variance_between_them():
    rows, mask = lists(np.linspace(-9, 9, 40))
    kept = rows.masked_fill(~mask[..., None], 0.0)
    rows = rows - kept.sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None]
    assert invariance.query_share(rows, mask) == pytest.approx(0.0, abs=1e-12)


def test_neither_depends_on_the_scale_of_a_dimension_nor_on_dead_ones():
    rows, mask = lists(np.linspace(-1, 1, 30))
    scaled = torch.cat([rows * torch.tensor([1.0, 10.0, 0.1, 5.0]), torch.full_like(rows[..., :1], 7.0)], dim=-1)
    assert invariance.query_share(scaled, mask) == pytest.approx(invariance.query_share(rows, mask))
    found, wanted = (invariance.distance_to_others(one, mask, np.random.default_rng(1)) for one in (scaled, rows))
    assert found == pytest.approx(wanted)


def test_attention_is_spread_over_as_many_candidates_as_it_looks_at():
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    even = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]])
    assert invariance.attention_spread(even, mask) == pytest.approx(1.0)
    one = torch.tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert invariance.attention_spread(one, mask) == pytest.approx((1 / 4 + 1 / 2) / 2)
