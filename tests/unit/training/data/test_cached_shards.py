"""Shards in the cache: written again when they were damaged, and gone on with when the disk was full."""

import json

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.training.data import cache
from listwright.training.data.letor import text
from listwright.training.data.letor.layout import Reader
from listwright.training.data.shards import shards


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Shards and chunks of a few rows."""
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "SHARD_BYTES", 150)
    monkeypatch.setattr(text, "CHUNK_BYTES", 90)


def same(found, expected):
    np.testing.assert_array_equal(found.features[:], expected.features)
    assert found.qids == expected.qids


def test_shards_that_were_damaged_are_written_again(tmp_path, caplog):
    path = tmp_path / "rows.txt"
    path.write_text("1 qid:1 1:2\n0 qid:1 1:3\n")
    Reader(on_disk=True).file(path)
    (rows,) = cache.cache_folder().glob("*/rows-00001.f32")
    rows.write_bytes(b"12345678")
    same(Reader(on_disk=True).file(path), Reader().file(path))
    assert "reading the source again" in caplog.text


def test_a_full_disk_is_told_and_what_is_written_stays(tmp_path, monkeypatch):
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"1 qid:{n} 1:2 9:4\n" for n in range(40)))
    whole, shards_written = shards.atomic_write, []

    def full(target, content, **options):
        if target.name == shards.STATE and len(json.loads(content)["shards"]) > 3:
            raise OSError(28, "No space left on device")
        shards_written.append(target)
        whole(target, content, **options)

    monkeypatch.setattr(shards, "atomic_write", full)
    with pytest.raises(DataError, match="no room is left on this disk: make some, or set LISTWRIGHT_CACHE"):
        Reader(on_disk=True).file(path)
    monkeypatch.setattr(shards, "atomic_write", whole)
    assert len(shards_written) == 3
    (partial,) = cache.cache_folder().glob(".*.partial")
    before = (partial / "rows-00001.f32").stat().st_mtime_ns
    same(Reader(on_disk=True).file(path), Reader().file(path))
    (kept,) = cache.cache_folder().glob("*/rows-00001.f32")
    assert kept.stat().st_mtime_ns == before  # not written again


def test_what_was_stopped_just_before_its_name_is_not_read_again(tmp_path, monkeypatch):
    path = tmp_path / "rows.txt"
    path.write_text("1 qid:1 1:2\n0 qid:1 1:3\n")

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            Reader(on_disk=True).file(path)
    (partial,) = cache.cache_folder().glob(".*.partial")
    before = (partial / "rows-00001.f32").stat().st_mtime_ns
    same(Reader(on_disk=True).file(path), Reader().file(path))
    (kept,) = cache.cache_folder().glob("*/rows-00001.f32")
    assert kept.stat().st_mtime_ns == before
