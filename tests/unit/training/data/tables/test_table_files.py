"""One table per split: a column means the same in all three, whatever each file alone would have said of it."""

import gzip

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.tables import frames, table
from listwright.training.recipe.data import TableData

SPEC = TableData(qid="q", label="y")
TRAIN = "q,y,n,c\na,0,1,x\na,1,2,z\nb,0,3,x\nb,2,4,z\n"
VALID = "q,y,n,c\nc,0,1,z\nc,1,2,x\n"
TEST = "q,y,n,c\nd,1,5,w\nd,0,6,x\n"


@pytest.fixture
def splits_of(tmp_path):
    def load(train=TRAIN, valid=VALID, test=TEST, spec=SPEC, fold=1, order=("train", "valid", "test"), **changes):
        for split, content in (("train", train), ("valid", valid), ("test", test)):
            path = tmp_path / f"{split}.csv"
            if isinstance(content, pl.DataFrame):
                content.write_parquet(path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        sources = [f"{split}={tmp_path / split}.csv" for split in order]
        return table.load(spec.model_copy(update=changes), sources, fold=fold, rng=np.random.default_rng(0))

    return load


def categories(splits, name):
    schema = splits.train.schema
    return schema.features[schema.index[name]].categories


def column(part, name):
    return part.features[:, part.schema.index[name]].tolist()


def test_each_file_is_its_split_under_the_schema_of_training(splits_of):
    splits = splits_of()
    assert (splits.train.qids, splits.valid.qids, splits.test.qids) == (("a", "b"), ("c",), ("d",))
    assert splits.train.schema is splits.test.schema
    assert categories(splits, "c") == ("x", "z")
    assert splits.test.features.tolist() == [[5, 0], [6, 1]], "training saw no w"
    assert splits.how == (
        "train train.csv, valid valid.csv, test test.csv: training 2 queries / 4 candidates, "
        "validation 1 queries / 2 candidates, test 1 queries / 2 candidates"
    )


def test_formats_orders_of_columns_and_of_files_may_differ(splits_of):
    frame = pl.DataFrame({"c": ["w", "x"], "n": [5.0, 6.0], "y": [1, 0], "q": ["d", "d"]})
    splits = splits_of(valid=gzip.compress(VALID.encode()), test=frame, order=("test", "train", "valid"))
    assert splits.train.schema.names == ("n", "c")
    assert splits.test.features.tolist() == [[5, 0], [6, 1]]
    assert splits.how.startswith("train train.csv, valid valid.csv, test test.csv")


def test_whole_numbers_in_one_file_and_fractions_in_another_are_numbers(splits_of):
    splits = splits_of(test=TEST.replace("5,w", "5.5,w"))
    assert column(splits.test, "n") == [5.5, 6]


def test_a_column_without_any_value_takes_the_kind_of_training(splits_of):
    splits = splits_of(test="q,y,n,c\nd,1,,\nd,0,,\n")
    assert np.isnan(column(splits.test, "n")).all()
    assert column(splits.test, "c") == [0, 0]


def test_categories_are_spelled_alike_whichever_file_looks_like_numbers(splits_of):
    codes = {
        "train": TRAIN.replace("z", "007"),
        "valid": VALID.replace("z", "7"),
        "test": "q,y,n,c\nd,1,5,007\nd,0,6,7\n",
    }
    splits = splits_of(**codes, categorical=("c",))
    assert categories(splits, "c") == ("007", "x")
    assert column(splits.test, "c") == [1, 0], "007 as in training, and 7 is another one"


def test_words_for_true_are_spelled_alike(splits_of):
    train = TRAIN.replace("x", "True").replace("z", "maybe")
    splits = splits_of(train, VALID.replace("x", "True").replace("z", "False"), TEST.replace("w", "False"))
    assert categories(splits, "c") == ("maybe", "true")
    assert column(splits.valid, "c") == [0, 2]


def test_ids_are_spelled_alike_too(splits_of):
    """By itself the test file would say 7 of 007, and that is no query of training."""
    splits = splits_of(train=TRAIN.replace("b,", "7,"), test=TEST.replace("d,", "007,"))
    assert splits.test.qids == ("007",)
    with pytest.raises(DataError, match="query '007' and 0 more stand in both training and test"):
        splits_of(train=TRAIN.replace("b,", "007,"), test=TEST.replace("d,", "007,"))


def test_a_column_that_is_ignored_may_be_anything_anywhere(splits_of):
    splits = splits_of(train=TRAIN.replace(",c\n", ",note\n"), valid="q,y,n\nc,0,1\nc,1,2\n", ignore=("c", "note"))
    assert splits.train.schema.names == ("n",)


@pytest.mark.parametrize(
    ("changes", "file", "says"),
    [
        ({"test": TEST.replace("d,1,5", "d,1,few").replace("d,0,6", "d,0,many")}, "test.csv", r"line 2, column n: holds text \('few'\), but numbers in .*train.csv"),
        ({"train": TRAIN.replace("b,0,3", "b,0,?")}, "train.csv", r"line 4, column n: expected a number, as most rows have; found '\?'"),
        ({"test": TEST.replace("w", "1").replace("x", "2")}, "train.csv", r"line 2, column c: holds text \('x'\), but numbers in .*test.csv"),
        ({"test": TEST.replace("5", "true").replace("6", "false")}, "test.csv", "column n: holds booleans, but numbers in .*train.csv"),
        ({"train": "q,y,n,c\na,0,,x\na,1,,z\n", "valid": VALID.replace("c,0,1", "c,0,many").replace("c,1,2", "c,1,few")}, "valid.csv", "column n: holds text, but no value, which makes it a number, in .*train.csv"),
        ({"test": "q,y,n\nd,1,5\n"}, "test.csv", "has no column 'c', .*train.csv has: add it, or --ignore c"),
        ({"test": TEST.replace("c\n", "c,m\n").replace("w", "w,1").replace("6,x", "6,x,2")}, "train.csv", "has no column 'm', .*test.csv has"),
        ({"train": TRAIN.replace("c\n", '"a, b"\n'), "valid": VALID.replace("c\n", '"a, b"\n')}, "test.csv", """or --ignore '"a, b"'"""),
        ({"test": TEST.replace(",1,5", ",9.5,5")}, "test.csv", "line 2, column y: expected a relevance label"),
        ({"test": ""}, "test.csv", "cannot be read as CSV"),
    ],
)  # fmt: skip
def test_what_differs_is_named_with_both_files(splits_of, changes, file, says):
    with pytest.raises(DataError, match=says) as caught:
        splits_of(**changes)
    assert file in caught.value.source
    if ", but " in says:
        assert "--ignore" in str(caught.value)
        assert "--categorical" in str(caught.value)


def test_columns_that_are_named_must_stand_in_every_file(splits_of):
    with pytest.raises(
        RecipeError, match=r"--qid: no column 'q' in .*test.csv; did you mean 'q2'\? it has q2, y, n, c"
    ):
        splits_of(test=TEST.replace("q,", "q2,"))
    with pytest.raises(RecipeError, match=r"--ignore: no column 'd' in .*train.csv"):
        splits_of(ignore=("d",))
    with pytest.raises(
        RecipeError, match=r"the column of query ids is not named: pass --qid COL; .*train.csv has q, y, n, c"
    ):
        splits_of(qid=None)


def test_files_say_all_there_is_about_the_split(splits_of, tmp_path):
    with pytest.raises(RecipeError, match="--data names no valid=FILE"):
        splits_of(order=("train", "test"))
    with pytest.raises(RecipeError, match="train=FILE valid=FILE test=FILE has one split, there is no fold 2"):
        splits_of(fold=2)
    with pytest.raises(RecipeError, match=r"--data does not say which split .*more\.csv is"):
        table.load(
            SPEC, [*(f"{s}={tmp_path / s}.csv" for s in ("train", "valid", "test")), "more.csv"], fold=1, rng=None
        )
    with pytest.raises(RecipeError, match="is a folder: name the table itself"):
        table.load(SPEC, [f"train={tmp_path}", f"valid={tmp_path}", f"test={tmp_path}"], fold=1, rng=None)


def test_three_files_are_parsed_once_and_again_when_one_has_changed(splits_of, monkeypatch):
    first = splits_of()
    with monkeypatch.context() as patch:
        patch.setattr(frames, "scan_csv", lambda *_args, **_more: pytest.fail("parsed again"))
        second = splits_of()
    assert second.train.schema == first.train.schema
    assert second.test.features.tolist() == first.test.features.tolist()
    changed = splits_of(train=TRAIN.replace("x", "w"))
    assert categories(changed, "c") == ("w", "z")
    assert column(changed.test, "c") == [1, 0], "the test file is the same, but not what its categories mean"
