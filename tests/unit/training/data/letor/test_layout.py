"""Sets as their publishers lay them out: folders, zips and tars with folds, one split, or parts."""

import gzip

import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.letor.layout import Reader
from listwright.training.data.load import load
from listwright.training.data.sources import check_kind
from listwright.training.data.tables import table
from listwright.training.recipe import config
from listwright.training.recipe.data import Split
from support.training.archives import PACKERS, as_folder, as_zip, folds, splits_of, text


@pytest.fixture(params=PACKERS, ids=list(PACKERS))
def packed(request, tmp_path):
    return lambda files: PACKERS[request.param](files, tmp_path)


def qids(splits):
    return splits.train.qids, splits.valid.qids, splits.test.qids


@pytest.mark.parametrize("prefix", ["", "MSLR-WEB10K/", "./"])
def test_published_folds(packed, prefix):
    path = packed({**folds(prefix), f"{prefix}readme.txt": b"no data", "__MACOSX/Fold1/._train.txt": b"\x00"})
    splits = splits_of(path, fold=4)
    assert qids(splits) == (("1", "2", "3", "4", "5", "6"), ("9", "10"), ("7", "8"))
    assert splits.how == (
        f"{path.name}, the publisher's fold 4 of 5: training 6 queries / 12 candidates, "
        "validation 2 queries / 4 candidates, test 2 queries / 4 candidates"
    )
    assert splits.test.features[:, 0].tolist() == [7, 7, 8, 8]


def test_files_that_a_set_does_not_name_are_noted(packed):
    files = {"train.txt": text(1, 2, 3), "vali.txt": text(4), "test.txt": text(5)}
    assert splits_of(packed(files)).notes == ()
    (note,) = splits_of(packed({**files, "2026/more.txt": text(6)})).notes
    assert note.endswith(": 2026/more.txt")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"label": 1}\n', "is JSON"),
        (b"label\tprice\n1\t2\n", r"is separated by '\\t'"),
        (b"PAR1" + bytes(20), "is Parquet, which is read as a table"),
        (b"ARROW1\0\0" + bytes(20), "is Arrow or Feather"),
    ],
)
@pytest.mark.parametrize("packing", [bytes, gzip.compress])
def test_tables_of_any_kind_are_no_letor_text(content, says, packing, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(packing(content))
    with pytest.raises(DataError, match=says):
        splits_of(path)


@pytest.mark.parametrize("line", ["1\tqid:1\t1:2\n", "# a; b\n1 qid:1 1:2\n", "1 qid:1 1:2 # id=a;b\n"])
def test_letor_text_with_tabs_and_comments_stays_letor_text(line, tmp_path):
    (tmp_path / "rows.txt").write_text(line)
    check_kind(tmp_path / "rows.txt")
    assert Reader().file(tmp_path / "rows.txt").features.tolist() == [[2.0]]


@pytest.mark.parametrize(("name", "file"), [("letor", "rows.txt"), ("table", "rows.csv")])
def test_a_fold_that_is_not_there_is_noticed_before_data_are_read(name, file, tmp_path, monkeypatch):
    (tmp_path / file).write_text("1 qid:1 1:2\n")
    monkeypatch.setattr(Reader, "file", lambda *_: pytest.fail("data are read"))
    monkeypatch.setattr(table, "read", lambda *_, **__: pytest.fail("data are read"))
    with pytest.raises(RecipeError, match="has folds 1 to 5, there is no fold 6"):
        load(config.load(name, fold=6), [str(tmp_path / file)])


def test_letor_3_names(packed):
    path = packed(folds("OHSUMED/Feature-null/", ("trainingset", "validationset", "testset")))
    assert qids(splits_of(path))[2] == ("1", "2")


def test_gzip_inside(packed):
    path = packed({f"{name}.gz": gzip.compress(content) for name, content in folds().items()})
    assert qids(splits_of(path, fold=2))[2] == ("3", "4")


def test_the_folds_of_a_set_with_parts_come_first(packed):
    path = packed({**folds("MQ2008/"), "MQ2008/S1.txt": text(1), "MQ2008/S2.txt": text(2)})
    assert "publisher's fold 1" in splits_of(path, parts=("S1.txt", "S2.txt")).how


def test_folds_come_before_a_split_beside_them(packed):
    path = packed({**folds(), "train.txt": text(1), "vali.txt": text(2), "test.txt": text(3)})
    assert "publisher's fold 3 of 5" in splits_of(path, fold=3).how


def test_one_published_split(packed):
    """Istella-S."""
    files = {"sample/train.txt": text(1, 2), "sample/vali.txt": text(3, wide=5), "sample/test.txt": text(4)}
    splits = splits_of(packed(files))
    assert qids(splits) == (("1", "2"), ("3",), ("4",))
    assert [part.features.shape for part in (splits.train, splits.valid, splits.test)] == [(4, 5), (2, 5), (2, 5)]
    assert splits.train.features[0].tolist() == [1, 1.5, 0, 0, 0]


def test_a_published_split_of_a_named_set(packed):
    """Yahoo C14."""
    files = {"set1.train.txt": text(1, 2), "set1.valid.txt": text(3), "set1.test.txt": text(4)}
    assert qids(splits_of(packed(files))) == (("1", "2"), ("3",), ("4",))


def test_validation_is_set_aside_where_none_is_published(packed):
    path = packed({"full/train.txt": text(*range(1, 21)), "full/test.txt": text(21)})
    splits = splits_of(path, split=Split(parts=4))
    assert (len(splits.train), len(splits.valid), splits.test.qids) == (15, 5, ("21",))
    assert sorted({*splits.train.qids, *splits.valid.qids}, key=int) == [str(q) for q in range(1, 21)]
    assert "it has no validation file: 5 training queries were set aside" in splits.how
    assert qids(splits_of(path, split=Split(parts=4))) == qids(splits)
    assert qids(splits_of(path, split=Split(parts=4), seed=1)) != qids(splits)


def test_files_that_number_their_queries_from_one(packed):
    """The same id with other candidates is another query; the same candidates are the same query."""
    later = b"".join(b"%d qid:1 1:77 2:%d\n" % (label, label) for label in (0, 1))
    files = {"train.txt": text(1, 2), "vali.txt": text(3), "test.txt": later}
    assert qids(splits_of(packed(files))) == (("train:1", "train:2"), ("valid:3",), ("test:1",))


def test_a_query_in_two_published_files_is_refused(packed):
    files = {"train.txt": text(1, 2, 3), "vali.txt": text(4), "test.txt": text(3)}
    with pytest.raises(DataError, match="query '3' and 0 more stand in both training and test"):
        splits_of(packed(files))


@pytest.mark.parametrize(
    ("fold", "valid_part", "test_part", "expected"),
    [
        (1, 3, 4, (("1", "2", "3"), ("4",), ("5",))),
        (3, 3, 4, (("3", "4", "5"), ("1",), ("2",))),
        (1, -1, 0, (("2", "3", "4"), ("5",), ("1",))),
        (5, -1, 0, (("1", "2", "3"), ("4",), ("5",))),
    ],
)
def test_parts_are_rotated(packed, fold, valid_part, test_part, expected):
    path = packed({f"S{part}.txt.gz": gzip.compress(text(part)) for part in range(1, 6)})
    names = tuple(f"S{part}.txt" for part in range(1, 6))
    splits = splits_of(path, fold=fold, parts=names, valid_part=valid_part, test_part=test_part)
    assert tuple(tuple(sorted(part)) for part in qids(splits)) == expected
    assert f"fold {fold} of 5 (valid S{expected[1][0]}.txt.gz, test S{expected[2][0]}.txt.gz)" in splits.how


def test_plain_files_are_pooled_and_split_by_query(tmp_path):
    as_folder({"a.txt": text(*range(1, 11)), "b.txt": text(*range(11, 21), wide=4)}, tmp_path)
    splits = splits_of(tmp_path / "a.txt", tmp_path / "b.txt", split=Split(parts=5))
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [12, 4, 4]
    assert sorted(int(q) for part in qids(splits) for q in part) == list(range(1, 21))
    assert splits.test.features.shape == (8, 4)


def test_files_that_are_told_apart(tmp_path):
    as_folder({"a": text(1, 2), "b": gzip.compress(text(3)), "c": text(4, wide=3)}, tmp_path)
    splits = splits_of(f"test={tmp_path}/c", f"train={tmp_path}/a", f"valid={tmp_path}/b")
    assert qids(splits) == (("1", "2"), ("3",), ("4",))
    assert splits.train.features.shape[1] == 3


@pytest.mark.parametrize("zipped", [False, True])
def test_group_files(tmp_path, zipped):
    """As LightGBM's example has them: ``rank.train.gz`` beside ``rank.train.query``."""
    content = b"".join(b"%d 1:%d\n" % (row % 2, row) for row in range(12))
    name = "rank.train.gz" if zipped else "rank.train"
    as_folder({name: gzip.compress(content) if zipped else content, "rank.train.query": b"1\n3\n\n8\n"}, tmp_path)
    data = Reader().file(tmp_path / name)
    assert data.qids == tuple(f"{tmp_path / name}#{n}" for n in (1, 2, 3))
    assert data.lengths.tolist() == [1, 3, 8]
    assert data.features[:, 0].tolist() == list(range(12))


def test_the_ids_of_grouped_queries_follow_the_file_and_not_the_cache(tmp_path):
    files = {
        "rank.txt": b"".join(b"%d 1:1\n" % (row % 2) for row in range(6)),
        "rank.txt.query": b"\xef\xbb\xbf2\n2\n2\n",
    }
    for name in ("one", "two"):
        splits = splits_of(as_folder(files, tmp_path / name) / "rank.txt", split=Split(parts=3))
        assert all(q.startswith(str(tmp_path / name / "rank.txt#")) for part in qids(splits) for q in part)


@pytest.mark.parametrize("content", [b"1\nx\n", b"1\n-2\n", b"1\n0\n", b"1\n2.5\n"])
def test_a_bad_group_size_is_named_with_its_line(tmp_path, content):
    as_folder({"a": b"1 1:1\n", "a.query": content}, tmp_path)
    with pytest.raises(DataError, match=r"a\.query, line 2: expected the number of candidates of a query; found"):
        splits_of(tmp_path / "a")


@pytest.mark.parametrize(("content", "size"), [(b"", "no group sizes"), (b"\n", "no group sizes")])
def test_an_empty_group_file(tmp_path, content, size):
    as_folder({"a": b"1 1:1\n", "a.query": content}, tmp_path)
    with pytest.raises(DataError, match=size):
        splits_of(tmp_path / "a")


@pytest.mark.parametrize(
    ("files", "fold", "error", "message"),
    [
        (folds(), 6, RecipeError, "has folds 1 to 5, there is no fold 6"),
        ({"train.txt": text(1), "vali.txt": text(2), "test.txt": text(3)}, 2, RecipeError, "has one split, there is no"),
        ({n: t for n, t in folds().items() if n != "Fold2/vali.txt"}, 2, DataError, "Fold2 has no valid file"),
        ({"train.txt": text(1), "vali.txt": text(2)}, 1, DataError, r"has train\.txt, but no test file"),
        ({"other.txt": text(1)}, 1, DataError, r"expected Fold1/train\.txt, or train\.txt and test\.txt; found other\.txt"),
        ({**folds("A/"), **folds("B/")}, 1, DataError, r"holds several sets \('A', 'B'\): name the folder of one"),
        ({"set1.train.txt": text(1), "set2.train.txt": text(2)}, 1, DataError, r"several sets \('set1', 'set2'\)"),
        ({**folds(), "Fold1/test.txt": b"1 qid:1 1:x\n"}, 1, DataError, r"Fold1/test\.txt, line 1, column 11: expected a"),
        ({**folds(), "Fold1/test.txt": b""}, 1, DataError, "holds no candidates"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_set_is_said(packed, files, fold, error, message):
    with pytest.raises(error, match=message):
        splits_of(packed(files), fold=fold)


def test_sources_that_make_no_sense_together(tmp_path):
    as_folder({"a": text(1), "b": text(2), "d/c": text(3)}, tmp_path)
    archive = as_zip(folds(), tmp_path / "set.zip")
    one_source = "takes one folder or archive, or files"
    for sources, error, message in (
        ([tmp_path / "nowhere"], DataError, "nowhere: does not exist$"),
        ([f"trian={tmp_path}/a"], DataError, "does not exist; 'trian' is no split: train=, valid= and test= are"),
        ([tmp_path / "a", tmp_path / "d"], RecipeError, one_source),
        ([tmp_path / "a", archive], RecipeError, one_source),
        ([f"train={tmp_path}/a", f"test={tmp_path}/b"], RecipeError, "names no valid=FILE"),
        ([f"{role}={tmp_path}/a" for role in ("train", "valid", "test", "test")], RecipeError, "names a split twice"),
        (
            [f"{role}={tmp_path}/a" for role in ("train", "valid", "test")],
            DataError,
            "stand in both training and valid",
        ),
        ([f"{role}={tmp_path}/x" for role in ("train", "valid", "test")], DataError, "x: cannot be read: No such file"),
        ([tmp_path / "a", tmp_path / "a"], DataError, "query '1' stands in two of the files"),
    ):
        with pytest.raises(error, match=message):
            splits_of(*sources)
    with pytest.raises(RecipeError, match="has one split, there is no fold 2"):
        splits_of(f"train={tmp_path}/a", f"valid={tmp_path}/b", f"test={tmp_path}/d/c", fold=2)
