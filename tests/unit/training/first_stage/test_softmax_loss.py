"""LightGBM by the listwise softmax loss: its gradient, and fits that repeat themselves, here and on workers."""

import dataclasses

import lightgbm
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking.compiled.first_stage import open_first_stage
from listwright.training.cluster import Workers
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.boosting import LocalGrower, SoftmaxLoss, lightgbm_dataset, settings_of
from listwright.training.first_stage.data_parallel import ParallelGrower
from listwright.training.losses import softmax_cross_entropy
from listwright.training.recipe.config import LambdaMartSettings
from support.training.planted import SPEC, ranking_data
from support.training.ray_stand_in import RayStandIn

SETTINGS = LambdaMartSettings(objective="softmax", bagging_fraction=0.7)
ONCE = SPEC.model_copy(update={"settings": SETTINGS, "trials": 1})


@pytest.fixture(scope="module")
def fitted(planted_data):
    return lambdamart.tune(*planted_data, ONCE, seed=3)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    weighted=st.booleans(),
    gains=st.sampled_from([None, (0.0, 1.0, 1.5, 7.0)]),
    seed=st.integers(0, 2**16),
)
def test_gradient_and_hessian_are_those_of_the_loss(lengths, weighted, gains, seed):
    """Sums over queries of torch's loss, which means over them; the Hessian's diagonal by the gradient's differences."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    labels, scores = rng.integers(0, 4, rows), rng.normal(size=rows) * 3
    weights = rng.choice([0.0, 0.5, 2.0], rows) if weighted else None
    data = lightgbm.Dataset(rng.normal(size=(rows, 1)), labels, group=lengths, weight=weights, free_raw_data=False)
    data.construct()
    loss = SoftmaxLoss(gains)
    gradient, hessian = loss(scores, data)
    query = np.repeat(np.arange(len(lengths)), lengths)
    mask = torch.from_numpy(np.arange(max(lengths)) < np.array(lengths)[:, None])
    padded = torch.zeros(mask.shape, dtype=torch.float64)
    values = padded.masked_scatter(mask, torch.from_numpy(scores)).requires_grad_()
    judged = torch.zeros(mask.shape, dtype=torch.int64).masked_scatter(mask, torch.from_numpy(labels))
    own = None if weights is None else padded.masked_scatter(mask, torch.from_numpy(weights))
    total = softmax_cross_entropy(values, judged, mask, weights=own, gains=gains) * len(lengths)
    total.backward()
    assert gradient == pytest.approx(values.grad[mask].numpy(), abs=1e-6)
    for row in range(rows):
        moved = scores + 1e-5 * (np.arange(rows) == row)
        difference = (loss(moved, data)[0][row] - gradient[row]) / 1e-5
        assert hessian[row] == pytest.approx(difference, abs=1e-4)
    relevant = np.bincount(query, (labels > 0) * (1.0 if weights is None else weights)) > 0
    assert not gradient[~relevant[query]].any()


def test_it_learns_and_repeats_itself_to_the_byte(planted_data, fitted):
    assert fitted.valid_ndcg > 0.9
    assert fitted.params["objective"] == "softmax"
    assert lambdamart.tune(*planted_data, ONCE, seed=3).model == fitted.model
    assert LocalGrower().boost(planted_data[0], settings_of(fitted.params, 3), fitted.trees) == fitted.model
    plain = LambdaMartSettings(bagging_fraction=0.7)
    other = lambdamart.tune(*planted_data, ONCE.model_copy(update={"settings": plain}), seed=3)
    assert other.model != fitted.model


def test_the_best_trial_is_reused(planted_data, fitted, monkeypatch):
    grower = LocalGrower()
    _, trees = grower.trial_of(*planted_data, ONCE)(0, settings_of(fitted.params, 3), lambda *_: None)
    monkeypatch.setattr(lightgbm, "train", lambda *_, **__: pytest.fail("fitted again"))
    assert grower.boost(planted_data[0], settings_of(fitted.params, 3), trees) == fitted.model


@pytest.mark.parametrize("members", [1, 3])
def test_compiled_and_lightgbm_score_alike(planted_data, members):
    """The service reads the model's text, whatever its trees were fitted by."""
    train, valid = planted_data
    tuned = lambdamart.tune(train, valid, ONCE.model_copy(update={"members": members}), seed=3)
    booster = lightgbm.Booster(model_str=tuned.model)
    assert booster.num_trees() == members * tuned.trees
    expected = booster.predict(lambdamart.lightgbm_input(valid.features, valid.schema), raw_score=True)
    for engine in ("compiled", "lightgbm"):
        scores = open_first_stage(tuned.model, valid.schema, engine).score(valid.features)
        np.testing.assert_array_equal(scores, expected)


def test_folds_and_weights_count(planted_data):
    train, valid = planted_data
    by_folds = lambdamart.tune(train, valid, ONCE.model_copy(update={"select_on": "folds"}), seed=3)
    assert by_folds.valid_ndcg > 0.9
    turned = dataclasses.replace(train, labels=2 - train.labels, weights=None)
    both = np.repeat([1.0, 0.0], train.rows)
    mixed = dataclasses.replace(
        train,
        features=np.concatenate([train.features, turned.features]),
        labels=np.concatenate([train.labels, turned.labels]).astype(np.int32),
        offsets=np.concatenate([train.offsets, train.rows + turned.offsets[1:]]),
        qids=(*train.qids, *(f"turned {qid}" for qid in turned.qids)),
        weights=both,
    )
    assert lambdamart.tune(mixed, valid, ONCE, seed=3).valid_ndcg > 0.9
    assert lambdamart.tune(dataclasses.replace(mixed, weights=both[::-1].copy()), valid, ONCE, seed=3).valid_ndcg < 0.7


def test_workers_grow_as_good_trees(planted_data, fitted, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    grower = ParallelGrower(Workers(RayStandIn(), 1))
    there = lambdamart.tune(*planted_data, ONCE, seed=3, grower=grower)
    assert there.valid_ndcg == pytest.approx(fitted.valid_ndcg, abs=0.03)


@pytest.mark.parametrize(
    ("most", "weighted", "objective", "reason"),
    [
        (2, False, "lambdarank", "training labels go up to 2"),
        (1, True, "lambdarank", "training rows have weights"),
        (1, False, "softmax", "training labels are 0 or 1, and rows have no weights"),
    ],
)
def test_choices_are_fitted_by_softmax_and_all_else_by_lambdarank(planted_data, most, weighted, objective, reason):
    parts = [
        dataclasses.replace(
            part, labels=np.minimum(part.labels, most), weights=np.ones(part.rows) if weighted else None
        )
        for part in planted_data
    ]
    assert lambdamart.tune(*parts, SPEC, seed=3).params["objective"] == objective
    assert lambdamart.loss_of(parts[0], SPEC.settings) == (objective, reason)
    named = SPEC.model_copy(update={"settings": LambdaMartSettings(objective="softmax")})
    assert lambdamart.tune(*parts, named, seed=3).params["objective"] == "softmax"
    assert lambdamart.loss_of(parts[0], named.settings) == ("softmax", "the recipe sets it")


def test_one_dataset_may_have_several_gains():
    data = lightgbm_dataset(ranking_data(np.random.default_rng(0), queries=3))
    data.construct()
    scores = np.zeros(24)
    plain, steep = (SoftmaxLoss(gains)(scores, data)[0] for gains in (None, (0.0, 1.0, 100.0)))
    assert not np.array_equal(plain, steep)
    np.testing.assert_array_equal(SoftmaxLoss()(scores, data)[0], plain)


def test_large_scores_overflow_nothing():
    data = lightgbm_dataset(ranking_data(np.random.default_rng(0), queries=3))
    data.construct()
    scores = np.linspace(-1e4, 1e4, 24)
    for part in SoftmaxLoss()(scores, data):
        assert np.isfinite(part).all()


def test_settings_name_it_once():
    one, other = (settings_of(SETTINGS.model_dump(), 1)["objective"] for _ in range(2))
    assert one == other == SoftmaxLoss()
    assert settings_of({**SETTINGS.model_dump(), "label_gain": [0.0, 2.0]}, 1)["objective"] == SoftmaxLoss((0.0, 2.0))
    assert settings_of({"objective": "lambdarank"}, 1)["objective"] == "lambdarank"
