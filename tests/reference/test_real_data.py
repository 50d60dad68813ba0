"""The sets in the data folder: their published counts, their folds, and values read by other means."""

import csv
import gzip

import numpy as np
import pytest

from listwright.training.data.dataset import Remedies
from listwright.training.data.leaks import leaks
from listwright.training.data.letor.layout import Reader
from listwright.training.data.letor.text import read
from listwright.training.data.sources import open_plain
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.data import TableData


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISTWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def fold(recipe, folder, number):
    splits = load(config.load(recipe, fold=number), [str(folder)])
    return splits, [splits.train, splits.valid, splits.test]


def without_relevant(part):
    return sum(int(labels.max() == 0) for _, labels in part.lists())


@pytest.mark.parametrize(("recipe", "rows", "queries", "features"), [("mq2008", 15_211, 784, 46), ("ohsumed", 16_140, 106, 45)])  # fmt: skip
def test_letor_sets_have_their_published_size_in_every_fold(data_folder, recipe, rows, queries, features):
    tested = []
    for number in range(1, 6):
        splits, parts = fold(recipe, data_folder / recipe, number)
        assert sum(part.rows for part in parts) == rows
        assert sum(len(part) for part in parts) == queries
        assert {part.features.shape[1] for part in parts} == {features}
        assert {int(part.labels.max()) for part in parts} == {2}
        assert f"fold {number} of 5" in splits.how
        tested += splits.test.qids
    assert len(set(tested)) == queries


def test_six_columns_of_mq2008_are_constant_in_every_fold(data_folder):
    for number in range(1, 6):
        recipe = config.load("mq2008", fold=number)
        data = recipe.data.model_copy(update={"drop_constant": True})
        splits = load(config.changed(recipe, {"data": data}), [str(data_folder / "mq2008")])
        assert [name for _, name in splits.dropped] == ["f6", "f7", "f8", "f9", "f10", "f43"]
        assert {part.features.shape[1] for part in (splits.train, splits.valid, splits.test)} == {40}


def test_mq2008_as_its_publisher_describes_it(data_folder):
    _, parts = fold("mq2008", data_folder / "mq2008", 3)
    assert sum(without_relevant(part) for part in parts) == 220
    features = np.concatenate([part.features for part in parts])
    assert int((features == features[0]).all(axis=0).sum()) == 6
    assert not np.isnan(features).any()
    readme = (data_folder / "mq2008" / "readme.txt").read_text()
    assert "Fold3\tS3, S4, S5\tS1\t\tS2" in readme
    part = Reader().file(data_folder / "mq2008" / "S2.txt.gz")
    assert parts[2].qids == part.qids


def test_ohsumed_keeps_its_missing_values(data_folder):
    _, parts = fold("ohsumed", data_folder / "ohsumed", 2)
    missing = np.concatenate([np.isnan(part.features) for part in parts])
    assert round(100 * missing.mean(), 1) == 7.1
    first = Reader().file(data_folder / "ohsumed" / "Fold1.test.txt.gz")
    assert parts[1].qids == first.qids  # validation of fold k is the test part of fold k - 1
    assert first.features[1, 10:15].tolist() == pytest.approx([np.nan] * 5, nan_ok=True)


def test_airline_is_one_choice_per_query(data_folder):
    splits, parts = fold("airline", data_folder / "airline", 1)
    assert sum(part.rows for part in parts) == 20_144
    assert sum(len(part) for part in parts) == 615
    schema = splits.train.schema
    assert len(schema) == 17
    assert [schema.names[d] for d in schema.categorical] == ["origin", "destination", "airlines", "depWeekDay", "pointOfSale"]  # fmt: skip
    for part in parts:
        assert max(part.lengths) <= 50
        assert {int(labels.sum()) for _, labels in part.lists()} == {1}
    with gzip.open(data_folder / "airline" / "itinerary_data.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["individual"] == splits.test.qids[0]]
    airlines = schema.features[schema.index["airlines"]]
    expected = [[float(row["totalPrice"]), airlines.code(row["airlines"])] for row in rows]
    wanted = [schema.index["totalPrice"], schema.index["airlines"]]
    assert splits.test.features[splits.test.slice(0)][:, wanted].tolist() == expected


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("msn1.fold1.train.5k.txt.gz", 5000),
        ("msn1.fold1.test.5k.txt.gz", 5000),
        ("changli.mslr_fold1_valid_sample.txt.gz", 1734),
        ("changli.mslr_fold1_test_sample.txt.gz", 1900),
    ],
)
def test_mslr_samples_equal_scikit_learn(data_folder, tmp_path, name, rows):
    from sklearn.datasets import load_svmlight_file

    path = data_folder / "mslr-sample" / name
    with open_plain(path) as (stream, _):
        data = read(stream, name)
    (tmp_path / "plain.txt").write_bytes(gzip.decompress(path.read_bytes()))
    matrix, labels, qids = load_svmlight_file(
        str(tmp_path / "plain.txt"), query_id=True, n_features=136, zero_based=False
    )
    assert data.features.shape == (rows, 136)
    assert np.array_equal(data.features, matrix.toarray().astype(np.float32))
    assert np.array_equal(data.labels, labels)
    assert np.repeat([int(q) for q in data.qids], data.lengths).tolist() == qids.tolist()


def test_mslr_text_equals_the_binary_sample(data_folder):
    """12 queries of the npz stand in the text files too."""
    folder = data_folder / "mslr-sample"
    sample = np.load(folder / "changli.mslr_fold1_train_sample.npz")
    shared = 0
    for name in ("train", "test"):
        text = Reader().file(folder / f"msn1.fold1.{name}.5k.txt.gz")
        for n, qid in enumerate(sample["qid"].astype(str)):
            if qid not in text.qids:
                continue
            rows = text.slice(text.qids.index(qid))
            start = sample["indptr"][n]
            same = slice(start, start + rows.stop - rows.start)  # the last query of a text file is cut
            assert np.array_equal(text.features[rows], sample["X"][same])
            assert np.array_equal(text.labels[rows], sample["y"][same])
            shared += 1
    assert shared == 12


def test_lightgbm_example_with_its_group_files(data_folder):
    folder = data_folder / "lightgbm-example"
    for name, rows, queries in (("train", 3005, 201), ("test", 768, 50)):
        data = Reader().file(folder / f"rank.{name}.gz")
        sizes = [int(line) for line in (folder / f"rank.{name}.query").read_text().split()]
        assert (data.features.shape, len(data)) == ((rows, 300), queries)
        assert data.lengths.tolist() == sizes


@pytest.mark.parametrize(
    ("recipe", "source", "same_for_a_list"),
    [
        ("mq2008", "mq2008", []),
        ("ohsumed", "ohsumed", ["f5", "f6", "f7", "f20", "f21", "f22", "f35", "f36", "f37"]),
        ("airline", "airline", ["staySaturday", "isContinental", "isDomestic", "origin", "destination", "pointOfSale"]),
        ("letor", "mslr-sample/msn1.fold1.train.5k.txt.gz", ["f16", "f17", "f18", "f19", "f20"]),
        ("letor", "mslr-sample/changli.mslr_fold1_test_sample.txt.gz", ["f16", "f17", "f18", "f19", "f20"]),
        (
            "letor",
            "lightgbm-example/rank.train.gz",
            ["f12", "f26", "f28", "f29", "f39", "f71", "f161", "f170", "f181", "f222", "f240", "f264", "f271"],
        ),
    ],
)
def test_nothing_is_pointed_out_but_what_is_the_same_in_nearly_all_lists(data_folder, recipe, source, same_for_a_list):
    splits = load(config.load(recipe), [str(data_folder / source)])
    assert len(splits.dropped) == (82 if "lightgbm" in source else 0)
    assert [column for finding in leaks(splits.train, splits.remedies) for column in finding.columns] == same_for_a_list
    for column in same_for_a_list:
        values = splits.train.features[:, splits.train.schema.index[column]]
        longer = np.flatnonzero(splits.train.lengths > 1)
        assert np.mean([len(np.unique(values[splits.train.slice(n)])) == 1 for n in longer]) >= 0.95


def test_the_alternatives_of_airline_by_their_number_are_no_position(data_folder):
    """Without the recipe: numbers of alternatives that the choice set left."""
    data = TableData(qid="individual", label="choice")
    recipe = config.changed(config.load("table"), {"data": data})
    said = leaks(load(recipe, [str(data_folder / "airline" / "itinerary_data.csv.gz")]).train, Remedies())
    assert "alternative" not in {column for finding in said for column in finding.columns}
