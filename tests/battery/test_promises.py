"""The promises that every second stage keeps, whichever network it is."""

import numpy as np
import pytest
import torch

from listwright.ranking.features import UNKNOWN_CODE
from listwright.ranking.order import rank_by_score
from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.second_stages import ranker_graph
from listwright.training.networks.qilcm import MASKED_LOGIT
from listwright.training.networks.ranker import Ranker, Unbatched
from listwright.training.recipe.model import Qilcm2Spec
from listwright.training.second_stage.loop import ranking_loss
from support.training.networks import SCHEMA, SPECS, build, raw_rows

PRESENTED = {"dlcm, presented", "dcm, presented"}
READS_FIRST_STAGE = {"dlcm", "dcm"}
EXPORTED = set(SPECS) - {"qilcm-v2", "qilcm without first stage", "qilcm2 without first stage"}
"""The others give a graph that stands here already."""

every = pytest.mark.parametrize("name", SPECS)


RANKERS = {name: build(name) for name in SPECS}


def score(name, rows):
    with torch.no_grad():
        return Unbatched(RANKERS[name])(torch.from_numpy(rows).double()).numpy()


def padded(lists, *, length, fill=0.0):
    raw = torch.full((len(lists), length, lists[0].shape[1]), fill, dtype=torch.float64)
    mask = torch.zeros(len(lists), length, dtype=torch.bool)
    for n, rows in enumerate(lists):
        raw[n, : len(rows)], mask[n, : len(rows)] = torch.from_numpy(rows).double(), True
    return raw, mask


def gradients(ranker, raw, mask, loss="per_query"):
    labels = (torch.arange(mask.shape[1]) % 3).expand(mask.shape)
    value = ranking_loss(loss, ranker(raw, mask).logits, labels, mask)
    found = torch.autograd.grad(value, list(ranker.parameters()), allow_unused=True)
    return [torch.zeros(()) if one is None else one for one in found]


@every
def test_scores_follow_their_candidate(name):
    """Also for networks that read by the first stage: another input order, but the same first-stage order."""
    rows = raw_rows(9, name, seed=1)
    order = np.random.default_rng(2).permutation(9)
    before, after = score(name, rows), score(name, rows[order])
    assert np.ptp(before) > 1e-3
    if name in PRESENTED:
        assert np.abs(after - before[order]).max() > 1e-3, "the order of presentation is what it reads"
    else:
        assert after == pytest.approx(before[order], abs=1e-9)


@every
def test_only_a_reader_sees_the_first_stages_order(name):
    """The same inputs, as if the first stage had ordered them otherwise."""
    ranker = RANKERS[name]
    with torch.no_grad():
        x = ranker.preprocess(torch.from_numpy(raw_rows(7, name, seed=3)).double())[None]
        first = torch.arange(7, dtype=torch.float64)[None]
        by_one, by_other = (ranker.network(x, None, scores).logits for scores in (first, -first))
        if ranker.score_column is not None and name.startswith("qilcm2"):
            return  # adds the score itself: see below
    assert torch.equal(by_one, by_other) == (name not in READS_FIRST_STAGE)


@pytest.mark.parametrize("name", sorted(READS_FIRST_STAGE))
def test_equal_first_stage_scores_are_read_in_input_order(name):
    rows = raw_rows(5, name, seed=4)
    rows[1:4, 3] = 0.25
    network = RANKERS[name].network
    x = RANKERS[name].preprocess(torch.from_numpy(rows).double())[None]
    tied = torch.tensor([[0.9, 0.25, 0.25, 0.25, 0.1]], dtype=torch.float64)
    apart = torch.tensor([[0.9, 0.27, 0.26, 0.25, 0.1]], dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(network(x, None, tied).logits, network(x, None, apart).logits)


@every
@pytest.mark.parametrize("fill", [0.0, float("nan"), float("inf"), -7.0])
def test_padding_is_inert(name, fill):
    ranker = RANKERS[name]
    lists = [raw_rows(length, name, seed=length) for length in (1, 6, 3)]
    raw, mask = padded(lists, length=6)
    more, more_mask = padded(lists, length=9, fill=fill)
    with torch.no_grad():
        expected, found = ranker(raw, mask).logits, ranker(more, more_mask).logits
    assert (found[~more_mask] == MASKED_LOGIT).all()
    assert found[more_mask].tolist() == pytest.approx(expected[mask].tolist(), abs=1e-9)
    for n, rows in enumerate(lists):  # nor do the other lists of a batch, or its being one
        assert found[n, : len(rows)].numpy() == pytest.approx(score(name, rows), abs=1e-9)
    pairs = zip(gradients(ranker, raw, mask), gradients(ranker, more, more_mask), strict=True)
    assert all(torch.allclose(one, other, atol=1e-9) for one, other in pairs)


@every
def test_padding_may_stand_anywhere(name):
    rows = raw_rows(4, name, seed=5)
    raw = padded([rows], length=4)[0]
    apart = torch.full((1, 7, rows.shape[1]), torch.nan, dtype=torch.float64)
    places = torch.tensor([1, 2, 4, 6])
    apart[0, places], real = raw[0], torch.zeros(1, 7, dtype=torch.bool)
    real[0, places] = True
    with torch.no_grad():
        found = RANKERS[name](apart, real).logits
    assert found[real].numpy() == pytest.approx(score(name, rows), abs=1e-9)


@every
def test_a_list_of_nothing_but_padding_is_finite(name):
    raw, mask = padded([raw_rows(3, name)], length=3)
    raw, mask = torch.cat([raw, torch.full_like(raw, torch.nan)]), torch.cat([mask, torch.zeros_like(mask)])
    found = RANKERS[name](raw, mask)
    assert (found.logits[1] == MASKED_LOGIT).all()
    assert torch.isfinite(found.logits).all()
    assert all(torch.isfinite(one).all() for one in gradients(RANKERS[name], raw, mask))


@every
def test_one_candidate(name):
    alone = score(name, raw_rows(1, name, seed=6))
    assert alone.shape == (1,)
    assert np.isfinite(alone).all()


@every
def test_constant_features_are_finite(name):
    rows = np.repeat(raw_rows(1, name, seed=7), 5, axis=0)
    scores = score(name, rows)
    assert np.isfinite(scores).all()
    if name not in PRESENTED | READS_FIRST_STAGE:
        assert np.ptp(scores) < 1e-9, "equal candidates get equal scores"
    raw, mask = padded([rows], length=5)
    assert all(torch.isfinite(one).all() for one in gradients(RANKERS[name], raw, mask))


@every
@pytest.mark.parametrize("loss", ["per_query", "paper", "softmax", "plackett_luce"])
def test_every_loss_has_finite_gradients(name, loss):
    lists = [raw_rows(length, name, seed=length) for length in (1, 8)]
    lists[1][3] = np.nan
    if lists[1].shape[1] == 4:
        lists[1][3, 3] = 0.5  # a first stage always has a score
    found = gradients(RANKERS[name], *padded(lists, length=10, fill=float("nan")), loss)
    assert all(torch.isfinite(one).all() for one in found)
    assert any(one.any() for one in found)


@pytest.fixture(scope="module")
def graphs():
    """Every exported graph, made when it is first asked for."""
    made = {}

    def graph(name):
        if name not in made:
            ranker = build(name).float()
            made[name] = OnnxScorer(ranker_graph(ranker), raw_rows(1, name).shape[1])
        return made[name]

    return graph


@pytest.mark.parametrize(
    "name", ["dlcm", *(pytest.param(name, marks=pytest.mark.nightly) for name in sorted(EXPORTED - {"dlcm"}))]
)
def test_one_exported_graph_agrees_at_every_length(graphs, name):
    """With torch in float64 under float32 weights."""
    exact = build(name).float().double()
    for length in (1, 2, 3, 40, 257):
        plain = raw_rows(length, name, seed=length)
        for what, rows in {"plain": plain, **odd(plain)}.items():
            with torch.no_grad():
                expected = Unbatched(exact)(torch.from_numpy(rows).double()).numpy()
            worst = np.abs(graphs(name).score(rows) - expected) / np.maximum(1.0, np.abs(expected))
            assert worst.max() < 1e-4, f"{what} list of {length}"


def odd(rows):
    """Lists that are easy to get wrong; a first-stage score is never missing, but may tie."""
    holey, unknown, tied = rows.copy(), rows.copy(), rows.copy()
    holey[::2, :2] = np.nan
    unknown[:, 2] = UNKNOWN_CODE
    tied[:, -1] = np.round(tied[:, -1])
    return {"holey": holey, "unknown": unknown, "tied": tied, "constant": np.repeat(rows[:1], len(rows), axis=0)}


@pytest.mark.parametrize("context", ["seeds", "blocks"])
def test_qilcm2_starts_from_the_first_stages_order(context):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        ranker = Ranker(SCHEMA, raw_rows(300, "qilcm2, seeds"), Qilcm2Spec(context=context), 3).eval()
    rows = raw_rows(50, "qilcm2, seeds", seed=8)
    with torch.no_grad():
        scores = Unbatched(ranker)(torch.from_numpy(rows)).double().numpy()
    assert rank_by_score(scores).tolist() == rank_by_score(rows[:, 3]).tolist()
