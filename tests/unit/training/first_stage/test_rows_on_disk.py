"""The first stage of rows on disk is that of the same rows in memory, to the byte."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from listwright.ranking.relative import KINDS
from listwright.training.data.dataset import fit_schema
from listwright.training.data.shards import rows as stored_rows
from listwright.training.data.shards.rows import Rows
from listwright.training.first_stage import boosting, lambdamart, relative
from listwright.training.first_stage.pointwise import fit_pointwise
from support.training.on_disk import on_disk
from support.training.planted import SPEC, ranking_data


@pytest.fixture
def parts(tmp_path):
    """Training and validation queries, in memory and on disk."""
    rng = np.random.default_rng(0)
    memory = ranking_data(rng), ranking_data(rng, queries=30)
    disk = tuple(on_disk(part, tmp_path / str(n)) for n, part in enumerate(memory))
    return memory, disk


@pytest.mark.parametrize("sampled", [boosting.MOST_SAMPLED, 100])
def test_model_and_scores_are_the_same(parts, monkeypatch, sampled):
    """With rows beyond what LightGBM samples, too: both are then given as a sequence."""
    monkeypatch.setattr(boosting, "MOST_SAMPLED", sampled)
    monkeypatch.setattr(stored_rows, "CHUNK_ROWS", 53)
    monkeypatch.setattr(boosting, "CHUNK_ROWS", 53)
    memory, disk = (lambdamart.tune(*both, SPEC, seed=3) for both in parts)
    assert disk == memory
    scores = [lambdamart.out_of_fold_scores(train, memory, folds=3, seed=1) for train, _ in parts]
    np.testing.assert_array_equal(scores[1], scores[0])
    scored = [lambdamart.scores_of(memory.model, train) for train, _ in parts]
    np.testing.assert_array_equal(scored[1], scored[0])


def test_the_pointwise_model_is_the_same(parts):
    memory, disk = (fit_pointwise(*both, seed=3, report=lambda *_: None) for both in parts)
    assert disk.model == memory.model
    np.testing.assert_array_equal(disk.train_scores, memory.train_scores)


def test_folds_take_no_rows_into_memory(parts, monkeypatch):
    """They are parts of what was binned: LightGBM would ask for all rows of a fold at once."""
    (train, valid), asked = parts[1], []
    tuned = lambdamart.tune(train, valid, SPEC, seed=3)
    get = boosting.RowSequence.__getitem__

    def noted(rows, key):
        asked.append(np.size(key))
        return get(rows, key)

    monkeypatch.setattr(boosting.RowSequence, "__getitem__", noted)
    lambdamart.out_of_fold_scores(train, tuned, folds=3, seed=1)
    assert asked
    assert max(asked) == 1, "single rows and slices, no lists of rows"


def test_a_search_by_folds_is_the_same(parts):
    spec = SPEC.model_copy(update={"select_on": "folds", "folds": 3})
    memory, disk = (lambdamart.search_settings(*both, spec, seed=3) for both in parts)
    assert disk == memory


def test_a_sample_of_the_rows_gives_the_same_bins(parts):
    """LightGBM's own sample of a sequence is drawn by its length alone, wherever the rows are."""
    (memory, _), (disk, _) = parts
    models = []
    for data in (memory, disk):
        rows = boosting.RowSequence(data.features, data.schema)
        bins = lightgbm.Dataset(
            rows, label=data.labels, group=data.lengths, params={"bin_construct_sample_cnt": 50, "verbosity": -1}
        )
        settings = {"objective": "lambdarank", "verbosity": -1, "num_threads": 1, "bin_construct_sample_cnt": 50}
        models.append(lightgbm.train(settings, bins, 5).model_to_string())
    assert models[0] == models[1]


def test_list_relative_columns_are_the_same(parts):
    (memory, _), (disk, _) = parts
    schema = fit_schema(memory)
    assert fit_schema(disk) == schema
    memory, disk = (replace(data, schema=schema) for data in (memory, disk))
    columns = relative.candidates(schema, KINDS)
    one, other = (relative.widened_part(data, columns) for data in (memory, disk))
    assert isinstance(other.features, Rows)
    np.testing.assert_array_equal(other.features[:], one.features)
    some = np.array([5, 3, 40])
    np.testing.assert_array_equal(other.select(some).features[:], one.select(some).features)
    assert relative.with_quantiles(columns, other) == relative.with_quantiles(columns, one)
