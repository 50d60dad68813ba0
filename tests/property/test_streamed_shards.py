"""Sources that are streamed into shards give what the readers in memory give, however they are cut and interrupted."""

import gzip
from contextlib import suppress

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listwright.ranking.errors import DataError
from listwright.training.data import cache
from listwright.training.data.letor import text
from listwright.training.data.letor.layout import Reader
from listwright.training.data.shards import shards
from listwright.training.data.shards.rows import Rows
from listwright.training.data.tables import frames, table
from listwright.training.recipe.data import TableData, TableSplit
from support.strategies import scale_examples

FEW = settings(
    max_examples=scale_examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Shards, chunks and batches of a few rows, so that most borders fall inside of queries."""
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "SHARD_BYTES", 150)
    monkeypatch.setattr(text, "CHUNK_BYTES", 90)
    monkeypatch.setattr(frames, "BATCH_ROWS", 3)


class Killed(Exception):
    """In place of a kill."""


def killed_after(monkeypatch, writes):
    """From now on, the writer dies in the middle of a shard, or before the index, after so many."""
    whole, done = shards.atomic_write, []

    def put(path, content, **options):
        if path.name in (shards.STATE, shards.FACTS):
            done.append(path)
            if len(done) > writes:
                raise Killed
        whole(path, content, **options)

    monkeypatch.setattr(shards, "atomic_write", put)
    return lambda: monkeypatch.setattr(shards, "atomic_write", whole)


def same(found, expected):
    assert isinstance(found.features, Rows)
    np.testing.assert_array_equal(found.features[:], expected.features)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    assert found.qids == expected.qids
    assert found.schema == expected.schema
    assert (found.weights is None) == (expected.weights is None)
    if expected.weights is not None:
        np.testing.assert_array_equal(found.weights, expected.weights)


@st.composite
def letor_text(draw, with_qid=True):
    """Some queries, their sizes, and lines of varying width, with comments and blank lines."""
    sizes, lines = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8)), []
    for number, size in enumerate(sizes):
        for _ in range(size):
            pairs = draw(st.lists(st.integers(1, 9), unique=True, max_size=4).map(sorted))
            values = [draw(st.sampled_from(["0.5", "1", "-3e-2", "NULL", "7"])) for _ in pairs]
            qid = f" qid:{draw(st.just(number * 7))}" if with_qid else ""
            line = f"{draw(st.integers(0, 4))}{qid} " + " ".join(f"{i}:{v}" for i, v in zip(pairs, values, strict=True))
            lines += [line + draw(st.sampled_from(["", " # said", " "])), *[""] * draw(st.sampled_from([0, 0, 1]))]
    return sizes, "\n".join(lines) + draw(st.sampled_from(["", "\n"]))


@given(letor_text(), st.integers(0, 3), st.booleans())
@FEW
def test_letor_text_is_the_same_in_shards_even_after_a_kill(tmp_path_factory, monkeypatch, drawn, writes, packed):
    folder = tmp_path_factory.mktemp("letor")
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(folder / "cache"))
    path = folder / "rows.txt"
    content = drawn[1].encode("utf-8-sig" if writes % 2 else "utf-8")
    path.write_bytes(gzip.compress(content) if packed else content)
    revive = killed_after(monkeypatch, writes)
    try:
        Reader(on_disk=True).file(path)
    except Killed:
        assert not [entry for entry in (folder / "cache").iterdir() if not entry.name.startswith(".")]
    revive()
    found = Reader(on_disk=True).file(path)
    same(found, Reader().file(path))
    same(Reader(on_disk=True).file(path), Reader().file(path))  # from the cache


@given(letor_text(with_qid=False), st.integers(0, 3))
@FEW
def test_letor_text_with_group_sizes_is_the_same_in_shards(tmp_path_factory, monkeypatch, drawn, writes):
    folder = tmp_path_factory.mktemp("letor")
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(folder / "cache"))
    path = folder / "rank.train"
    path.write_text(drawn[1])
    path.with_name("rank.train.query").write_text("\n".join(map(str, drawn[0])))
    revive = killed_after(monkeypatch, writes)
    with suppress(Killed):
        Reader(on_disk=True).file(path)
    revive()
    same(Reader(on_disk=True).file(path), Reader().file(path))


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("1 qid:1 1:2\n0 qid:2 1:3\n0 qid:1 1:3\n", None),
        ("1 qid:1 1:2\n0 qid:1 1:x\n", None),
        ("# nothing\n", None),
        ("1 1:2\n0 1:1\n", "1"),
        ("1 1:2\n0 1:1\n", "1\n2"),
        ("1 1:2\n0 1:1\n", "3"),
    ],
)
def test_faults_of_letor_text_are_told_alike(tmp_path, written, groups):
    path = tmp_path / "rows"
    path.write_text(written)
    if groups is not None:
        path.with_name("rows.query").write_text(groups)
    with pytest.raises(DataError) as in_memory:
        Reader().file(path)
    with pytest.raises(DataError) as on_disk:
        Reader(on_disk=True).file(path)
    assert str(on_disk.value) == str(in_memory.value)


@st.composite
def frames_of_queries(draw):
    """Rows of some queries, with everything that a column may be."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    count = sum(sizes)

    def several(values):
        return draw(st.lists(values, min_size=count, max_size=count))

    queries = [f"s{n}" for n, size in enumerate(sizes) for _ in range(size)]
    return pl.DataFrame(
        {
            "search": queries if draw(st.booleans()) else [int(query[1:]) for query in queries],
            "clicked": several(st.integers(0, 2)),
            "price": several(st.none() | st.floats(-5, 5, width=32)),
            "colour": several(st.sampled_from(["red", "blue", None, "7a"])),
            "shop": several(st.integers(1, 4)),
            "stock": several(st.booleans()),
            "heavy": several(st.floats(0, 3)),
            "when": [f"2024-01-{1 + int(query[1:]):02}" for query in queries],
        },
        schema_overrides={"colour": pl.String, "price": pl.Float32},
    )


SPLIT_SOURCES = TableData(qid="q", label="y")

SPEC = TableData(
    qid="search", label="clicked", weight="heavy", categorical=("shop",), split=TableSplit(by="time", column="when")
)


@given(frames_of_queries(), st.sampled_from([".parquet", ".csv", ".csv.gz"]), st.integers(0, 3))
@FEW
def test_a_table_is_the_same_in_shards_even_after_a_kill(tmp_path_factory, monkeypatch, frame, ending, writes):
    folder = tmp_path_factory.mktemp("table")
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(folder / "cache"))
    path = folder / f"rows{ending}"
    if ending == ".parquet":
        frame.write_parquet(path, row_group_size=4)
    else:
        content = frame.write_csv().encode()
        path.write_bytes(gzip.compress(content) if ending == ".csv.gz" else content)
    revive = killed_after(monkeypatch, writes)
    with suppress(Killed):
        table.read(SPEC, str(path), on_disk=True)
    revive()
    found, expected = table.read(SPEC, str(path), on_disk=True), table.read(SPEC, str(path))
    same(found.dataset, expected.dataset)
    assert found[1:] == expected[1:]
    assert not list((folder / "cache").glob(".columns-*"))


def test_three_tables_are_the_same_in_shards(tmp_path):
    for name, colours in (("train", ["red", "blue"]), ("valid", ["7", "8"]), ("test", ["blue", None])):
        frame = pl.DataFrame({"q": [1, 1, 2, 2], "y": [0, 1, 1, 0], "a": [1.5, 2, 3, 4], "c": colours * 2})
        frame.write_csv(tmp_path / f"{name}.csv")
    sources = [f"{name}={tmp_path}/{name}.csv" for name in ("train", "valid", "test")]
    files = {source.partition("=")[0]: tmp_path / f"{source.partition('=')[0]}.csv" for source in sources}
    spec = TableData(qid="q", label="y", categorical=("c",))
    found, expected = (table._read_splits(spec, files, on_disk, table.SILENT)[0] for on_disk in (True, False))
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"y": [0, None, 1, 0]}, "found None"),
        ({"q": [1, None, 2, 2]}, "the query id is missing"),
        ({"a": [1.0, 2.0, 3.0, 1e39]}, "fits float32"),
        ({"a": ["2024-01-01"] * 4}, "reads as dates"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_faults_of_a_table_are_told_alike(tmp_path, changed, said, ending):
    frame = pl.DataFrame({"q": [1, 1, 2, 2], "y": [0, 1, 1, 0], "a": [1.5, 2, 3, 4]} | changed)
    path = tmp_path / f"rows.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    told = []
    for on_disk in (False, True):
        with pytest.raises(DataError, match=said) as raised:
            table.read(TableData(qid="q", label="y"), str(path), on_disk=on_disk)
        told.append(str(raised.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("content", ["q,y,a\n1,0,1\n1,1\n", "q,y,a\n1,0,1,4\n", "q,q,a\n1,0,1\n", "q,y,a\n"])
def test_broken_lines_of_csv_are_told_alike(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    told = []
    for on_disk in (False, True):
        with pytest.raises(DataError) as raised:
            table.read(TableData(qid="q", label="y"), str(path), on_disk=on_disk)
        told.append(str(raised.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_killed_reading_of_a_table_goes_on_where_it_was(tmp_path, monkeypatch, ending):
    numbers = [float(n) for n in range(60)]
    frame = pl.DataFrame({"q": [n // 3 for n in range(60)], "y": [0, 1, 2] * 20, "a": numbers, "b": numbers})
    path = tmp_path / f"rows.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    revive = killed_after(monkeypatch, 2)
    with pytest.raises(Killed):
        table.read(SPLIT_SOURCES, str(path), on_disk=True)
    revive()
    begun, batches = [], frames.ColumnFile.batches
    monkeypatch.setattr(frames.ColumnFile, "batches", lambda self, first: begun.append(first) or batches(self, first))
    same(table.read(SPLIT_SOURCES, str(path), on_disk=True).dataset, table.read(SPLIT_SOURCES, str(path)).dataset)
    assert 0 < begun[0] < 60


def test_damaged_files_are_errors(tmp_path):
    frame = pl.DataFrame({"q": [1, 1, 2, 2] * 500, "y": [0, 1, 1, 0] * 500, "a": range(2000)}).sort("q")
    frame.write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    lines = "".join(f"1 qid:{n} 1:{n}\n" for n in range(2000))
    (tmp_path / "rows.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("rows.parquet", "rows.csv.gz", "rows.txt.gz"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(DataError, match=f"{name}.*: cannot be read"):
            Reader(on_disk=True).file(path) if ".txt" in name else table.read(SPLIT_SOURCES, str(path), on_disk=True)


def test_a_csv_file_without_room_for_its_columns_is_told(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    pl.DataFrame({"q": [1, 1, 2, 2], "y": [0, 1, 1, 0], "a": [1.5, 2, 3, 4]}).write_csv(path)

    def full(*_, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", full)
    with pytest.raises(DataError, match="no room is left on this disk"):
        table.read(TableData(qid="q", label="y"), str(path), on_disk=True)
    assert not list(cache.cache_folder().glob(".columns-*"))


def test_queries_whose_rows_stand_apart_are_refused_by_name(tmp_path):
    path = tmp_path / "rows.csv"
    pl.DataFrame({"q": ["a", "b", "b", "a"], "y": [0, 1, 1, 0], "a": [1.5, 2, 3, 4]}).write_csv(path)
    with pytest.raises(DataError, match=r"rows\.csv, line 5, column q: query 'a' comes back here") as raised:
        table.read(TableData(qid="q", label="y"), str(path), on_disk=True)
    assert "sort the table by 'q', or read it into memory with --shards never" in str(raised.value)
