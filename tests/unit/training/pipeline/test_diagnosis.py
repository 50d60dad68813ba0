"""What a diagnosis measures, and what it advises for which intervals."""

from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Comparison
from listwright.ranking.stages import LightGbmStage
from listwright.training.commands.diagnose import fit_command, main
from listwright.training.console.progress import SILENT
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.intervals import FEWEST
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.pipeline import diagnosis
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.choice import DefaultChoice
from listwright.training.pipeline.diagnosis import (
    PRINTED_FEATURES,
    Composition,
    Diagnosis,
    Gain,
    Spread,
    advice,
    compositions,
    facts_of,
    quick,
    sampled,
    spreads,
    tables,
)
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe import config
from listwright.training.recipe.config import GivenColumn, LambdaMart


def gain(low, high, ranker="relative"):
    mean = (low + high) / 2
    return Gain(
        Comparison(ranker=ranker, over="plain", metric="ndcg@10", mean=mean, low=low, high=high, n=90), 0.5, 0.5
    )


def found(relative, second):
    features = tuple(Spread(f"a_name_that_is_far_too_long_for_a_table_{n}", n / 20, 0.0) for n in range(20, 0, -1))
    return Diagnosis(
        data="rows.csv",
        queries=30_000,
        rows=999_999,
        of_queries=123_456,
        of_rows=9_999_999,
        features=(*features, Spread("constant", None, 0.0)),
        categories=tuple(Composition(f"category_{n}", n / 30) for n in range(30, 0, -1)),
        relative=relative,
        second=second,
    )


GAIN, HARM, NOTHING, WIDE = (0.02, 0.04), (-0.04, -0.02), (-0.004, 0.004), (-0.03, 0.05)


@pytest.mark.parametrize(
    ("relative", "second", "key", "alone"),
    [
        (GAIN, GAIN, "second_stage", False),
        (NOTHING, GAIN, "second_stage", False),
        (None, GAIN, "second_stage", False),
        (GAIN, NOTHING, "relative", True),
        (GAIN, HARM, "relative", True),
        (GAIN, WIDE, "unsure", False),
        (WIDE, NOTHING, "unsure", False),
        (NOTHING, WIDE, "unsure", False),
        (None, WIDE, "unsure", False),
        (NOTHING, NOTHING, "plain", True),
        (HARM, HARM, "plain", True),
        (None, NOTHING, "given", True),
    ],
)
def test_advice_follows_from_the_intervals(relative, second, key, alone):
    said = advice(found(None if relative is None else gain(*relative), gain(*second, "qilcm2")))
    assert (said.key, said.alone) == (key, alone)
    assert ("0.050" in said.text) == (key == "unsure"), "the highest gain that is not ruled out"


@pytest.mark.parametrize("relative", [NOTHING, GAIN])
def test_a_comparison_that_the_clock_ended_advises_a_whole_fit(relative):
    one = found(gain(*relative), replace(gain(*NOTHING, "qilcm2"), in_time=False))
    assert (advice(one).key, advice(one).alone) == ("unsure", False)
    assert facts_of(one)["second_stage"]["verdict"] == "not enough time"


def test_too_few_queries_advise_a_whole_fit():
    second = gain(*GAIN, "qilcm2")
    few = replace(second, comparison=second.comparison.model_copy(update={"n": FEWEST - 1}))
    said = advice(found(gain(*GAIN), few))
    assert (said.key, said.alone) == ("unsure", False)
    assert f"{FEWEST - 1} queries" in said.text


@pytest.mark.parametrize("alone", [False, True])
def test_the_command_fits_the_same_data(alone):
    words = ["letor", "--data", "my rows.txt", "--json", "found.json", "--minutes", "3"]
    expected = "listwright fit letor --data 'my rows.txt'" + (" --model first_stage" if alone else "")
    assert fit_command(words, alone=alone) == expected


@pytest.mark.parametrize("relative", [gain(-0.123, 0.456), None])
def test_tables_fit_a_terminal_and_hold_the_numbers(relative):
    one = found(relative, gain(*HARM, "qilcm2"))
    lines = tables(one).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("a_name" in line for line in lines) == PRINTED_FEATURES
    assert sum("category_" in line for line in lines) == PRINTED_FEATURES
    assert "and 11 more, 0.05 to 0.50" in tables(one)
    assert "and 20 more, 0.03 to 0.67" in tables(one)
    assert "-0.030 [-0.040, -0.020]  harm" in tables(one)
    assert ("+0.167 [-0.123, +0.456]  no difference shown" in tables(one)) == (relative is not None)
    told = facts_of(one)
    assert (len(told["features"]), len(told["categories"])) == (21, 30)
    assert told["second_stage"]["verdict"] == "harm"
    assert (told["relative_columns"] is None) == (relative is None)


def lists(count, length, *, seed=0, mixed=None):
    """One feature per kind; ``mixed`` is the only list with two labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (count, length)).astype(np.int32)
    if mixed is not None:
        labels[np.arange(count) != mixed] = 0
        labels[mixed, 0], labels[mixed, 1] = 0, 1
    level = np.repeat(np.arange(count, dtype=np.float32), length)
    noise = rng.normal(size=count * length).astype(np.float32)
    code = rng.integers(1, 3, count * length).astype(np.float32)
    schema = FeatureSchema(
        features=(
            Feature(name="noise"),
            Feature(name="kind", kind="categorical", categories=("a", "b")),
            Feature(name="level"),
        )
    )
    offsets = np.arange(0, count * length + 1, length, dtype=np.int64)
    features = np.column_stack([noise, code, level])
    return Dataset(features, labels.ravel(), offsets, tuple(f"q{n}" for n in range(count)), schema)


def with_codes(codes, lengths):
    """Lists of one category, by codes."""
    schema = FeatureSchema(features=(Feature(name="kind", kind="categorical", categories=("a", "b", "c")),))
    features = np.array(codes, dtype=np.float32)[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = tuple(map(str, range(len(lengths))))
    return Dataset(features, np.zeros(len(codes), dtype=np.int32), offsets, ids, schema)


def test_counts_matter_where_one_value_has_more_candidates():
    lists = [[1, 1, 2], [1, 2, 3], [1, 1, 2, 2], [3, 3, 3], [1, 0, 0], [2]]
    data = with_codes([code for one in lists for code in one], [len(one) for one in lists])
    assert compositions(data) == (Composition("kind", 1 / 5),)


def test_unknown_values_are_in_no_count():
    assert compositions(with_codes([0, 0, 0, 0], [2, 2])) == (Composition("kind", 0.0),)


def test_features_come_by_their_share_and_categories_have_none():
    data = lists(50, 8)
    data.features[:100, 0] = np.nan
    level, noise = spreads(data)
    assert (level.feature, level.between, level.missing) == ("level", 1.0, 0.0)
    assert (noise.feature, noise.missing) == ("noise", 0.25)
    assert noise.between < 0.1


def splits(train, valid):
    return Splits(train, valid, lists(4, 3), "made up")


def test_lightgbm_is_fitted_once_where_no_column_can_be_list_relative(tmp_path):
    train, valid = (
        replace(data, features=data.features[:, :1], schema=FeatureSchema(features=data.schema.features[:1]))
        for data in (lists(30, 8), lists(30, 8, seed=1))
    )
    run = RunContext(quick(config.load("letor"), train), splits(train, valid), tmp_path, SILENT)
    _, plain, comparisons = diagnosis.steps.fit_first_stage(run)
    assert (plain, comparisons) == (None, ())
    assert not list(tmp_path.glob("relative_*"))


def test_few_rows_are_all_compared(monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_ROWS", 300)
    whole = splits(lists(30, 10), lists(10, 10))
    part = sampled(whole, seed=0)
    assert part.train is whole.train
    assert part.valid is whole.valid


def test_many_are_drawn_by_query_and_by_seed(monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_ROWS", 95)
    monkeypatch.setattr(diagnosis, "FEWEST", 2)
    whole = splits(lists(40, 10), lists(20, 10))
    part, again, other = (sampled(whole, seed=seed) for seed in (0, 0, 1))
    assert (len(part.train), len(part.valid)) == (9, 3)
    assert part.train.qids == again.train.qids != other.train.qids
    assert set(part.train.qids) <= set(whole.train.qids)
    assert all(rows.shape == (10, 3) for rows, _ in part.train.lists())
    assert part.test is whole.test


def test_more_minutes_look_at_more_lists(monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_ROWS", 95)
    monkeypatch.setattr(diagnosis, "FEWEST", 2)
    monkeypatch.setattr(diagnosis, "ROWS_SEEN", 1000)
    whole, recipe = splits(lists(40, 10), lists(20, 10)), config.load("letor")
    assert [len(sampled(whole, seed=0, minutes=minutes).train) for minutes in (0.5, 1.0, 2.0, 10.0)] == [4, 9, 19, 40]
    epochs = [quick(recipe, whole.train, minutes=minutes).model.max_epochs for minutes in (1.0, 4.0, 100.0, 0.0)]
    assert epochs == [4, 10, 30, 30]


@pytest.mark.parametrize("minutes", ["-1", "nan", "inf"])
def test_minutes_that_are_none_are_refused(minutes, capsys):
    assert main(["demo", "--minutes", minutes]) == 1
    assert f"minutes {minutes}: expected a number from 0" in capsys.readouterr().out


def test_wide_rows_count_by_their_values(monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_VALUES", 2 * 95)
    monkeypatch.setattr(diagnosis, "FEWEST", 2)
    assert len(sampled(splits(lists(40, 10), lists(20, 10)), seed=0).train) == 9, "two numeric features"


@pytest.mark.parametrize("mixed", range(0, 40, 8))
def test_a_list_to_learn_from_is_among_them(monkeypatch, mixed):
    monkeypatch.setattr(diagnosis, "MOST_ROWS", 30)
    part = sampled(splits(lists(40, 10, mixed=mixed), lists(20, 10, mixed=3)), seed=0)
    assert f"q{mixed}" in part.train.qids
    assert "q3" in part.valid.qids


def test_lists_longer_than_the_budget_stay_whole(monkeypatch):
    monkeypatch.setattr(diagnosis, "MOST_ROWS", 5)
    part = sampled(splits(lists(40, 10), lists(30, 10)), seed=0)
    assert (len(part.train), part.train.rows) == (20, 200), "twenty, because fewer choose nothing"


def test_the_budget_is_small_whatever_the_recipe_says():
    for name in config.recipe_names():
        small = quick(config.load(name), lists(40, 10))
        assert isinstance(small.first_stage, LambdaMart)
        assert (small.first_stage.trials, small.first_stage.relative, small.first_stage.folds) == (1, "auto", 3)
        assert small.first_stage.settings.num_leaves <= 20
        assert (small.model.kind, small.specialists, small.router) == ("qilcm2", None, None)
        assert small.model.max_epochs == small.model.patience == diagnosis.EPOCHS[1], "nothing ends it early"
    given = GivenColumn(column="noise")
    assert quick(config.load("letor").model_copy(update={"first_stage": given}), lists(40, 10)).first_stage == given


def test_columns_that_a_recipe_rules_out_are_not_measured():
    recipe = config.load("letor")
    without = recipe.model_copy(update={"first_stage": recipe.first_stage.model_copy(update={"relative": "none"})})
    assert quick(without, lists(40, 10)).first_stage.relative == "none"


def test_epochs_shrink_with_the_rows(monkeypatch):
    monkeypatch.setattr(diagnosis, "ROWS_SEEN", 4000)
    recipe = config.load("letor")
    epochs = [quick(recipe, lists(count, 10)).model.max_epochs for count in (10, 40, 400)]
    assert epochs == [30, 10, 4]


def test_levels_belong_to_the_rankers_that_are_compared():
    one = found(replace(gain(*GAIN), before=0.5, after=0.53), gain(*NOTHING, "qilcm2"))
    assert "0.500 → 0.530  +0.030 [+0.020, +0.040]  gain" in tables(one)


def test_levels_count_queries_by_their_weights(monkeypatch):
    weighted = [replace(lists(2, 4), weights=np.repeat(weights, 4)) for weights in ([3.0, 1.0], [0.0, 0.0])]
    whole = splits(*weighted)
    whole.train.labels[:] = [1, 0, 0, 0, 0, 0, 0, 1]
    scores = np.array([4.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0, 1.0])  # the first list in order, the second one upside down
    one = gain(*NOTHING, "qilcm2").comparison
    fitted = FittedFirstStage(LightGbmStage(), None, scores, scores, {})
    monkeypatch.setattr(diagnosis.steps, "fit_first_stage", lambda *_arguments: (fitted, None, ()))
    monkeypatch.setattr(diagnosis.steps, "choose", lambda *_arguments: DefaultChoice("first_stage", None, (one,)))
    relative, second = diagnosis._compare(config.load("demo"), whole, "cpu", SILENT, Budget())
    assert relative is None
    assert second.before == pytest.approx((3 * 1.0 + 1.0 / np.log2(5)) / 4)
