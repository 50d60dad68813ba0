"""Trees are grown by one thread or by all: whichever is faster, and the model is the same."""

import time

import numpy as np
import pytest
from lightgbm.callback import CallbackEnv

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage import boosting
from listwright.training.first_stage.boosting import COMPARED_S, TIMED_TREES, FasterThreads, LocalGrower, settings_of
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings

SETTINGS = LambdaMartSettings(num_leaves=7, min_data_in_leaf=5, cat_smooth=10.0)


def before_tree(number):
    """What LightGBM tells a callback before a tree."""
    return CallbackEnv(None, {}, number, 0, 100, None)


class Machine:
    """A clock that goes on by the seconds of each tree, by one thread and by all."""

    def __init__(self, monkeypatch, *, one, every):
        self.now, self.one, self.every, self.used = 1000.0, one, every, []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(boosting, "threads", lambda: 4)
        monkeypatch.setattr(boosting, "_LIGHTGBM", self)
        self.levels = 7

    def omp_get_max_active_levels(self):
        return self.levels

    def omp_set_max_active_levels(self, levels):
        self.levels = levels

    def grow(self, choice, trees):
        """Return the trees that all threads have grown, as a fit would have it."""
        self.used = []
        with choice.bounded():
            for tree in range(trees):
                choice(before_tree(tree))
                self.used.append(self.levels > 0)
                self.now += self.every if self.levels > 0 else self.one
        assert self.levels == 7
        return self.used


BOTH = [False, True] * TIMED_TREES


@pytest.mark.parametrize(("every", "faster"), [(0.6, True), (20.0, False)])
def test_both_grow_a_few_trees_and_the_faster_goes_on(monkeypatch, every, faster):
    machine = Machine(monkeypatch, one=1.0, every=every)
    used = machine.grow(FasterThreads(), 40)
    assert used == [False, False, *BOTH, *[faster] * (38 - len(BOTH))]


def test_the_next_fit_begins_as_the_last_one_ended(monkeypatch):
    machine, choice = Machine(monkeypatch, one=1.0, every=0.5), FasterThreads()
    machine.grow(choice, 20)
    assert machine.grow(choice, 20) == [True] * 20


def test_both_are_compared_again_after_a_while(monkeypatch):
    machine, choice = Machine(monkeypatch, one=1.0, every=9.0), FasterThreads()
    machine.grow(choice, 20)
    machine.every = 0.1
    used = machine.grow(choice, int(COMPARED_S) + 40)
    asked = used.index(True)
    assert COMPARED_S - 20 < asked < COMPARED_S + 5
    assert all(used[asked + len(BOTH) :])


def test_both_are_compared_again_once_the_faster_is_slower_than_the_other_was(monkeypatch):
    machine, choice = Machine(monkeypatch, one=1.0, every=0.5), FasterThreads()
    machine.grow(choice, 20)
    machine.every = 10.0
    assert machine.grow(choice, 40) == [True, True, *BOTH, *[False] * (38 - len(BOTH))]


def test_an_interrupted_fit_leaves_the_limit_of_the_process_as_it_was(monkeypatch):
    machine, choice = Machine(monkeypatch, one=1.0, every=2.0), FasterThreads()

    def fit():
        with choice.bounded():
            choice(before_tree(0))
            assert machine.levels == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit()
    assert machine.levels == 7


def test_with_one_core_nothing_is_timed(monkeypatch):
    machine = Machine(monkeypatch, one=1.0, every=2.0)
    monkeypatch.setattr(boosting, "threads", lambda: 1)
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("timed"))
    choice = FasterThreads()
    choice(before_tree(0))
    assert machine.levels == 7


def planted(queries: int) -> Dataset:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(queries * 5, 4)).astype(np.float32)
    labels = (features[:, 0] + rng.normal(size=len(features)) > 1.0).astype(np.int32)
    schema = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(4)))
    weights = np.repeat(rng.uniform(0.1, 3.0, queries), 5)
    return Dataset(
        features, labels, np.arange(queries + 1) * 5, tuple(map(str, range(queries))), schema, weights=weights
    )


@pytest.mark.parametrize("loss", ["lambdarank", "softmax"])
def test_the_model_does_not_depend_on_the_threads(monkeypatch, loss):
    train, valid = planted(600), planted(80)
    spec = LambdaMart(settings=SETTINGS, max_trees=24, patience=12)
    settings = settings_of({**SETTINGS.model_dump(), "objective": loss}, 1)
    models, grown = set(), set()
    for count, one, every in ((1, 1.0, 1.0), (2, 1.0, 9.0), (2, 9.0, 1.0), (5, 9.0, 1.0)):
        monkeypatch.setattr(boosting, "threads", lambda count=count: count)
        grower, ticks = LocalGrower(), iter(np.cumsum([one, every] * 1000))
        monkeypatch.setattr(time, "perf_counter", lambda ticks=ticks: next(ticks))
        grown.add(grower.boost(train, settings, 15))
        value, trees = grower.trial_of(train, valid, spec)(0, settings, lambda *_: None)
        models.add((value, trees, grower.boost(train, settings, trees)))
    assert (len(models), len(grown)) == (1, 1)
