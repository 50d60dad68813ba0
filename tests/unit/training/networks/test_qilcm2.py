"""QILCM2's members: several networks in one graph, each fitted by its own loss, their mean what is served."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.parity import TOLERANCE
from listwright.training.export.second_stages import ranker_graph
from listwright.training.losses import att_rank
from listwright.training.networks.qilcm import MASKED_LOGIT
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import Qilcm2Spec
from listwright.training.second_stage.batching import Batch
from listwright.training.second_stage.loop import loss_of

SCHEMA = FeatureSchema(
    features=(Feature(name="price"), Feature(name="kind", kind="categorical", categories=("a", "b", "c")))
)
RNG = np.random.default_rng(0)
ROWS = np.column_stack([RNG.normal(size=60), RNG.integers(0, 4, 60), RNG.normal(size=60)]).astype(np.float32)


def made(members, context="blocks", *, moved=True):
    spec = Qilcm2Spec(context=context, encoder_width=8, heads=2, members=members, hidden=(4,), input_noise=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ranker = Ranker(SCHEMA, ROWS, spec, score_column=2)
        for member in ranker.network.members if moved else ():
            torch.nn.init.normal_(member.ranking[-1].weight)  # which starts at 0
    return ranker, spec


@pytest.fixture
def batch():
    lists = torch.from_numpy(ROWS.reshape(6, 10, 3))
    mask = torch.arange(10) < torch.tensor([10, 7, 1, 3, 10, 5])[:, None]
    return Batch(lists, torch.from_numpy(RNG.integers(0, 3, (6, 10))), mask)


def test_logits_are_the_mean_of_members_that_differ(batch):
    ranker, _ = made(3)
    found = ranker.eval()(batch.features, batch.mask)
    assert found.members.shape == (3, 6, 10)
    spread = found.members.std(dim=0)[batch.mask]
    assert spread.min() > 0
    assert torch.allclose(found.logits[batch.mask], found.members.mean(dim=0)[batch.mask])
    assert (found.logits[~batch.mask] == MASKED_LOGIT).all()


def test_each_member_starts_from_the_order_of_the_first_stage(batch):
    ranker, _ = made(2, moved=False)
    found = ranker.eval()(batch.features, batch.mask)
    scores = ROWS[:, 2].astype(np.float64)
    expected = torch.from_numpy((ROWS[:, 2].reshape(6, 10) - scores.mean()) / scores.std()).float()
    for logits in found.members:
        assert torch.allclose(logits[batch.mask], expected[batch.mask], atol=1e-5)


def test_each_member_has_the_loss_of_its_own_scores(batch):
    """Not that of the mean, with which members would lean on each other."""
    ranker, spec = made(2)
    ranker.eval()
    loss, rank_loss, _ = loss_of(ranker, batch, spec, 0.0, RNG)
    found = ranker(batch.features, batch.mask)
    each = [att_rank(logits, batch.labels, batch.mask).item() for logits in found.members]
    assert loss.item() == rank_loss == pytest.approx(np.mean(each), rel=1e-6)
    assert abs(att_rank(found.logits, batch.labels, batch.mask).item() - np.mean(each)) > 1e-3
    member = ranker.network.members[0]
    (gradient,) = torch.autograd.grad(loss, member.mix)
    alone = att_rank(ranker(batch.features, batch.mask).members[0], batch.labels, batch.mask)
    assert torch.allclose(gradient, torch.autograd.grad(alone, member.mix)[0] / 2, atol=1e-7)


@pytest.mark.nightly
@pytest.mark.parametrize("context", ["seeds", "blocks"])
def test_members_are_exported_as_one_graph_for_lists_of_any_length(context):
    ranker, _ = made(3, context)
    width = ROWS.shape[1]
    graph = ranker_graph(ranker.eval())
    scorer = OnnxScorer(graph, width)
    for length in (1, 2, 3, 50, 130):
        rows = ROWS[np.arange(length) % len(ROWS)]
        with torch.inference_mode():
            expected = ranker(torch.from_numpy(rows)[None], torch.ones(1, length, dtype=torch.bool)).logits[0]
        assert np.abs(scorer.score(rows) - expected.numpy()).max() < TOLERANCE
    single, _ = made(1, context)
    assert len(graph) > 2 * len(ranker_graph(single.eval()))
