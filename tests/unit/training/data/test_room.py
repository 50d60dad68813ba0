"""Whether rows fit into memory: the estimate, and what is made of it."""

import gzip

import numpy as np
import polars as pl
import pytest

from listwright.training.data import load
from listwright.training.data.load import available, bytes_of, stays_on_disk
from support.training.progress import RecordedProgress


@pytest.mark.parametrize("name", ["rows.parquet", "rows[1].parquet"])
def test_a_parquet_file_says_itself_how_much_it_holds(tmp_path, name):
    pl.DataFrame({"a": range(1000), "b": range(1000)}).write_parquet(tmp_path / name)
    assert bytes_of(tmp_path / name) == 4 * 2 * 1000


def test_text_is_estimated_by_its_length_packed_or_not(tmp_path):
    values = np.random.default_rng(0).normal(size=(500, 10))
    frame = pl.DataFrame(values.round(6), schema=[f"f{d}" for d in range(10)])
    content = frame.write_csv().encode()
    (tmp_path / "rows.csv").write_bytes(content)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(content))
    for name in ("rows.csv", "rows.csv.gz"):
        assert 4 * values.size / 2 < bytes_of(tmp_path / name) < 4 * values.size * 4
    assert bytes_of(tmp_path) == bytes_of(tmp_path / "rows.csv") + bytes_of(tmp_path / "rows.csv.gz")
    assert bytes_of(tmp_path / "absent") == 0


def test_memory_that_is_free_is_known_here():
    found = available()
    assert found is not None
    assert 2**20 < found < 2**50


@pytest.mark.parametrize(("free", "expected"), [(10**3, True), (10**9, False), (None, False)])
def test_auto_goes_by_what_is_free_and_says_so(tmp_path, monkeypatch, free, expected):
    (tmp_path / "rows.txt").write_text("x" * 1000)
    monkeypatch.setattr(load, "available", lambda: free)
    said = RecordedProgress()
    sources = [f"{name}={tmp_path}/rows.txt" for name in ("train", "valid", "test")]
    assert stays_on_disk(sources, "auto", said) == expected
    assert bool(said.said) == expected
    assert not expected or "--shards never" in said.said[0]


def test_what_is_asked_for_is_done(tmp_path):
    assert stays_on_disk([str(tmp_path)], "always", RecordedProgress())
    assert not stays_on_disk([str(tmp_path)], "never", RecordedProgress())
