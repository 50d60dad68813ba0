"""CSV as other programs write it: quotes, indexes, blank lines, encodings; each fault has the line of its cell."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.memory import read_judged
from listwright.training.data.tables import frames
from listwright.training.data.tables import table as tables
from listwright.training.data.tables.frames import line_of
from listwright.training.data.tables.table import read
from listwright.training.recipe.data import TableData
from listwright.training.scoring.frames import batches
from support.training.own_table import SPEC


@pytest.fixture
def both(tmp_path):
    """A table read in memory, which the reading from disk must agree with; and its notes."""

    def write(text, spec=SPEC, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        found = []
        for on_disk in (False, True):
            try:
                found.append(read(spec, str(path), on_disk=on_disk))
            except DataError as error:
                found.append(error)
        one, other = found
        if isinstance(one, DataError):
            assert str(one) == str(other)
            raise one
        assert (one.dataset.schema, one.dataset.qids, one[1:]) == (other.dataset.schema, other.dataset.qids, other[1:])
        np.testing.assert_array_equal(one.dataset.features, other.dataset.features[:])
        return one

    return write


def scored(path, schema):
    return pl.concat([batch.rows for batch in batches(path, schema, "q").rows])


@pytest.mark.parametrize("name", ['price["eur"]', "a,b", "line\nend", '"', " padded"])
def test_names_are_quoted_as_cells_are(both, tmp_path, name):
    file = io.StringIO()
    csv.writer(file).writerows([["q", "y", name], [1, 0, 2.5], [1, 1, 'a "b", c']])
    text = file.getvalue().replace('"a ""b"", c"', "3")
    found = both(text).dataset
    assert found.schema.names == (name.strip(),)
    assert scored(tmp_path / "t.csv", found.schema)[name.strip()].to_list() == [2.5, 3.0]


ROWS = pd.DataFrame({"q": ["a", "a", "b"], "y": [0, 1, 0], "x": [1.5, 2.5, 3.5]})
INDEXED = {
    "the default": ROWS,
    "ids": ROWS.set_axis(["r1", "r2", "r3"]),
    "two levels": ROWS.set_axis(pd.MultiIndex.from_tuples([(1, 2), (1, 3), (2, 2)])),
    "written twice": pd.read_csv(io.StringIO(ROWS.to_csv())),
}


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_index_is_no_feature(both, tmp_path, kind, ending):
    frame, path = INDEXED[kind], tmp_path / f"t.{ending}"
    content = frame.to_csv().encode() if ending == "csv" else frame.to_parquet()
    found = both(content, name=path.name)
    unnamed = [name for name in scored(path, found.dataset.schema).columns if name not in ("q", "y", "x")]
    assert found.dataset.schema.names == ("x",)
    assert len(found.notes) == bool(unnamed)
    assert all(name in found.notes[0] for name in unnamed)


def test_categories_of_pandas_stay_categories_in_parquet(both):
    """Whatever they are: Parquet itself has numbers and booleans there."""
    values = {"whole": [3, 1, 3], "parts": [1.5, 2.5, 1.5], "flags": [True, False, True], "words": ["b", "a", "b"]}
    columns = {name: pd.Categorical(cells, categories=sorted({*cells})) for name, cells in values.items()}
    found = both(ROWS.assign(**columns).to_parquet(), name="t.parquet")
    schema = read_judged(ROWS[["x"]].assign(**columns), ROWS["y"], ROWS["q"], categorical=()).schema
    assert found.dataset.schema == schema
    assert [feature.kind for feature in schema.features] == ["numeric", *["categorical"] * 4]


def test_an_index_may_be_named(both):
    text = ",y,x\na,0,1\na,1,2\nb,0,3\n"
    found = both(text, TableData(qid="Unnamed: 0", label="y"))
    assert (found.dataset.qids, found.dataset.schema.names, found.notes) == (("a", "b"), ("x",), ())
    assert both("q,y,x,\n1,0,1,7\n1,1,2,8\n", TableData(qid="q", label="y", ignore=("Unnamed: 3",))).notes == ()


def test_a_file_for_each_split_may_have_an_index(tmp_path):
    for name, qids in (("train", "ab"), ("valid", "cd"), ("test", "ef")):
        frame = pd.DataFrame({"q": [*qids] * 2, "y": [0, 0, 1, 1], "x": [1.0, 2.0, 3.0, 4.0]})
        frame.to_csv(tmp_path / f"{name}.csv", index=name != "test")
    sources = [f"{name}={tmp_path / name}.csv" for name in ("train", "valid", "test")]
    splits = tables.load(SPEC, sources, fold=1, rng=np.random.default_rng(0))
    assert splits.train.schema.names == ("x",)
    assert len(splits.notes) == 1


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_file_of_each_split_is_looked_at_for_rounded_ids(tmp_path, split):
    for n, name in enumerate(("train", "valid", "test")):
        ids = [2.0**53 * (n + 2)] * 2 if name == split else [n, n]
        pl.DataFrame({"q": ids, "y": [0, 1], "x": [1.0, 2.0]}, strict=False).write_parquet(tmp_path / f"{name}.parquet")
    sources = [f"{name}={tmp_path / name}.parquet" for name in ("train", "valid", "test")]
    assert len(tables.load(SPEC, sources, fold=1, rng=np.random.default_rng(0)).notes) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_lines_are_no_rows(both, tmp_path, end):
    lines = ["", "q,y,x", "", "1,0,2", "  ", "1,1,3", ",,", '"",,', "2,0,", "", ""]
    found = both(end.join(lines)).dataset
    assert (found.qids, found.offsets.tolist()) == (("1", "2"), [0, 2, 3])
    assert scored(tmp_path / "t.csv", found.schema)["q"].to_list() == ["1", "1", "2"]
    assert [line_of(tmp_path / "t.csv", row) for row in range(3)] == [4, 6, 9]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('q,y,x\n1,0,"a\nb\nc"\n1,0,d\n1,7.5,e\n', 6),
        ('q,y,"x\ny"\n1,0,1\n\n1,7.5,2\n', 5),
        ('q,y,x\n1,0,"a\n\nb"\n1,0\n', 5),
        ('q,y,x\n1,0,"a\nb"\n1,0,1,2\n', 4),
        ('q,y,x\n1,0,"a\nb"\n1,0,"2\n1,1,3\n', 4),
        ("q,y,x\n1,0,a\n1,0,b\n1,0,c\xff\n".encode("latin1"), 4),
        (b"q,y,x\n" + b"1,0,a\n" * 5000 + b"1,0,\xe9\n" + b"1,0,a\n" * 5000, 5002),
        ("q,y,x\n1,0,\uff15\n1,0,2\n1,0,3\n", 2),
        (f"q,y,x\n1,0,1\n1,0,{'9' * 40}\n1,0,3\n", 3),
        (f"q,y,x\n1,0,1\n1,0,3\n{'q' * 200_000},0,2\n2,0,1e39\n", 5),
    ],
)
def test_the_line_of_a_fault_is_where_it_stands(both, tmp_path, text, line):
    with pytest.raises(DataError) as caught:
        both(text)
    assert caught.value.line == line


def test_forty_digits_are_a_category_where_one_is_named(both):
    found = both(f"q,y,x\n1,0,{'9' * 40}\n1,1,\uff15\n", SPEC.model_copy(update={"categorical": ("x",)}))
    assert found.dataset.schema.features[0].categories == ("9" * 40, "\uff15")


def workbook():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return file.getvalue()


TEXT = "q,y,x\n1,0,2\n1,1,3\n"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"q;y;x\n1;0;12,5\n1;1;3\n", r"separated by ';'.*read_csv\(FILE, separator=';', decimal_comma=True\)"),
        (TEXT.replace(",", "\t").encode(), r"separated by '\\t'.*read_csv"),
        (TEXT.replace(",", "|").encode(), r"separated by '\|'"),
        (gzip.compress(TEXT.replace(",", "\t").encode(), mtime=0), r"separated by '\\t'"),
        (b'{"q": 1, "y": 0}\n{"q": 1, "y": 1}\n', r"is JSON.*read_ndjson"),
        (b'[\n {"q": 1, "y": 0}]', r"is JSON.*read_json\("),
        (b"ARROW1\0\0" + bytes(20), "is Arrow or Feather.*read_ipc"),
        (b"FEA1" + bytes(20), "is Arrow or Feather"),
        (b"ORC\x11" + bytes(20), "is ORC.*read_orc"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(20), "is a spreadsheet.*read_excel"),
        (TEXT.encode("utf-16"), "UTF-16"),
        (TEXT.encode("utf-16-le"), "UTF-16"),
        (gzip.compress(TEXT.encode("utf-16"), mtime=0), "UTF-16"),
        (lzma.compress(TEXT.encode()), "xz"),
        (bz2.compress(TEXT.encode()), "bzip2"),
        (b"\x28\xb5\x2f\xfd" + bytes(20), "Zstandard"),
        (workbook(), "is a spreadsheet.*read_excel"),
        (TEXT.replace("\n", "\r").encode(), "carriage return"),
        (TEXT.replace("2\n", "2\r").encode(), "line 2: has a carriage return"),
        (b'q,y,x\n1,0,5" tv\n1,1,6" tv\n', "line 2: has a quotation mark in a cell without quotes"),
        (b'q,y,x\n1,0,"5\n1,1,6\n', "line 2: cannot be read as CSV: unexpected end"),
        (b'q,y,x\n1,0,"two\nlines"\n1,1,5" tv\n1,1,6" tv\n', "line 4: has a quotation mark in a cell without"),
        (b'q,y,x\n1,0,"C:\\"\n1,1,3,4\n', "line 3: expected 3 fields, found 4"),
        (f"# by hand\n# today\n{TEXT}".encode(), "line 1: does not begin with the names"),
        (f"# made by hand, today\n{TEXT}".encode(), "line 1: does not begin with the names"),
        (
            rb"""q,y,x
1,0,"say \"hi\""
1,1,3
""",
            r'line 2: has \\"',
        ),
        (
            rb"""q,y,x,z
1,0,3,4
1,1,"5\" x",7
1,0,"6\",7",8
""",
            r'line 3: has \\"',
        ),
    ],
)
def test_what_is_no_csv_as_it_is_read_has_its_cause_named(both, tmp_path, content, cause):
    with pytest.raises(DataError, match=cause):
        both(content)
    with pytest.raises(DataError, match=cause):
        scored(tmp_path / "t.csv", read_schema())


@pytest.mark.parametrize("cell", ["\0a", "a\0", "a\0b", "\0"])
def test_zero_characters_of_text_are_kept(both, cell):
    found = both(f"q,y,x,c\n{cell},0,2,{cell}\n{cell},1,3,a\nb,0,1,ab\nb,1,1,b\n")
    assert found.dataset.qids == (cell, "b")
    assert found.dataset.schema.features[1].categories == tuple(sorted([cell, "a", "ab", "b"]))


def test_a_zero_character_is_not_yet_utf_16(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\0q,y,x\n1,0,2\n1,1,3\n")
    with pytest.raises(RecipeError, match=r"no column 'q' in .*; did you mean '\\x00q'"):
        read(SPEC, str(path))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        ('"say \\"hi\\""', "line 3: has"),
        ("a\rb", "line 3: has a carriage return"),
        ('"5', "unexpected end"),
        ("5\r", None),
    ],
)
def test_pieces_of_any_size_find_the_same(both, monkeypatch, size, cell, cause):
    monkeypatch.setattr(frames, "_PIECE_BYTES", size)
    text = f"q,y,x\r\n1,0,2\r\n1,1,{cell}\r\n"
    if cause is None:
        assert both(text[:-2]).dataset.rows == 2
    else:
        with pytest.raises(DataError, match=cause):
            both(text)


@pytest.mark.parametrize("name", ['size 5"', '"size 5"""', 'size ""', '"a\rb"', '"a\nb"'])
def test_quotation_marks_in_the_header_take_no_rows(both, tmp_path, name):
    found = both(f'q,y,x,{name}\n1,0,2,4\n1,1,3,"5"\n2,1,3,\n').dataset
    assert (found.rows, found.qids, found.schema.names[0]) == (3, ("1", "2"), "x")
    assert scored(tmp_path / "t.csv", read_schema())["q"].to_list() == ["1", "1", "2"]


def test_a_cell_may_end_with_a_backslash(both):
    found = both('q,y,x\n1,0,"C:\\"\n1,1,"say ""no"" to \\"\n')
    assert found.dataset.schema.features[0].categories == ("C:\\", 'say "no" to \\')


@pytest.mark.parametrize("first", ["sep=,\n", "\ufeffsep=,\r\n"])
def test_the_line_of_the_separator_that_excel_writes_is_no_header(both, tmp_path, first):
    found = both(first + TEXT).dataset
    assert (found.qids, found.schema.names, line_of(tmp_path / "t.csv", 1)) == (("1",), ("x",), 4)


def read_schema():
    from listwright.ranking.features import Feature, FeatureSchema

    return FeatureSchema(features=(Feature(name="x"),))


def test_ids_keep_their_spelling(both, tmp_path):
    found = both("q,y,x\n070,0,1\n070,1,2\n70,1,3\n").dataset
    assert found.qids == ("070", "70")
    assert scored(tmp_path / "t.csv", found.schema)["q"].to_list() == ["070", "070", "70"]


@pytest.mark.parametrize("kind", [pl.Float64, pl.Float32, pl.String])
def test_ids_that_were_rounded_are_counted(tmp_path, kind):
    large = 2.0**53 if kind != pl.Float32 else 2.0**24
    ids = ["1.5e+17", "1.6E+17", "7"] if kind == pl.String else [large * 2, large * 4, 7.0]
    frame = pl.DataFrame({"q": pl.Series(ids, dtype=kind), "y": [0, 1, 0], "x": [1, 2, 3]})
    frame.write_parquet(tmp_path / "t.parquet")
    (note,) = read(SPEC, str(tmp_path / "t.parquet")).notes
    assert "2 of 3 rows" in note


def test_text_of_digits_with_zeros_before_them_is_pointed_out(both):
    found = both("q,y,zip,half\n1,0,01234,0.5\n1,1,90210,0\n")
    assert [feature.kind for feature in found.dataset.schema.features] == ["numeric", "numeric"]
    (note,) = found.notes
    assert "01234" in note
    assert both("q,y,zip\n1,0,01234\n1,1,90210\n", SPEC.model_copy(update={"categorical": ("zip",)})).notes == ()


@pytest.mark.parametrize("words", [("True", "False"), ("TRUE", "false"), (" true ", '"False"')])
def test_labels_and_weights_may_be_booleans(both, words):
    yes, no = words
    spec = SPEC.model_copy(update={"weight": "w"})
    found = both(f"q,y,x,w\n1,{no},1,{yes}\n1,{yes},2,{no}\n", spec).dataset
    assert (found.labels.tolist(), found.weights.tolist()) == ([0, 1], [1, 0])
