"""Tables: what becomes a number, a category, a missing value or an error."""

import gzip
import zipfile

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.tables import frames as table_files
from listwright.training.data.tables.table import read
from listwright.training.recipe.data import TableData
from listwright.training.scoring.frames import columns_of
from support.training.own_table import SPEC


def column(dataset, name):
    return dataset.features[:, dataset.schema.names.index(name)].tolist()


def test_queries_are_grouped_by_first_appearance(table):
    data = table("q,y,x\nb,0,1\na,1,2\nb,2,3\nc,0,4\na,0,5\n")
    assert data.qids == ("b", "a", "c")
    assert data.offsets.tolist() == [0, 2, 4, 5]
    assert column(data, "x") == [1, 3, 2, 5, 4]
    assert data.labels.tolist() == [0, 2, 1, 0, 0]
    assert (data.features.dtype, data.labels.dtype, data.offsets.dtype) == (np.float32, np.int32, np.int64)


def test_kinds_are_inferred(table):
    data = table("q,y,n,f,t,b\n1,0,3,2.5,x,true\n1,1,4,1e3,w,false\n")
    kinds = {feature.name: (feature.kind, feature.categories) for feature in data.schema.features}
    assert kinds == {
        "n": ("numeric", ()),
        "f": ("numeric", ()),
        "t": ("categorical", ("w", "x")),
        "b": ("categorical", ("false", "true")),
    }
    assert data.features.tolist() == [[3, 2.5, 2, 2], [4, 1000, 1, 1]]


def test_named_numbers_become_categories(table):
    data = table("q,y,i,f\n1,0,10,2.0\n1,0,9,2.5\n1,1,10,\n", SPEC.model_copy(update={"categorical": ("i", "f")}))
    assert [feature.categories for feature in data.schema.features] == [("10", "9"), ("2", "2.5")]
    assert data.features.tolist() == [[1, 1], [2, 2], [1, 0]]


@pytest.mark.parametrize(
    "word",
    ["", '""', "  ", '" "', "NULL", "nan", "NaN", "NA", "n/a", "#N/A", "<NA>", "None", "null", "\\N", "-nan", " NA "],
)
def test_missing_values(table, word):
    data = table(f"q,y,n,t,m\n1,0,{word},{word},{word}\n1,1,2.5,a,{word}\n")
    assert data.schema.categorical == (1,)
    assert np.array_equal(data.features, np.float32([[np.nan, 0, np.nan], [2.5, 1, np.nan]]), equal_nan=True)


def test_ignored_columns_are_no_features(table):
    data = table("q,y,x,id\n1,0,3,a\n1,1,4,b\n", SPEC.model_copy(update={"ignore": ("id",)}))
    assert data.schema.names == ("x",)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv"])
def test_gzip_whatever_the_name(table, name):
    assert table(gzip.compress(b"q,y,x\n1,1,2\n"), name=name).features.tolist() == [[2]]


def test_a_folder_with_the_recipes_file(tmp_path):
    (tmp_path / "rows.csv").write_text("q,y,x\n1,1,2\n")
    data, source, *_ = read(SPEC.model_copy(update={"file": "rows.csv"}), str(tmp_path))
    assert (data.rows, source) == (1, "rows.csv")
    with pytest.raises(RecipeError, match="is a folder: name the table itself with --data"):
        read(SPEC, str(tmp_path))
    with pytest.raises(DataError, match=r"other\.csv: does not exist"):
        read(SPEC.model_copy(update={"file": "other.csv"}), str(tmp_path))


def test_an_archive_says_that_it_is_one(tmp_path):
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows.csv", "q,y,x\n1,1,2\n")
    with pytest.raises(DataError, match=r"rows\.zip: is an archive: unpack it"):
        read(SPEC, str(tmp_path / "rows.zip"))


def test_parquet(parquet):
    frame = pl.DataFrame(
        {
            "q": ["b", "a", "b"],
            "y": [0.0, 1.0, 2.0],
            "n": [1, None, 3],
            "d": pl.Series([float("nan"), 1.5, 2.5], dtype=pl.Float32),
            "t": ["007", None, "7"],
            "c": pl.Series(["v", "u", "v"], dtype=pl.Categorical),
            "e": pl.Series(["lo", "hi", "lo"], dtype=pl.Enum(["lo", "hi", "unused"])),
        }
    )
    data = parquet(frame, SPEC.model_copy(update={"categorical": ("t",)}))
    assert data.qids == ("b", "a")
    assert [f.categories for f in data.schema.features] == [(), (), ("007", "7"), ("u", "v"), ("hi", "lo")]
    nan = np.nan
    expected = [[1, nan, 1, 2, 2], [3, 2.5, 2, 2, 2], [nan, 1.5, 0, 1, 1]]
    assert np.array_equal(data.features, np.float32(expected), equal_nan=True)
    assert data.labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Int16, pl.String])
def test_ids_are_spelled_like_categories(parquet, dtype):
    ids = pl.Series([2, 10]).cast(dtype)
    assert parquet(pl.DataFrame({"q": ids, "y": [0, 1], "x": [1, 2]})).qids == ("2", "10")


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("q,y,x\n1,0,1\n1,1.5,1\n", "line 3, column y", "a relevance label, a whole number from 0 to 30; found '1.5'"),
        ("q,y,x\n1,-1,1\n", "line 2, column y", "found '-1'"),
        ("q,y,x\n1,31,1\n", "line 2, column y", "found '31'"),
        ("q,y,x\n1,1e999,1\n", "line 2, column y", "found '1e999'"),
        ("q,y,x\n1,1,1\n1,,1\n", "line 3, column y", "found None"),
        ("q,y,x\n1,1,1\n1,good,1\n", "line 3, column y", "found 'good'"),
        ("q,y,x\n1,1,1\n,1,1\n", "line 3, column q", "the query id is missing"),
        ("q,y,x\n1,1,2\n1,1,1e39\n", "line 3, column x", "expected a number that fits float32; found '1e39'"),
        ("q,y,x\n1,1,2\n1,1\n1,1,2\n", "line 3", "expected 3 fields, found 2"),
        ("q,y,x\n1,1,2\n1,1,2\n1,1,2,3\n", "line 4", "expected 3 fields, found 4"),
        ("q,y,x,x\n1,1,2,3\n", "line 1", "column 'x' is named twice"),
        ("q,y,\n1,1,2\n", "", "has no feature columns besides 'q' and 'y'"),
        (f"q,y,{'x' * 221}\n1,1,2\n", "column xxx", "cannot name a feature: String should have at most 220 char"),
        ('q,y,x\n1,1,"2\n', "", "cannot be read as CSV"),
        (b"q,y,x\n1,1,2\n1,1,\xff\n", "line 3", "is no UTF-8 text"),
        ("", "", "cannot be read as CSV or Parquet"),
        ("q,y,x\n", "", "has no rows"),
        ("q,y\n1,1\n", "", "has no feature columns besides 'q' and 'y'"),
        (b"PAR1 and nothing else", "", "cannot be read as CSV or Parquet"),
        (gzip.compress(b"q,y,x\n1,1,2\n" * 999, mtime=0)[:-20], "", "cannot be read"),
        (gzip.compress(b"q,y,x\n", mtime=0)[:10] + b"\xff" * 20, "", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(table, text, place, expected):
    with pytest.raises(DataError) as caught:
        table(text)
    assert "t.csv" in str(caught.value)
    assert place in str(caught.value)
    assert expected in str(caught.value)


def test_a_parquet_file_that_makes_the_reader_panic(parquet, monkeypatch):
    def panic(_path, **_options):
        raise pl.exceptions.PanicException("Thrift out of range")

    monkeypatch.setattr(pl, "scan_parquet", panic)
    with pytest.raises(DataError, match="cannot be read as CSV or Parquet: Thrift out of range"):
        parquet(pl.DataFrame({"q": [1], "y": [1], "x": [1]}))


def test_rows_of_parquet_are_counted_from_one(parquet):
    with pytest.raises(DataError, match="line 2, column y"):
        parquet(pl.DataFrame({"q": [1, 1], "y": [0, 99], "x": [1, 2]}))


def test_a_query_id_of_nan_is_missing(parquet):
    with pytest.raises(DataError, match="line 2, column q: the query id is missing"):
        parquet(pl.DataFrame({"q": [1.0, float("nan")], "y": [0, 1], "x": [1, 2]}))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"qid": None}, r"the column of query ids is not named: pass --qid COL; .* has query, label, price"),
        ({"label": None}, "pass --label COL"),
        ({"qid": "Query"}, r"--qid: no column 'Query' in .*; did you mean 'query'\? it has query, label, price"),
        ({"label": "zzz"}, r"--label: no column 'zzz' in .*; it has query"),
        ({"categorical": ("prize",)}, r"--categorical: no column 'prize' in .*; did you mean 'price'\?"),
        ({"ignore": ("id",)}, "--ignore: no column 'id'"),
    ],
)
def test_unknown_columns_are_named_with_those_there_are(table, changes, expected):
    spec = TableData(qid="query", label="label").model_copy(update=changes)
    with pytest.raises(RecipeError, match=expected):
        table("query,label,price\n1,1,2\n", spec)


def test_a_long_header_is_not_repeated_in_full(table):
    names = ",".join(f"x{n}" for n in range(500))
    with pytest.raises(RecipeError) as caught:
        table(f"{names}\n{','.join(['1'] * 500)}\n")
    assert "x19 …" in str(caught.value)
    assert "x20" not in str(caught.value)


def test_a_quoted_line_end_and_a_byte_order_mark(table):
    data = table(b'\xef\xbb\xbfq,y,x\n1,1,"a\nb"\n1,0,"c,d"\n')
    assert data.qids == ("1",)
    assert data.schema.features[0].categories == ("a\nb", "c,d")


def test_single_precision_categories_are_spelled_as_a_person_would(parquet):
    frame = pl.DataFrame({"q": [1, 1, 1], "y": [0, 1, 0], "x": pl.Series([0.1, 2.0, None], dtype=pl.Float32)})
    data = parquet(frame, SPEC.model_copy(update={"categorical": ("x",)}))
    assert data.schema.features[0].categories == ("0.1", "2")
    assert column(data, "x") == [1, 2, 0]


def test_a_table_is_parsed_once(table, monkeypatch):
    text = "q,y,n,c\n1,0,3,x\n1,1,,w\n"
    first = table(text)
    with monkeypatch.context() as patch:
        patch.setattr(table_files, "scan_csv", lambda *_args, **_more: pytest.fail("parsed again"))
        second = table(text)
    assert second.schema == first.schema
    assert np.array_equal(second.features, first.features, equal_nan=True)
    assert (second.labels.tolist(), second.qids) == (first.labels.tolist(), first.qids)
    as_category = table(text, SPEC.model_copy(update={"categorical": ("n",)}))
    assert as_category.schema != first.schema, "other options are another result"


@pytest.mark.parametrize("name", ["*", "^a.*$"])
def test_names_of_columns_and_files_are_no_patterns(tmp_path, name):
    path = tmp_path / "rows[1].parquet"
    pl.DataFrame({"a": [1.0, 2.0], name: [3.0, 4.0]}).write_parquet(path)
    columns = table_files.ColumnFile(path, path)
    assert columns[name].to_list() == [3.0, 4.0]
    assert [frame.columns for frame in columns.select([name]).batches(0)] == [[name]]


@pytest.mark.parametrize(("cells", "reads"), [(10, 5), (4, 10), (1, 10), (12, 4), (400, 1)])
def test_many_columns_are_read_at_a_time(tmp_path, monkeypatch, cells, reads):
    path = tmp_path / "rows.parquet"
    frame = pl.DataFrame({f"c{d}": [float(d), 0.5, 1.5, 2.5] for d in range(10)})
    frame.write_parquet(path)
    monkeypatch.setattr(table_files, "BLOCK_CELLS", cells)
    columns, scans, scan = table_files.ColumnFile(path, path), [], pl.scan_parquet
    monkeypatch.setattr(pl, "scan_parquet", lambda *a, **o: scans.append(a) or scan(*a, **o))
    assert pl.DataFrame(list(columns.iter_columns())).equals(frame)
    assert len(scans) == reads
    assert [column.name for column in columns.select(["c7", "c2"]).iter_columns()] == ["c7", "c2"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_more_columns_than_a_table_may_have_are_refused(tmp_path, monkeypatch, ending, on_disk):
    path = tmp_path / f"rows.{ending}"
    frame = pl.DataFrame({"q": [1, 1], "y": [0, 1], "x": [2.0, 3.0], "z": [1.0, 2.0]})
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    monkeypatch.setattr(table_files, "MOST_COLUMNS", 3)
    for reading in (lambda: read(SPEC, str(path), on_disk=on_disk), lambda: columns_of(path)):
        with pytest.raises(DataError, match=r"has 4 columns, and a table may have 3: leave some out"):
            reading()
    monkeypatch.setattr(table_files, "MOST_COLUMNS", 4)
    assert read(SPEC, str(path), on_disk=on_disk).dataset.schema.names == ("x", "z")
    assert columns_of(path).frame.columns == ["q", "y", "x", "z"]


@pytest.mark.parametrize(("rows", "says"), [([3.0], "changed"), (None, "was deleted")])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, rows, says):
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"a": [1.0, 2.0]}).write_parquet(path)
    columns = table_files.ColumnFile(path, path).select(["a"])
    path.unlink() if rows is None else pl.DataFrame({"a": rows}).write_parquet(path)
    with pytest.raises(DataError, match=f"{says} while it was read"):
        columns["a"]
    with pytest.raises(DataError, match=f"{says} while it was read"):
        list(columns.batches(0))
