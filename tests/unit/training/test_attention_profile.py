"""QILCM2's attentions in the report: a share of the list for every candidate, under its rank in the first stage."""

import numpy as np
import pytest
import torch

from ranking.features import Feature, FeatureSchema
from training.model_config import Qilcm2
from training.ranker import Ranker
from training.reporting.attention import attention
from training.reporting.behaviour import Seen

ROWS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


@pytest.fixture(params=["seeds", "blocks"])
def ranker(request):
    spec = Qilcm2(context=request.param, encoder_width=8, heads=2, hidden=(4,), first_stage_score=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Ranker(FeatureSchema(features=(Feature(name="price"), Feature(name="stars"))), ROWS, spec)
    return made.eval()


def test_each_has_its_share_under_its_rank(ranker):
    ranks = np.array([2, 3, 1])
    seen = Seen(ROWS[:3], np.array([0, 0, 1]), 1.0 / ranks, np.arange(3.0), ranks, np.array([3, 2, 1]))
    with torch.inference_mode():
        shares = ranker.network.attention(ranker.preprocess(torch.from_numpy(ROWS[:3]))[None])[0].numpy()
    assert shares.sum() == pytest.approx(1.0, abs=1e-6)
    assert shares.min() > 0
    found = attention(ranker, False, [seen])
    assert [row[1] for row in found["by_rank"]] == pytest.approx((3 * shares[[2, 0, 1]]).tolist(), abs=1e-5)


def test_it_is_what_the_context_is_made_of(ranker):
    """A candidate that nobody looks at has no part in the others' context: the share says so."""
    context = ranker.network.context
    x = ranker.preprocess(torch.from_numpy(ROWS[:3]))[None]
    with torch.inference_mode():
        h = ranker.network.encoder(x)
        seen = torch.tensor([[True, True, False]])
        without = context(h, seen)[0, :1]
        assert torch.allclose(without, context(h[:, :2], None)[0, :1], atol=1e-5)
        assert not torch.allclose(without, context(h, None)[0, :1], atol=1e-5)
