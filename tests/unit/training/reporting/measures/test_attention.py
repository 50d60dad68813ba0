"""QILCM2's attentions in the report: a share of the list for every candidate, under its rank in the first stage."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import Qilcm2Spec
from listwright.training.reporting.measures.behaviour import RankedQuery, attention

ROWS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


@pytest.fixture(params=["seeds", "blocks"])
def ranker(request):
    spec = Qilcm2Spec(context=request.param, encoder_width=8, heads=2, members=2, hidden=(4,), first_stage_score=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Ranker(FeatureSchema(features=(Feature(name="price"), Feature(name="stars"))), ROWS, spec)
        for member in made.network.members:
            for parameter in member.context.parameters():
                parameter.data.add_(torch.randn_like(parameter))  # far from even
    made.network.spec_context = request.param
    return made.eval()


def by_hand(member, h, kind):
    """``(L,)`` from the formulas: softmax of each seed's logits; of every query times every key, head by head."""
    context = member.context
    if kind == "seeds":
        logits = h @ context.attention.weight.T + context.attention.bias
        return np.mean([softmax(column) for column in logits.T.numpy()], axis=0)
    block, z = context.blocks[0], context.into(h)
    query, key, _ = (part.numpy() for part in block.project(block.before(z)).chunk(3, dim=-1))
    shares = [
        softmax(query[one, head] @ key[:, head].T / np.sqrt(4))
        for head in (slice(0, 4), slice(4, 8))
        for one in range(len(h))
    ]
    return np.mean(shares, axis=0)


def softmax(logits):
    found = np.exp(logits - logits.max())
    return found / found.sum()


def test_each_has_its_share_under_its_rank(ranker):
    ranks = np.array([2, 3, 1])
    seen = RankedQuery(ROWS[:3], np.array([0, 0, 1]), 1.0 / ranks, np.arange(3.0), ranks, np.array([3, 2, 1]))
    with torch.inference_mode():
        x = ranker.preprocess(torch.from_numpy(ROWS[:3]))[None]
        network = ranker.network
        each = [by_hand(member, member.encoder(x)[0], network.spec_context) for member in network.members]
    shares = np.mean(each, axis=0)
    assert np.ptp(shares) > 1e-3, "an even split would hold for anything"
    assert np.abs(each[0] - each[1]).max() > 1e-3
    found = attention(ranker, False, [seen])
    assert [row[1] for row in found["by_rank"]] == pytest.approx((3 * shares[[2, 0, 1]]).tolist(), abs=1e-5)
