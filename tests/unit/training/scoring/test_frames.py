"""What each kind of file becomes, row by row."""

import gzip

import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.scoring.frames import batches, files_of
from support.service.bundles import schema

NUMBERED = FeatureSchema(
    features=(Feature(name="price"), Feature(name="floor", kind="categorical", categories=("1", "2.5")))
)


def read(path, found=None, qid="q"):
    found = NUMBERED if found is None else found
    return [batch.rows for batch in batches(path, found, qid).rows]


@pytest.fixture
def table(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv_is_read_as_the_bundle_says_and_the_rest_stays_text(table, name):
    (frame,) = read(table("q,price,floor,note\n7,1.50,1.0,007\n7,,2.50,NaN\n7,NaN,9,\n", name))
    assert frame["price"].to_list() == [1.5, None, None]
    assert frame["floor"].to_list() == ["1", "2.50", "9"], "as a fit spells them"
    assert frame["note"].to_list() == ["007", "NaN", None]
    assert frame["q"].to_list() == ["7"] * 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("q,price,floor\n1,2,1\n1,many,1\n", "line 3, column price: expected a number, as was fitted; found 'many'"),
        ("q,price,floor\n1,2,1\n1,2\n", "line 3: expected 3 fields, found 2"),
        ("q,price,floor\n1,2,1,4\n", "line 2: expected 3 fields, found 4"),
        ("q,price,price\n1,2,3\n", "line 1: column 'price' is named twice"),
    ],
)
def test_what_is_wrong_in_csv_is_named_with_its_line(table, text, says):
    with pytest.raises(DataError, match=says):
        read(table(text))


@pytest.mark.parametrize(
    ("qid", "says"),
    [
        (None, "the column of query ids is not named: pass --qid COL"),
        ("prise", "no column 'prise' .* did you mean 'price'"),
    ],
)
def test_the_column_of_query_ids_is_asked_for(table, qid, says):
    with pytest.raises(RecipeError, match=says):
        read(table("q,price,floor\n1,2,1\n"), qid=qid)


def test_letor_text_has_names_and_zeros(table):
    numbered = FeatureSchema(features=(Feature(name="f1"), Feature(name="f4")))
    (frame,) = read(table("2 qid:a 1:0.5 3:9\n0 qid:b 4:1\n", "t.txt"), numbered, None)
    assert frame.to_dict(as_series=False) == {
        "qid": ["a", "b"],
        "label": [2, 0],
        "f1": [0.5, 0.0],
        "f4": [0.0, 1.0],
    }


def test_letor_text_cannot_name_other_features_and_needs_no_qid(table):
    path = table("2 qid:a 1:0.5\n", "t.txt")
    with pytest.raises(RecipeError, match="feature 'price', which LETOR text cannot name: give a table"):
        read(path, schema(), None)
    with pytest.raises(RecipeError, match="--qid q: LETOR text has query ids of its own"):
        read(path, schema())


def test_the_files_of_a_folder_are_read_by_name_and_have_one_schema(table, tmp_path):
    (tmp_path / "day").mkdir()
    for name, text in (
        ("day/2.csv", "q,price,floor\n8,2,1\n"),
        ("day/1.csv.gz", "q,price,floor\n7,1,1\n"),
        ("day/_SUCCESS", ""),
        ("day/3.csv", "q,price,floor\n"),
    ):
        table(text, name)
    assert [frame["q"].to_list() for frame in read(tmp_path / "day")] == [["7"], ["8"]]
    table("q,price,floor,more\n9,3,1,1\n", "day/3.csv")
    with pytest.raises(DataError, match=r"3\.csv: has more as String, and 1\.csv\.gz has no more"):
        read(tmp_path / "day")
    table("q,floor,price\n9,1,3\n", "day/3.csv")
    with pytest.raises(DataError, match=r"3\.csv: has its columns in another order than 1\.csv\.gz"):
        read(tmp_path / "day")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="none: has no files"):
        read(tmp_path / "none")


def test_folders_in_a_folder_are_read_and_what_is_left_out_is_named(table, tmp_path):
    for name in ("2026/10/b.csv", "2026/10/_SUCCESS", "2026/11/a.csv", "c.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        table(f"q,price,floor\n{name},1,1\n" if name.endswith("csv") else "", name)
    notes = []
    names = [path.name for path in files_of(tmp_path, notes.append)]
    assert names == ["b.csv", "a.csv", "c.csv"]
    assert [note.rpartition(": ")[2] for note in notes] == ["2026/10/_SUCCESS"]
    assert [frame["q"][0] for frame in read(tmp_path)] == ["2026/10/b.csv", "2026/11/a.csv", "c.csv"]


@pytest.mark.parametrize("ids_only", [False, True])
def test_query_ids_in_bytes_are_text_or_refused(tmp_path, ids_only):
    frame = pl.DataFrame({"q": [b"a", b"b"], "price": [1.0, 2.0], "floor": [b"1", b"2.5"]})
    frame.write_parquet(tmp_path / "a.parquet")
    (batch,) = batches(tmp_path, NUMBERED, "q", ids_only=ids_only).rows
    assert batch.rows["q"].to_list() == ["a", "b"]
    frame.with_columns(q=pl.Series([b"a", b"\xff"])).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column q: holds bytes that are no text in UTF-8"):
        list(batches(tmp_path, NUMBERED, "q", ids_only=ids_only).rows)


def test_a_file_without_rows_is_an_error(table):
    with pytest.raises(DataError, match="has no rows"):
        read(table("q,price,floor\n"))


def test_damage_is_an_error(table, tmp_path):
    whole = table("q,price,floor\n" + "1,2,1\n" * 1000, "t.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.csv\.gz"):
        read(tmp_path / "cut.csv.gz")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(DataError, match=r"cut\.parquet: cannot be read"):
        read(tmp_path / "cut.parquet")
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "gone.csv")


@pytest.mark.parametrize("ids_only", [False, True])
def test_query_ids_alone_are_read_of_parquet_and_the_columns_of_files_are_compared(tmp_path, ids_only):
    frame = pl.DataFrame(
        {"q": [1, 1, 2], "price": [1.0, 2.0, 3.0], "floor": ["1", "2.5", None], "note": ["a", "b", "c"]}
    )
    for name in ("a", "b"):
        frame.write_parquet(tmp_path / f"{name}.parquet")
    found = batches(tmp_path, NUMBERED, "q", ("note",), ids_only=ids_only)
    assert (found.qid, found.ids_only) == ("q", ids_only)
    first, second = found.rows
    assert first.rows.columns == (["q"] if ids_only else frame.columns)
    assert first.schema == frame.schema
    assert (second.path.name, second.first, list(second.lines)) == ("b.parquet", 0, [1, 2, 3])
    frame.with_columns(price=pl.lit("dear")).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match="has price as String"):
        list(batches(tmp_path, NUMBERED, "q", ids_only=ids_only).rows)


def test_text_is_read_whole(table):
    found = batches(table("q,price,floor\n7,1.5,1\n"), NUMBERED, "q", ids_only=True)
    assert not found.ids_only
    assert [batch.rows.columns for batch in found.rows] == [["q", "price", "floor"]]
