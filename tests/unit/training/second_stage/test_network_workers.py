"""Epochs on workers: shares of whole lists, the gradient of the whole batch, and the same weights after a loss."""

import numpy as np
import pytest
import torch
from torch import distributed

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import Workers
from listwright.training.data.synthetic.planted import generate
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.data import SyntheticData
from listwright.training.recipe.model import MlpSpec, QilcmSpec
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import fit_network, loss_of
from support.training.ray_stand_in import RayStandIn

SPEC = QilcmSpec(encoder_width=8, hidden=(16,), batch_size=16, max_epochs=3, learning_rate=3e-3, cutoff=8, dropout=0.1)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("listwright.training.cluster.time.sleep", lambda _seconds: None)
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def data():
    spec = SyntheticData(queries=90, min_length=1, max_length=14, numeric=4, categorical=1, shift=0.5, noise=0.1)
    whole, truth = generate(spec, np.random.default_rng(0))
    train, valid = whole.select(range(60)), whole.select(range(60, 90))
    return train, valid, truth.utilities[: train.rows], truth.utilities[train.rows :]


def lists_of(data):
    return Lists(data[0], data[2], cutoff=8, append_score=True)


def fitted(data, losses=0, spec=SPEC):
    workers = Workers(RayStandIn(losses=losses), 1)
    return fit_network(spec, *data, seed=1, workers=workers)


def test_a_share_is_the_same_lists(data):
    lists, queries = lists_of(data), np.array([3, 7, 20])
    share = lists.share(queries)
    assert len(share) == 3
    for place, n in enumerate(queries):
        np.testing.assert_array_equal(share.inputs(place), lists.inputs(n))
        np.testing.assert_array_equal(share.candidates(place), lists.candidates(n))
    for one, other in zip(share.batch(np.arange(3))[:3], lists.batch(queries)[:3], strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_the_mean_of_the_shares_gradients_is_that_of_the_batch(data):
    """Of lists of equal number, for the ranking loss."""
    lists, spec = lists_of(data), MlpSpec(encoder_width=8, hidden=(8,), cutoff=8)
    torch.manual_seed(0)
    model = Ranker(data[0].schema, lists.matrix, spec, len(data[0].schema))
    queries = np.arange(20)

    def gradient(some):
        model.zero_grad()
        loss_of(model, lists.batch(some), spec, 0.0, np.random.default_rng(0))[0].backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])

    mean = (gradient(queries[0::2]) + gradient(queries[1::2])) / 2
    torch.testing.assert_close(mean, gradient(queries), rtol=1e-4, atol=1e-7)


def test_epochs_elsewhere_learn_and_are_told(data):
    found = fitted(data)
    losses = [epoch.rank_loss for epoch in found.history]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert all(epoch.confusion_loss > 0.0 for epoch in found.history)


@pytest.mark.parametrize("losses", [1, 3])
def test_a_lost_worker_changes_nothing(data, losses):
    one, other = fitted(data), fitted(data, losses)
    states = zip(one.module.state_dict().values(), other.module.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in states)


def test_more_workers_than_lists_of_a_batch_are_refused(data):
    with pytest.raises(RecipeError, match="--workers 17: there are 60 training lists, 16 in a batch; take fewer"):
        fit_network(SPEC, *data, seed=1, workers=Workers(RayStandIn(), 17))
