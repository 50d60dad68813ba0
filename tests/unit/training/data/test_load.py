"""Loading data: which recipe takes which sources."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.load import describe, doubtful, load
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.data import LetorData, SyntheticData, TableData
from support.training.progress import RecordedProgress


def recipe(data, **changes):
    return Recipe(name="mine", about="a table of mine", data=data, **changes)


def test_synthetic_data_come_from_the_seed_alone():
    spec = SyntheticData(queries=40, max_length=10)
    one, two, other = (load(recipe(spec, seed=seed), []) for seed in (3, 3, 4))
    assert one.test.qids == two.test.qids
    assert (one.train.features[:, -1] == two.train.features[:, -1]).all()
    assert one.train.rows != other.train.rows
    assert one.how.startswith("synthetic data, seed 3, split by query 60/20/20, fold 1 of 5: training 24 queries")


def test_folds_of_synthetic_data_are_of_one_set():
    spec = SyntheticData(queries=40, max_length=10)
    first, second = (load(recipe(spec, fold=fold), []) for fold in (1, 2))
    assert first.valid.qids == second.test.qids
    assert first.valid.labels.tolist() == second.test.labels.tolist()


def test_synthetic_data_take_no_source():
    with pytest.raises(RecipeError, match=r"recipe 'mine' makes its own data: leave out --data a\.txt"):
        load(recipe(SyntheticData()), ["a.txt"])


@pytest.mark.parametrize("data", [LetorData(), TableData(qid="q", label="y")])
def test_everything_else_needs_one(data):
    with pytest.raises(RecipeError, match=r"recipe 'mine' needs --data PATH \(a table of mine\)"):
        load(recipe(data), [])


def test_a_table(tmp_path):
    rows = 60
    frame = pl.DataFrame({"q": [n // 4 for n in range(rows)], "y": [n % 2 for n in range(rows)], "x": range(rows)})
    frame.write_parquet(tmp_path / "t.parquet")
    splits = load(recipe(TableData(qid="q", label="y")), [str(tmp_path / "t.parquet")])
    assert splits.train.rows + splits.valid.rows + splits.test.rows == rows
    assert splits.how.startswith("t.parquet, split by query 60/20/20")
    with pytest.raises(RecipeError, match="--data takes one table, not 2"):
        load(recipe(TableData(qid="q", label="y")), ["a", "b"])


def test_letor_text_with_progress(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{label} qid:{q} 1:{q}\n" for q in range(100_000) for label in (0, 1)))
    progress = RecordedProgress()
    splits = load(recipe(LetorData()), [str(path)], progress=progress)
    assert len(splits.train) == 60_000
    ((title, task),) = progress.begun
    assert "a.txt" in title
    assert task.reached[-1] == path.stat().st_size // 1000
    load(recipe(LetorData()), [str(path)], progress=progress)
    assert len(progress.begun) == 1  # the second time it came from the cache


def test_columns_are_described_in_one_line():
    schema = FeatureSchema(
        features=(
            *(Feature(name=f"f{d}", missing_in_training=d < 3) for d in range(12)),
            Feature(name="carrier", kind="categorical", categories=("A5", "A7")),
        )
    )
    assert describe(schema) == (
        "12 numeric features (f0, f1, f2, f3, f4, f5, f6, … f11), 1 categorical (carrier: 2 values), "
        "missing values in 3 of them"
    )


def test_columns_like_ids_are_doubted():
    def data(categories):
        names = tuple(map(str, range(categories)))
        schema = FeatureSchema(features=(Feature(name="x"), Feature(name="note", kind="categorical", categories=names)))
        labels = np.arange(400, dtype=np.int32) % 2
        part = Dataset(np.ones((400, 2), np.float32), labels, np.array([0, 400]), ("q",), schema)
        return Splits(part, part, part, "here")

    assert doubtful(data(100)) == []
    (doubt,) = doubtful(data(101))
    assert doubt.startswith("'note' has 101 values in 400 training rows")
    assert "--ignore note" in doubt
