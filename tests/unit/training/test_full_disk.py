"""A full disk is an error with a remedy; any other fault stays what it is."""

from pathlib import Path

import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.training.job_folder import disk_full_as_data_error


def test_a_full_disk_is_told(tmp_path):
    with (
        pytest.raises(DataError, match="no room is left on this disk: buy one"),
        disk_full_as_data_error(tmp_path, "buy one"),
    ):
        Path("/dev/full").write_bytes(b"x")


def test_polars_tells_of_a_full_disk_too(tmp_path):
    with pytest.raises(DataError, match="no room is left"), disk_full_as_data_error(tmp_path, "buy one"):
        pl.LazyFrame({"a": range(100_000)}).sink_csv("/dev/full")


def test_other_faults_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError), disk_full_as_data_error(tmp_path, "buy one"):
        (tmp_path / "absent").read_bytes()
