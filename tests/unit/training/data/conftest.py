"""What is parsed is kept in a folder of the test's own."""

import pytest


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
