"""Trees in step: to the last bit what walking through them gives, on every kind of register."""

import lightgbm
import numpy as np
import pytest

from listwright.ranking.compiled import first_stage
from listwright.ranking.compiled.first_stage import tree_traversal
from listwright.ranking.compiled.lightgbm_trees import read_forest

FEATURES = 6


def rows(count, *, seed=0):
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(count, FEATURES)).astype(np.float32)
    found[:, 0] = np.round(found[:, 0])  # zeros, and ties with thresholds
    found[rng.random(found.shape) < 0.2] = np.nan
    return found


def forest(trees=30, **params):
    features = rows(3000)
    labels = np.nan_to_num(features[:, 0] * features[:, 1] + features[:, 2])
    settings = {"objective": "regression", "num_leaves": 100, "min_data_in_leaf": 3, "verbosity": -1, "num_threads": 1}
    return read_forest(lightgbm.train(settings | params, lightgbm.Dataset(features, labels), trees).model_to_string())


@pytest.fixture(scope="module")
def uneven():
    """Trees of many sizes: the learning rate leaves later ones ever less to split."""
    return forest(learning_rate=0.5, min_gain_to_split=2.0)


def on_thresholds(found, model):
    """Every second value lies on a threshold of its feature, from which a row goes left."""
    inner = model.nodes[np.isfinite(model.nodes["threshold"])]
    split_on = model.columns["feature"][inner["column"]]
    rng = np.random.default_rng(3)
    for feature in range(FEATURES):
        taken = rng.random(len(found)) < 0.5
        found[taken, feature] = rng.choice(inner["threshold"][split_on == feature], taken.sum())
    return found


def scores(model, asked, *, fastest=True):
    turns, out = first_stage.schedule(model), np.empty(len(asked))
    tree_traversal.score(
        *(asked, model.columns, model.nodes, model.trees, model.sets, model.values),
        *(turns.groups, turns.splits, turns.walked, turns.turns, out, fastest),
    )
    return out


def test_every_tree_has_a_turn_of_its_own(uneven):
    turns = first_stage.schedule(uneven)
    assert len(turns.walked)
    assert len(turns.groups) > 1
    assert len(set(turns.turns)) == len(uneven.trees)
    assert turns.turns.max() < first_stage.ABREAST * len(turns.groups) + len(turns.walked)
    assert turns.groups["steps"].sum() == len(turns.splits)


@pytest.mark.skipif(
    tree_traversal is None, reason="ranking.compiled.tree_traversal is not built: there was no C compiler"
)
@pytest.mark.parametrize("fastest", [True, False], ids=["fastest registers", "registers of any processor"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_in_step_is_walking_to_the_last_bit(uneven, count, fastest, monkeypatch):
    asked = on_thresholds(rows(count, seed=count), uneven)
    found = scores(uneven, asked, fastest=fastest)
    monkeypatch.setattr(first_stage, "MOST_LEAVES", 0)
    assert len(first_stage.schedule(uneven).walked) == len(uneven.trees)
    assert np.array_equal(found, scores(uneven, asked))
    assert len(np.unique(found)) > count / 2


@pytest.mark.parametrize("leaves", [2, 64, 65])
def test_up_to_so_many_leaves(leaves):
    model = forest(trees=1, num_leaves=leaves, min_data_in_leaf=1)
    assert len(model.nodes) == 2 * leaves - 1
    assert len(first_stage.schedule(model).groups) == (leaves <= first_stage.MOST_LEAVES)


def test_a_group_that_is_not_full_waits_for_nobody():
    turns = first_stage.schedule(forest(trees=5, num_leaves=4))
    assert list(turns.groups["steps"]) == [3, 3]
    assert np.isinf(turns.splits["threshold"][3:, 1:]).all()
    assert not turns.splits["step"][3:, 1:].any()
