"""Splits by query: who goes where, and which splits nothing can be learned from."""

import numpy as np
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.data.split import by_query, check_fold, checked, distinguish_ids, merged, set_aside
from listwright.training.recipe.data import Split

SCHEMA = FeatureSchema(features=(Feature(name="x"), Feature(name="c", kind="categorical", categories=("a", "b"))))


def dataset(lengths, qids=None, labels=None, codes=1.0):
    rows = sum(lengths)
    features = np.column_stack([np.arange(rows), np.full(rows, codes)]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    labels = np.arange(rows) % 2 if labels is None else labels
    names = qids if qids is not None else [f"q{n}" for n in range(len(lengths))]
    return Dataset(features, np.asarray(labels, dtype=np.int32), offsets, tuple(names), SCHEMA)


def split(data, *, fold=1, parts=5, seed=0):
    return by_query(data, Split(parts=parts), fold=fold, rng=np.random.default_rng(seed), source="here")


@pytest.mark.parametrize("queries", [5, 23, 100])
def test_five_folds_test_every_query_once(queries):
    data = dataset(range(2, queries + 2))
    folds = [split(data, fold=fold) for fold in range(1, 6)]
    tested = [qid for each in folds for qid in each.test.qids]
    assert sorted(tested) == sorted(data.qids)
    for fold, each in enumerate(folds):
        assert each.valid.qids == folds[(fold + 1) % 5].test.qids
        together = {*each.train.qids, *each.valid.qids, *each.test.qids}
        assert len(each.train) + len(each.valid) + len(each.test) == len(together) == queries
        assert max(abs(len(each.test) - queries / 5), abs(len(each.valid) - queries / 5)) < 1


def test_rows_go_with_their_query():
    data = dataset([2, 3, 4, 5, 6, 7])
    parts = split(data)
    for part in (parts.train, parts.valid, parts.test):
        for n, qid in enumerate(part.qids):
            assert np.array_equal(part.features[part.slice(n)], data.features[data.slice(data.qids.index(qid))])


def test_the_seed_decides():
    data = dataset([2] * 40)
    assert split(data, seed=1).test.qids == split(data, seed=1).test.qids
    assert split(data, seed=1).test.qids != split(data, seed=2).test.qids


@pytest.mark.parametrize(("lengths", "wide"), [([1] * 20, True), ([1] * 15 + [2] * 5, True), ([2] * 20, False)])
def test_a_row_for_each_chooser_is_called_wide(lengths, wide):
    labels = [n % 2 if wide else 0 for n, length in enumerate(lengths) for _ in range(length)]
    with pytest.raises(DataError, match="different labels") as caught:
        split(dataset(lengths, labels=labels))
    assert ("wide" in str(caught.value)) == wide


def test_how_says_what_happened():
    assert split(dataset([2] * 10), fold=2).how == (
        "here, split by query 60/20/20, fold 2 of 5: training 6 queries / 12 candidates, "
        "validation 2 queries / 4 candidates, test 2 queries / 4 candidates"
    )


@pytest.mark.parametrize("fold", [0, 6, -1])
def test_a_fold_that_is_not_there(fold):
    with pytest.raises(RecipeError, match=f"here has folds 1 to 5, there is no fold {fold}: change --fold"):
        split(dataset([2] * 10), fold=fold)
    with pytest.raises(RecipeError, match="set has one split, there is no fold 2"):
        check_fold(2, 1, "set")


def test_fewer_queries_than_parts():
    with pytest.raises(DataError, match="here: 4 queries cannot be split into 5 parts"):
        split(dataset([2] * 4))


def test_only_copies_are_encoded_in_place():
    data = dataset([2] * 10, codes=2.0)
    parts = split(data)
    assert set(data.features[:, 1].tolist()) == {2.0}
    assert {code for part in (parts.train, parts.valid, parts.test) for code in part.features[:, 1].tolist()} == {1.0}
    train, valid, test = dataset([2], ["a"]), dataset([2], ["b"]), dataset([2], ["c"], codes=2.0)
    checked(train, valid, test, "here")
    assert test.features[:, 1].tolist() == [2, 2]
    own = checked(train, valid, test, "here", in_place=True)
    assert own.test.features is test.features
    assert test.features[:, 1].tolist() == [0, 0]


def test_training_fixes_the_categories():
    """A value that only the test split has is unknown to it, as it would be to the service."""
    train, valid, test = dataset([2], ["a"]), dataset([2], ["b"]), dataset([2], ["c"], codes=2.0)
    splits = checked(train, valid, test, "here")
    assert splits.train.schema is splits.valid.schema is splits.test.schema
    assert splits.train.schema.features[1].categories == ("a",)
    assert splits.test.features[:, 1].tolist() == [0, 0]
    assert splits.train.features[:, 1].tolist() == [1, 1]
    assert splits.train.schema.features[0].quantiles is not None


@pytest.mark.parametrize(
    ("train", "valid", "test", "expected"),
    [
        (dataset([], []), dataset([2], ["b"]), dataset([2], ["c"]), "the training split has no queries"),
        (dataset([2], ["a"]), dataset([2], ["b"]), dataset([], []), "the test split has no queries"),
        (dataset([2], ["a"]), dataset([2], ["a"]), dataset([2], ["c"]), "query 'a' and 0 more stand in both training"),
        (dataset([2, 2], ["a", "b"]), dataset([2], ["c"]), dataset([2, 2], ["b", "a"]), "'a' and 1 more stand in both"),
        (dataset([2], ["a"], [0, 0]), dataset([2], ["b"]), dataset([2], ["c"]), "no training query has two candidates"),
        (dataset([2], ["a"]), dataset([2], ["b"], [1, 1]), dataset([2], ["c"]), "no validation query has two candidat"),
    ],
)  # fmt: skip
def test_what_cannot_be_learned_from(train, valid, test, expected):
    with pytest.raises(DataError, match=expected):
        checked(train, valid, test, "here")


def test_a_test_split_without_relevant_candidates_is_allowed():
    assert checked(dataset([2], ["a"]), dataset([2], ["b"]), dataset([2], ["c"], [0, 0]), "here").test.rows == 2


def test_setting_validation_aside():
    train, valid = set_aside(dataset([2] * 11), Split(parts=5), np.random.default_rng(0))
    assert (len(train), len(valid)) == (9, 2)
    assert sorted({*train.qids, *valid.qids}) == sorted(dataset([2] * 11).qids)
    train, valid = set_aside(dataset([2] * 2), Split(parts=5), np.random.default_rng(0))
    assert (len(train), len(valid)) == (1, 1)
    with pytest.raises(DataError, match="1 queries leave none"):
        set_aside(dataset([2]), Split(parts=5), np.random.default_rng(0))


def test_ids_are_kept_unless_files_number_from_one():
    one, two, three = dataset([2], ["a"]), dataset([3], ["b"]), dataset([4], ["c"])
    assert distinguish_ids(one, two, three) == (one, two, three)
    renamed = distinguish_ids(dataset([2], ["1"]), dataset([3], ["2"]), dataset([4], ["1"]))
    assert [part.qids for part in renamed] == [("train:1",), ("valid:2",), ("test:1",)]
    kept = distinguish_ids(
        dataset([2, 2], ["1", "2"]), dataset([3], ["2"]), dataset([2], ["1"])
    )  # "1" has the same candidates
    assert [part.qids for part in kept] == [("1", "2"), ("2",), ("1",)]


def test_merging_keeps_order_and_offsets():
    whole = merged([dataset([1, 2], ["a", "b"]), dataset([3], ["c"])])
    assert whole.qids == ("a", "b", "c")
    assert whole.offsets.tolist() == [0, 1, 3, 6]
    assert whole.features[:, 0].tolist() == [0, 1, 2, 0, 1, 2]
