"""The pointwise model: planted log-odds are found again, the same data give the same bytes, and a clock may end it."""

from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.probability import sigmoid
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.lambdamart import scores_of
from listwright.training.first_stage.pointwise import fit_pointwise
from listwright.training.search import TimeOverError


def logistic(seed, queries=200, length=6):
    """Candidates that are relevant with a probability of their own, whose log-odds are twice the first feature."""
    rng = np.random.default_rng(seed)
    rows = queries * length
    features = rng.normal(size=(rows, 3)).astype(np.float32)
    labels = (rng.random(rows) < sigmoid(2.0 * features[:, 0].astype(np.float64) - 0.5)).astype(np.int32)
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in "abc"))
    return Dataset(features, labels, np.arange(0, rows + 1, length), tuple(map(str, range(queries))), schema)


def fitted(train, valid, **options):
    return fit_pointwise(train, valid, **{"seed": 0, "report": lambda *_: None} | options)


@pytest.fixture(scope="module")
def data():
    return logistic(0), logistic(1)


def test_planted_log_odds_are_found(data):
    train, valid = data
    found = fitted(train, valid)
    for scores, part in ((found.train_scores, train), (scores_of(found.model, valid), valid)):
        truth = sigmoid(2.0 * part.features[:, 0].astype(np.float64) - 0.5)
        assert np.abs(sigmoid(scores) - truth).mean() < 0.1


def test_the_same_data_give_the_same_bytes_by_any_label_above_0(data):
    train, valid = data
    twice = fitted(*(replace(part, labels=2 * part.labels) for part in data))
    assert twice.model == fitted(train, valid).model
    np.testing.assert_array_equal(twice.train_scores, fitted(train, valid).train_scores)


def test_training_rows_are_scored_by_models_that_have_not_seen_their_list(data):
    train, valid = data
    found, seen = fitted(train, valid), scores_of(fitted(train, valid).model, train)

    def loss(scores):
        return -np.log(np.where(train.labels > 0, sigmoid(scores), 1.0 - sigmoid(scores))).mean()

    assert loss(seen) < loss(found.train_scores)


def test_weights_count(data):
    """Rows with turned labels, and next to no weight, change little; with all of it they turn the model."""
    train, valid = data
    turned = np.repeat(np.arange(len(train)) % 2 == 0, 6)
    labels = np.where(turned, 1 - train.labels, train.labels)
    slopes = []
    for weight in (1e-3, 1e3):
        weighted = replace(train, labels=labels, weights=np.where(turned, weight, 1.0))
        against = replace(valid, labels=valid.labels if weight < 1.0 else 1 - valid.labels)
        scores = scores_of(fitted(weighted, against).model, valid)
        slopes.append(np.corrcoef(scores, valid.features[:, 0])[0, 1])
    assert slopes[0] > 0.9
    assert slopes[1] < -0.9


def test_a_clock_ends_trees_and_folds(data):
    def late(trees, _loss):
        if trees >= 20:
            raise TimeOverError

    folds = []
    ended = fitted(*data, report=late, goes_on=lambda fold, _seconds: folds.append(fold) or fold < 1)
    assert ended.model.count("\nTree=") == 20
    assert ended.train_scores is None
    assert folds == [0, 1]
