"""Rows that a worker reads for itself."""

import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.training.scoring.frames import RowRange, read

FRAME = pl.DataFrame({"query": range(1000), "price": [0.5 * n for n in range(1000)], "note": ["x"] * 1000})


@pytest.fixture
def files(tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet", row_group_size=64)
    FRAME.write_ipc(tmp_path / "b.arrow")
    return tmp_path / "a.parquet", tmp_path / "b.arrow"


def test_ranges_of_files_are_read_one_behind_the_other(files):
    parquet, arrow = files
    found = read([RowRange(parquet, 990, 10), RowRange(arrow, 0, 3), RowRange(parquet, 60, 70)], None)
    assert found.equals(pl.concat([FRAME[990:], FRAME[:3], FRAME[60:130]]))


def test_columns_that_are_not_needed_are_not_read(files):
    found = read([RowRange(file, 5, 2) for file in files], frozenset(("note", "query", "absent")))
    assert found.equals(pl.concat([FRAME[5:7], FRAME[5:7]]).drop("price"))


def test_damage_is_an_error_that_names_the_file(files):
    parquet, _ = files
    whole = bytearray(parquet.read_bytes())
    whole[200:2000] = bytes(1800)
    parquet.write_bytes(whole)
    with pytest.raises(DataError, match=r"a\.parquet"):
        read([RowRange(parquet, 0, 1000)], None)
