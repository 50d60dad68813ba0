"""A CSV or Parquet file of the test's own, read."""

import pytest

from listwright.training.data.tables.table import read
from support.training.own_table import SPEC


@pytest.fixture
def table(tmp_path):
    def write(text, spec=SPEC, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(spec, str(path))[0]

    return write


@pytest.fixture
def parquet(tmp_path):
    def write(frame, spec=SPEC):
        path = tmp_path / "t.parquet"
        frame.write_parquet(path)
        return read(spec, str(path))[0]

    return write
