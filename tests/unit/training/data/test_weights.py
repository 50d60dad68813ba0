"""Weights of rows and queries: where they are read, what is refused, and every loss and metric that they reach."""

import dataclasses
import math

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.metrics import EvalProtocol
from listwright.training.commands import fit
from listwright.training.data import cache, memory
from listwright.training.data.dataset import Splits
from listwright.training.data.split import merged
from listwright.training.data.tables import table
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright.training.evaluation.protocol import METRICS, Evaluation
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.lambdamart import query_folds
from listwright.training.pipeline.choice import comparison_weights
from listwright.training.pipeline.steps import with_bundle_schema
from listwright.training.pipeline.workspace import digest_of
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.recipe.data import TableData
from listwright.training.recipe.model import MlpSpec
from listwright.training.recipe.options import recipe_from
from listwright.training.second_stage.loop import fit_network
from listwright_lab import experiment


def weighed(planted_data, weights):
    return dataclasses.replace(planted_data, weights=np.asarray(weights, dtype=np.float64))


def test_a_query_counts_as_the_mean_of_its_rows(planted_data):
    valid = planted_data[1]
    part = weighed(valid, np.arange(valid.rows))
    assert part.query_weights[:2].tolist() == [np.arange(8).mean(), np.arange(8, 16).mean()]
    assert part.select([3, 0]).query_weights.tolist() == part.query_weights[[3, 0]].tolist()
    assert valid.query_weights is None
    both = merged([part, part])
    assert both.query_weights.tolist() == [*part.query_weights, *part.query_weights]


def splits_of(planted_data, *weights):
    train, valid = planted_data
    parts = [weighed(part, w) for part, w in zip((train, valid, valid), weights, strict=True)]
    return Splits(*parts, "by hand")


def test_only_ratios_count(planted_data):
    train, valid = planted_data
    rng = np.random.default_rng(1)
    rows = [rng.random(part.rows) for part in (train, valid, valid)]
    one, ten = (
        splits_of(planted_data, *rows).with_normalised_weights(),
        splits_of(planted_data, *(10.0 * w for w in rows)).with_normalised_weights(),
    )
    assert one.train.query_weights.mean() == pytest.approx(1.0)
    for name in ("train", "valid", "test"):
        assert getattr(one, name).weights == pytest.approx(getattr(ten, name).weights)
    assert one.test.weights == pytest.approx(rows[2] / rows[0].mean()), "the scale of the training queries, for all"
    with pytest.raises(DataError, match="all weights of the validation queries are 0"):
        splits_of(planted_data, rows[0], 0.0 * rows[1], rows[2]).with_normalised_weights()


@pytest.mark.parametrize("size", [1e308, 1e-300, 5e-324])
def test_weights_of_any_size_have_their_ratios(planted_data, size):
    train, valid = planted_data
    rows = [np.repeat([1.0, 0.0], part.rows // 2) for part in (train, valid, valid)]
    found = splits_of(planted_data, *(size * own for own in rows)).with_normalised_weights()
    for part, own in zip((found.train, found.valid, found.test), rows, strict=True):
        assert part.weights == pytest.approx(2.0 * own)


@pytest.mark.parametrize("size", [1.0, 0.1, 1e308, 5e-324])
def test_equal_weights_are_no_weights(planted_data, size):
    plain = Splits(planted_data[0], planted_data[1], planted_data[1], "by hand")
    rows = [np.full(part.rows, size) for part in (plain.train, plain.valid, plain.test)]
    found = splits_of(planted_data, *rows).with_normalised_weights()
    assert [part.weights for part in (found.train, found.valid, found.test)] == [None] * 3
    assert digest_of(found) == digest_of(plain)
    assert comparison_weights(found) is None


def test_weights_of_other_queries_do_not_make_those_of_training(planted_data):
    train, valid = planted_data
    other = np.linspace(0.5, 1.5, valid.rows)
    found = splits_of(planted_data, np.full(train.rows, 2.0), 2.0 * other, np.full(valid.rows, 4.0))
    found = found.with_normalised_weights()
    assert found.train.weights is None
    assert found.valid.weights == pytest.approx(other)
    assert found.test.weights == pytest.approx(2.0), "a list of it counts twice as much as one of training"
    expected = [*found.valid.query_weights, *np.ones(len(train))]
    assert comparison_weights(found).tolist() == pytest.approx(expected)
    assert lambdamart.loss_of(found.train, LambdaMartSettings())[1].startswith("training labels go up to 2")


def test_a_weight_beyond_all_measure_is_refused(planted_data):
    train, valid = planted_data
    plain = np.ones(valid.rows)
    with pytest.raises(DataError, match="largest weight of the test queries"):
        splits_of(planted_data, np.ones(train.rows), plain, np.full(valid.rows, 1e300)).with_normalised_weights()


def test_weights_that_vanish_beside_others_are_refused(planted_data):
    train, valid = planted_data
    plain = np.ones(valid.rows)
    with pytest.raises(DataError, match="weights of the test queries vanish beside those of the training queries"):
        splits_of(planted_data, np.full(train.rows, 1e300), 1e300 * plain, 1e-300 * plain).with_normalised_weights()


def test_each_fold_holds_out_queries_that_count(planted_data):
    train, _ = planted_data
    weights = np.zeros(len(train))
    weights[[0, 1, 2, len(train) - 1]] = 1.0
    weighted = dataclasses.replace(train, weights=np.repeat(weights, train.lengths))
    folds = query_folds(weighted, 3, 0)
    assert [bool(weights[held_out].any() and weights[rest].any()) for rest, held_out in folds] == [True] * 3
    assert sorted(np.concatenate([held_out for _, held_out in folds])) == list(range(len(train)))
    weights[1:] = 0.0
    with pytest.raises(RecipeError, match="with a weight above 0, there are 1"):
        query_folds(dataclasses.replace(train, weights=np.repeat(weights, train.lengths)), 3, 0)


def recipe(**parts):
    parts = {"first_stage": {"kind": "lambdamart"}, "model": {"kind": "mlp"}} | parts
    return config.of({"name": "x", "data": {"kind": "table"}, **parts}, "x")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"model": {"kind": "mlp", "rank_loss": "plackett_luce"}}, 'rank_loss = "plackett_luce" weighs whole queries'),
        (
            {"choice": {}, "rivals": {"qilcm2": {"kind": "qilcm2", "rank_loss": "plackett_luce"}}},
            'rank_loss = "plackett_luce" weighs whole queries',
        ),
        ({"specialists": {"specialists": 2}}, r"\[specialists\] weighs whole queries, and rows of query 'q1'"),
        ({"specialists": {"specialists": 2}, "router": {}}, r"\[router\] does not support weights"),
    ],
)
def test_what_cannot_honour_weights_says_so(planted_data, parts, says):
    train, valid = planted_data
    alike = np.repeat(np.arange(1.0, 1 + len(train)), 8)
    other = alike.copy()
    other[9] = 1.0
    plain = np.ones(valid.rows)
    with pytest.raises(RecipeError, match=says):
        with_bundle_schema(recipe(**parts), splits_of(planted_data, other, plain, plain))
    assert with_bundle_schema(recipe(), splits_of(planted_data, other, plain, plain)).train.weights is not None
    if "router" not in parts:
        with_bundle_schema(recipe(**parts), splits_of(planted_data, alike, plain, plain))


def written(tmp_path, weights):
    rows = 2 * len(weights)
    frame = pl.DataFrame(
        {
            "q": [f"q{n // 4}" for n in range(rows)],
            "y": [n % 2 for n in range(rows)],
            "w": pl.Series([*weights, *weights]),
            "price": np.arange(rows),
        }
    )
    frame.write_csv(tmp_path / "rows.csv")
    return str(tmp_path / "rows.csv")


SPEC = TableData(qid="q", label="y", weight="w")


def test_a_column_of_weights_is_no_feature(tmp_path, monkeypatch):
    """The second time they come from the cache, which is another entry than without weights."""
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    path = written(tmp_path, [0.5, 2.0, 0.0, 1.0, 1.0, 3.0])
    for _ in range(2):
        found = table.read(SPEC, path).dataset
        assert found.schema.names == ("price",)
        assert found.weights.tolist() == [0.5, 2.0, 0.0, 1.0, 1.0, 3.0] * 2
        monkeypatch.setattr(table, "read_table", lambda _path: pytest.fail("not from the cache"))
    monkeypatch.undo()
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    assert table.read(SPEC.model_copy(update={"weight": None}), path).dataset.schema.names == ("w", "price")


def test_a_cache_without_its_weights_is_damaged(tmp_path):
    path = written(tmp_path, [0.5, 2.0])
    first = table.read(SPEC, path).dataset
    (lost,) = cache.cache_folder().glob("*/weights.npy")
    lost.unlink()
    assert table.read(SPEC, path).dataset.weights.tolist() == first.weights.tolist()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1.0, -0.5], r"line 3, column w: expected a weight, a finite number from 0; found '-0.5'"),
        ([None, 1.0], "line 2, column w: expected a weight.*found None"),
        (["heavy", "1"], "line 2, column w: expected a weight.*found 'heavy'"),
        ([1.0, math.inf], "line 3, column w: expected a weight.*found 'inf'"),
    ],
)
def test_a_weight_is_a_finite_number_from_0(tmp_path, weights, says):
    path = written(tmp_path, weights)
    with pytest.raises(DataError, match=says):
        table.read(SPEC, path)


def test_a_weight_column_that_is_not_there_is_named(tmp_path):
    path = written(tmp_path, [1.0, 1.0])
    with pytest.raises(RecipeError, match=r"--weight: no column 'ww' in .*; did you mean 'w'"):
        table.read(SPEC.model_copy(update={"weight": "ww"}), path)


def test_the_command_line_names_it_and_the_suites_refuse_it(capsys):
    options = ["--data", "own.csv", "--qid", "q", "--label", "y", "--weight", "w"]
    assert recipe_from(fit._parser().parse_args(options)).data.weight == "w"
    assert experiment.main(["table2", *options]) == 1
    assert "say --ignore w instead" in " ".join(capsys.readouterr().out.split())


def test_weights_in_memory_go_with_their_rows():
    x, y, qid, w = [[1.0], [2.0], [3.0]], [0, 1, 0], ["b", "a", "b"], [5.0, 6.0, 7.0]
    assert memory.read_judged(x, y, qid, categorical=(), sample_weight=w).weights.tolist() == [5.0, 7.0, 6.0]
    for bad, says in (([1, 2], "has 2 values, X has 3 rows"), ([1, -1, 1], "row 1: expected a weight"), ([0] * 3, "0")):
        with pytest.raises(DataError, match=f"sample_weight.*{says}"):
            memory.read_judged(x, y, qid, categorical=(), sample_weight=bad)


def test_other_weights_are_other_data(planted_data):
    plain = Splits(planted_data[0], planted_data[1], planted_data[1], "by hand")
    ones = splits_of(
        planted_data, *(np.ones(part.rows) for part in (planted_data[0], planted_data[1], planted_data[1]))
    )
    twos = splits_of(
        planted_data, *(np.full(part.rows, 2.0) for part in (planted_data[0], planted_data[1], planted_data[1]))
    )
    assert len({digest_of(plain), digest_of(ones), digest_of(twos)}) == 3


def test_lambdamart_learns_and_stops_by_them(planted_data):
    """Ones change nothing; training queries that do not count might as well not be there."""
    spec = LambdaMart(trials=1, max_trees=15, folds=2)
    train, valid = planted_data
    plain = lambdamart.tune(train, valid, spec, seed=0)
    ones = lambdamart.tune(weighed(train, np.ones(train.rows)), valid, spec, seed=0)
    half = np.repeat(np.arange(len(train)) < 30, 8)
    some = lambdamart.tune(weighed(train, half), valid, spec, seed=0)
    first, same, other = (lambdamart.scores_of(tuned.model, valid) for tuned in (plain, ones, some))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    upside_down = dataclasses.replace(train, labels=np.where(half, train.labels, 2 - train.labels).astype(np.int32))
    misled, warned = (lambdamart.tune(part, valid, spec, seed=0) for part in (upside_down, weighed(upside_down, half)))
    assert warned.valid_ndcg > misled.valid_ndcg + 0.03
    scores = np.arange(valid.rows, dtype=np.float64)
    alone = weighed(valid, np.repeat(np.arange(30) == 4, 8))
    assert lambdamart.mean_ndcg(alone, scores, 5) == lambdamart.mean_ndcg(valid.select([4]), scores[32:40], 5)


def test_a_network_is_fitted_and_chosen_by_them(planted_data):
    train, valid = planted_data
    spec = MlpSpec(encoder_width=4, hidden=(4,), max_epochs=2)
    zeros = [np.zeros(part.rows) for part in planted_data]
    half = np.repeat(np.arange(len(train)) < 30, 8)
    last = np.repeat(np.arange(len(valid)) == 29, 8)

    def fitted(*parts):
        history = fit_network(spec, *parts, *zeros, seed=0).history
        return [epoch.rank_loss for epoch in history], history[0].valid_ndcg

    plain, ones = fitted(train, valid), fitted(weighed(train, np.ones(train.rows)), valid)
    some = fitted(weighed(train, 2.0 * half), valid)
    assert plain[0] == pytest.approx(ones[0], rel=1e-5)
    assert plain[0] != pytest.approx(some[0], rel=1e-5)
    alone = fitted(train, weighed(valid, last))
    assert alone[0] == plain[0]
    assert alone[1] != plain[1]


def evaluation(values, weights, protocol=None):
    by_metric = {metric: np.array(values, dtype=float) for metric in METRICS}
    worse = {metric: np.zeros(len(values)) for metric in METRICS}
    return Evaluation({"first_stage": worse, "qilcm": by_metric}, protocol or EvalProtocol(weighted=True), weights)


def test_means_and_gains_are_weighted():
    found = evaluation([1.0, 0.5, np.nan], np.array([1.0, 3.0, 4.0]))
    metric = next(m for m in found.metrics() if (m.ranker, m.name) == ("qilcm", "mrr"))
    assert metric.mean == pytest.approx((1 * 1.0 + 3 * 0.5 + 4 * 0.0) / 8)
    assert found.gain("mrr", "qilcm", "first_stage")[0] == metric.mean
    drop = dataclasses.replace(found, protocol=EvalProtocol(empty_queries="drop", weighted=True))
    assert drop.mean("mrr", "qilcm") == pytest.approx((1 + 1.5) / 4)
    assert "weighted mean over queries" in str(found.protocol)


def test_the_interval_is_that_of_the_weighted_mean():
    rng = np.random.default_rng(1)
    values, weights = rng.random(400), np.repeat([0.0, 1.0], 200)
    low, high = bootstrap_interval(values, weights)
    assert low < values[200:].mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values[200:].std() / np.sqrt(200), rel=0.15)
    assert bootstrap_interval(values, np.full(400, 3.0)) == pytest.approx(bootstrap_interval(values))
    assert bootstrap_interval(values, np.zeros(400)) == (0.0, 0.0)
