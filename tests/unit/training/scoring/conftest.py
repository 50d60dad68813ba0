"""A bundle and rows to score."""

import pytest

from support.service.bundles import make_bundle
from support.training.scored import LENGTHS, lists


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", defaults={"price": 0.5})


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.parquet"
    lists(LENGTHS).write_parquet(path)
    return path
