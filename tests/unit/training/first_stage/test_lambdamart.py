"""The first stage learns, repeats itself, and never scores a query that it was fitted on."""

import dataclasses
import os
import subprocess
import sys

import lightgbm
import numpy as np
import pytest
from lightgbm.callback import CallbackEnv

from listwright.ranking.features import UNKNOWN_CODE, Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage import boosting, lambdamart
from listwright.training.first_stage.boosting import HeldOutNdcg, LocalGrower, lightgbm_dataset, settings_of
from listwright.training.recipe.config import LambdaMartSettings
from support.training.planted import SPEC, ranking_data
from support.training.progress import RecordedTask


@pytest.fixture(scope="module")
def tuned(planted_data):
    return lambdamart.tune(*planted_data, SPEC, seed=3)


def test_it_learns(planted_data, tuned):
    _, valid = planted_data
    random = lambdamart.mean_ndcg(valid, np.random.default_rng(0).random(valid.rows), 10)
    scored = lambdamart.mean_ndcg(valid, lambdamart.scores_of(tuned.model, valid), 10)
    assert scored > random + 0.2
    assert scored > 0.9


def test_one_seed_repeats_the_model_to_the_byte(planted_data, tuned):
    assert lambdamart.tune(*planted_data, SPEC, seed=3).model == tuned.model
    assert lambdamart.tune(*planted_data, SPEC, seed=4).model != tuned.model


def test_interrupted_tuning_ends_like_an_uninterrupted_one(planted_data, tuned, tmp_path):
    journal = tmp_path / "trials.journal"
    with pytest.raises(KeyboardInterrupt):
        lambdamart.tune(*planted_data, SPEC, seed=3, journal=journal, task=RecordedTask(interrupt_at=1))
    told = RecordedTask()
    resumed = lambdamart.tune(*planted_data, SPEC, seed=3, journal=journal, task=told)
    assert told.reached == [2], "the first trial must not be run again"
    assert resumed.model == tuned.model


def test_an_interrupted_first_trial_is_begun_again(planted_data, tuned, tmp_path, monkeypatch):
    """With its own settings, the defaults: they are asked for once only."""
    journal = tmp_path / "trials.journal"

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(lightgbm, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lambdamart.tune(*planted_data, SPEC, seed=3, journal=journal)
    monkeypatch.undo()
    assert lambdamart.tune(*planted_data, SPEC, seed=3, journal=journal).model == tuned.model


def test_the_model_of_the_best_trial_is_what_another_fit_would_give(planted_data, tuned, monkeypatch):
    """Letter by letter: a run that goes on in another process fits it again."""
    best = settings_of({**tuned.params, **boosting.bounds_of(planted_data[0], SPEC.monotone)}, 3)
    again = LocalGrower().boost(planted_data[0], best, tuned.trees)
    assert again == tuned.model
    assert tuned.trees < SPEC.max_trees
    grower = LocalGrower()
    try_setting = lambdamart.trial_of(*planted_data, SPEC, seed=3, grower=grower)
    value, trees = try_setting(0, tuned.params, lambda *_: None)
    worse = {**tuned.params, "num_leaves": 2, "learning_rate": 1e-4}
    assert try_setting(1, worse, lambda *_: None)[0] < value
    monkeypatch.setattr(lightgbm, "train", lambda *_, **__: pytest.fail("fitted again"))
    assert grower.boost(planted_data[0], best, trees) == tuned.model


def test_training_queries_are_binned_once(planted_data, monkeypatch):
    sets = []

    def noted(data, **more):
        sets.append(data)
        return lightgbm_dataset(data, **more)

    monkeypatch.setattr(boosting, "lightgbm_dataset", noted)
    grower = LocalGrower()
    found = lambdamart.tune(*planted_data, SPEC, seed=3, grower=grower)
    lambdamart.out_of_fold_scores(planted_data[0], found, folds=3, seed=3, grower=grower)
    assert [len(data) for data in sets] == [len(part) for part in planted_data[:2]]


def test_selection_by_folds_needs_no_validation_labels(planted_data, tuned):
    train, valid = planted_data
    spec = SPEC.model_copy(update={"select_on": "folds"})
    blind = dataclasses.replace(valid, labels=np.random.default_rng(5).permutation(valid.labels))
    by_folds = lambdamart.tune(train, valid, spec, seed=3)
    assert lambdamart.tune(train, blind, spec, seed=3).model == by_folds.model
    assert lambdamart.tune(train, blind, SPEC, seed=3).model != tuned.model, "the usual selection looks at them"
    assert by_folds.valid_ndcg > 0.9


def test_out_of_fold_scores_do_not_know_their_query():
    """Labels that are pure noise can only be ranked by a model that has seen them."""
    rng = np.random.default_rng(1)
    noise = ranking_data(rng, queries=120, noise=1e6)
    spec = SPEC.model_copy(update={"trials": 1, "max_trees": 60, "patience": 60})
    tuned = lambdamart.tune(noise, noise, spec, seed=0)
    seen = lambdamart.mean_ndcg(noise, lambdamart.scores_of(tuned.model, noise), 10)
    unseen = lambdamart.mean_ndcg(noise, lambdamart.out_of_fold_scores(noise, tuned, folds=3, seed=0), 10)
    chance = lambdamart.mean_ndcg(noise, rng.random(noise.rows), 10)
    assert seen > chance + 0.15
    assert abs(unseen - chance) < 0.06


def test_every_training_row_gets_an_out_of_fold_score(planted_data, tuned):
    train, _ = planted_data
    told = RecordedTask()
    scores = lambdamart.out_of_fold_scores(train, tuned, folds=3, seed=0, task=told)
    assert scores.shape == (train.rows,)
    assert np.isfinite(scores).all()
    assert told.reached == [1, 2, 3]


def test_unknown_category_is_scored_like_a_missing_one(planted_data, tuned):
    train, _ = planted_data
    booster = lightgbm.Booster(model_str=tuned.model)
    few = train.select(range(5))
    unknown = few.features.copy()
    unknown[:, 2] = UNKNOWN_CODE
    missing = unknown.copy()
    missing[:, 2] = np.nan
    scores = lambdamart.scores_of(tuned.model, dataclasses.replace(few, features=unknown))
    assert scores.tolist() == booster.predict(missing, raw_score=True).tolist()
    known = lambdamart.scores_of(tuned.model, few)
    assert scores.tolist() != known.tolist(), "the category must matter, or nothing was compared"


def test_members_are_summed_and_score_no_query_that_they_were_fitted_on(planted_data, tuned):
    """The first member is the model of one seed; the out-of-fold scores are sums of as many as serve."""
    train, valid = planted_data
    spec = SPEC.model_copy(update={"members": 3, "settings": type(SPEC.settings)(bagging_fraction=0.5)})
    one = lambdamart.tune(train, valid, spec.model_copy(update={"members": 1}), seed=3)
    three = lambdamart.tune(train, valid, spec, seed=3)
    assert (three.members, three.trees, three.params) == (3, one.trees, one.params)
    booster = lightgbm.Booster(model_str=three.model)
    assert booster.num_trees() == 3 * one.trees
    rows = lambdamart.lightgbm_input(valid.features, valid.schema)
    parts = [
        booster.predict(rows, raw_score=True, start_iteration=n * one.trees, num_iteration=one.trees) for n in range(3)
    ]
    assert parts[0] == pytest.approx(lambdamart.scores_of(one.model, valid))
    assert np.ptp(parts, axis=0).max() > 0.01, "members differ"
    assert lambdamart.scores_of(three.model, valid) == pytest.approx(np.sum(parts, axis=0))
    assert three.valid_ndcg == pytest.approx(lambdamart.mean_ndcg(valid, np.sum(parts, axis=0), 10))
    held_out = lambdamart.out_of_fold_scores(train, three, folds=3, seed=3)
    alone = lambdamart.out_of_fold_scores(train, one, folds=3, seed=3)
    assert np.corrcoef(held_out, alone)[0, 1] > 0.9
    assert held_out.std() == pytest.approx(3 * alone.std(), rel=0.2)


def noise(queries=120, length=10, seed=0, **changes):
    """Lists whose chosen row stands first, and whose one feature has few values and says nothing."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(queries * length, 1)).round(0).astype(np.float32)
    labels = np.tile(np.eye(1, length, dtype=np.int32)[0], queries)
    offsets = np.arange(0, (queries + 1) * length, length)
    schema = FeatureSchema(features=(Feature(name="x"),))
    return Dataset(features, labels, offsets, tuple(map(str, range(queries))), schema, **changes)


def backwards(data, length=10):
    """The same lists, their rows in the opposite order."""
    rows = np.concatenate([np.arange(start + length - 1, start - 1, -1) for start in data.offsets[:-1]])
    weights = None if data.weights is None else data.weights[rows]
    return dataclasses.replace(data, features=data.features[rows], labels=data.labels[rows], weights=weights)


@pytest.mark.parametrize("select_on", ["valid", "folds"])
def test_the_order_of_held_out_rows_chooses_nothing(select_on):
    """With ties in row order, noise with the chosen row first is worth 1.0; chance is 0.45."""
    train, valid = noise(), noise(seed=1)
    spec = SPEC.model_copy(update={"select_on": select_on, "max_trees": 10})
    chosen = lambdamart.search_settings(train, valid, spec, seed=0)
    turned = lambdamart.search_settings(train, backwards(valid), spec, seed=0)
    assert (chosen.fact, chosen.value) == (turned.fact, pytest.approx(turned.value))
    assert 0.4 < chosen.value < 0.55


def test_early_stopping_measures_as_reports_do():
    """LightGBM's evaluation function: gains, weights of queries, queries without a relevant candidate, ties."""
    gains, weights = (0.0, 1.0, 5.0), np.repeat(np.linspace(0.0, 2.0, 120), 10)
    data = noise(gains=gains, weights=weights)
    data.labels[:30] = 0
    data.labels[30:60] = 2
    scores = np.random.default_rng(4).integers(0, 3, data.rows).astype(np.float64)
    named, value, rises = HeldOutNdcg(5, gains)(scores, lightgbm_dataset(data).construct())
    assert (named, rises) == ("ndcg@5", True)
    assert value == pytest.approx(lambdamart.mean_ndcg(data, scores, 5), rel=1e-6)


def with_many_categories(data, rng):
    """The same lists with a category of 600 values that says nothing."""
    *features, kind = data.schema.features
    values = tuple(f"v{n}" for n in range(600))
    schema = FeatureSchema(features=(*features, kind, Feature(name="maker", kind="categorical", categories=values)))
    codes = rng.integers(1, 601, data.rows).astype(np.float32)
    return dataclasses.replace(data, features=np.column_stack([data.features, codes]), schema=schema)


@pytest.mark.parametrize(
    ("values", "stops", "best"),
    [
        ([0.3, 0.5, *([0.4] * 7), 0.6, *([0.5] * 20)], 15, 10),  # a hump of the first trees ends nothing
        ([0.3, 0.5, *([0.4] * 30)], 10, 2),
        ([*np.linspace(0.1, 0.9, 20), *([0.8] * 9)], 25, 20),
        ([0.1, 0.2, 0.3], 3, 3),
        ([0.3, 0.2, 0.1], 3, 1),
    ],
)
def test_boosting_waits_for_a_better_tree_and_never_stops_at_once(values, stops, best):
    assert boost(values, patience=5) == (stops, best, max(values[:stops]))


def boost(values, patience):
    """After how many trees held-out values end boosting, and LightGBM's best number of trees and its value."""
    stop = boosting.stopping(patience)
    for number, value in enumerate(values):
        results = [("valid_0", "ndcg@10", value, True)]
        env = CallbackEnv(None, {}, number, 0, len(values), results)
        try:
            stop(env)
        except lightgbm.callback.EarlyStopException as ended:
            return number + 1, ended.best_iteration + 1, ended.best_score[0][2]
    return None


def test_many_categories_are_smoothed_and_searched(planted_data, monkeypatch):
    train, valid = (with_many_categories(data, np.random.default_rng(n)) for n, data in enumerate(planted_data))
    tried = []

    class Noted(LocalGrower):
        def trial_of(self, *given, **more):
            objective = super().trial_of(*given, **more)

            def noted(number, values, report):
                tried.append(values["cat_smooth"])
                return objective(number, values, report)

            return noted

    own = SPEC.model_copy(update={"settings": SPEC.settings.model_copy(update={"cat_smooth": 30.0})})
    for data, spec in [((train, valid), SPEC), ((train, valid), own), (planted_data, SPEC), (planted_data, own)]:
        lambdamart.tune(*data, spec, seed=3, grower=Noted())
    assert tried[::2] == [1000.0, 30.0, 10.0, 30.0]
    assert 10.0 < tried[1] < 10_000.0
    assert 10.0 < tried[3] < 10_000.0
    assert tried[5::2] == [10.0, 30.0], "nothing to search"
    monkeypatch.setattr(lambdamart, "MANY_CATEGORIES", 600)
    lambdamart.tune(train, valid, SPEC, seed=3, grower=Noted())
    assert tried[-2:] == [10.0, 10.0]


def test_smoothing_is_above_zero():
    with pytest.raises(ValueError, match="cat_smooth"):
        LambdaMartSettings(cat_smooth=0.0)


MANY_CATEGORIES = """
import numpy as np
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import lightgbm_dataset
kind = Feature(name="kind", kind="categorical", categories=tuple(map(str, range(2000))))
schema = FeatureSchema(features=(*(Feature(name=f"a{n}") for n in range(20)), kind))
rows = np.random.default_rng(0).integers(1, 2001, (210_000, 21)).astype(np.float32)
data = Dataset(rows, np.zeros(210_000, np.int32), np.arange(0, 210_001, 21), tuple(map(str, range(10_000))), schema)
lightgbm_dataset(data).construct()
"""


@pytest.mark.nightly
def test_lightgbm_says_nothing_from_its_other_threads():
    """They do not know the verbosity that the first one was given."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", MANY_CATEGORIES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
