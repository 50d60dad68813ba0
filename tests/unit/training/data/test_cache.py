"""The cache of parsed text: used while the source is the same, never trusted when it is not what was written."""

import json
import logging
import os
import shutil

import numpy as np
import pytest

from listwright.training.data import cache
from listwright.training.data.dataset import Dataset
from listwright.training.data.letor.text import letor_schema

FILES = ["features.npy", "labels.npy", "offsets.npy", "facts.json"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    cache._warn_once.cache_clear()
    return tmp_path / "cache"


def dataset():
    features = np.float32([[1, np.nan], [3, 4], [5, 6]])
    return Dataset(features, np.int32([1, 0, 2]), np.int64([0, 2, 3]), ("a", "7"), letor_schema(2))


class Source:
    """Counts how often it was parsed."""

    parsed = 0

    def __call__(self):
        self.parsed += 1
        return dataset()


def same(one, two):
    return (
        np.array_equal(one.features, two.features, equal_nan=True)
        and one.features.dtype == two.features.dtype == np.float32
        and np.array_equal(one.labels, two.labels)
        and np.array_equal(one.offsets, two.offsets)
        and (one.qids, one.schema) == (two.qids, two.schema)
    )


def test_the_second_time_nothing_is_parsed():
    source = Source()
    first, second = cache.cached("d1", "a.txt", source), cache.cached("d1", "a.txt", source)
    assert source.parsed == 1
    assert same(first, second)


def test_another_source_or_parser_is_another_entry(monkeypatch):
    source = Source()
    for digest in ("d1", "d2", "d1/train.txt"):
        cache.cached(digest, "a.txt", source)
    assert source.parsed == 3
    monkeypatch.setattr(cache, "PARSER_VERSION", cache.PARSER_VERSION + 1)
    cache.cached("d1", "a.txt", source)
    assert source.parsed == 4


def test_the_hash_of_the_source_lies_beside_it(folder):
    cache.cached("d1", "a.txt", Source())
    (entry,) = folder.iterdir()
    facts = json.loads((entry / "facts.json").read_text())
    assert (facts["digest"], facts["source"]) == ("d1", "a.txt")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap", "remove"])
def test_a_damaged_entry_is_parsed_again_and_mended(folder, caplog, file, harm):
    source = Source()
    cache.cached("d1", "a.txt", source)
    (entry,) = folder.iterdir()
    path = entry / file
    content = path.read_bytes()
    if harm == "remove":
        path.unlink()
    elif harm == "swap":
        path.write_bytes((entry / FILES[FILES.index(file) - 1]).read_bytes())
    else:
        flipped = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
        path.write_bytes({"flip": flipped, "cut": content[:-2], "empty": b""}[harm])
    assert same(cache.cached("d1", "a.txt", source), dataset())
    assert source.parsed == 2
    assert same(cache.cached("d1", "a.txt", source), dataset())
    assert source.parsed == 2
    assert "is damaged" in caplog.text


def test_what_was_found_beside_comes_back_and_is_not_trusted_either(folder, caplog):
    beside = {"times": [1, 2.5, "2024-05-01"]}
    assert cache.cached_with("d1", "a.csv", lambda: (dataset(), beside))[1] == beside
    found = cache.cached_with("d1", "a.csv", lambda: pytest.fail("parsed again"))
    assert same(found[0], dataset())
    assert found[1] == beside
    (entry,) = folder.iterdir()
    facts = (entry / "facts.json").read_text()
    (entry / "facts.json").write_text(facts.replace("2024-05-01", "2023-05-01"))
    assert cache.cached_with("d1", "a.csv", lambda: (dataset(), beside))[1] == beside
    assert "is damaged" in caplog.text


def test_a_renamed_query_is_damage_too(folder):
    source = Source()
    cache.cached("d1", "a.txt", source)
    (entry,) = folder.iterdir()
    facts = (entry / "facts.json").read_text()
    (entry / "facts.json").write_text(facts.replace('"7"', '"8"'))
    assert cache.cached("d1", "a.txt", source).qids == ("a", "7")


def test_what_was_not_read_to_its_end_is_not_kept(folder):
    def broken():
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        cache.cached("d1", "a.txt", broken)
    assert not folder.exists()


def test_a_write_that_fails_leaves_nothing_behind(folder, monkeypatch, caplog):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np, "save", full)
    assert same(cache.cached("d1", "a.txt", Source()), dataset())
    assert list(folder.iterdir()) == []
    assert "No space left on device" in caplog.text


def test_a_cache_that_cannot_be_written_is_one_warning(folder, caplog):
    folder.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        for digest in ("d1", "d2", "d3"):
            assert same(cache.cached(digest, "a.txt", Source()), dataset())
    assert len(caplog.records) == 1
    assert "set LISTWRIGHT_CACHE to a folder that can be written" in caplog.text


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LISTWRIGHT_CACHE")
    assert cache.cache_folder() == tmp_path / "xdg" / "listwright"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert cache.cache_folder() == tmp_path / "me" / ".cache" / "listwright"


def test_an_entry_written_meanwhile_by_another_process(folder, monkeypatch):
    """Both parse, one is first; whoever comes later finds a whole entry."""
    source = Source()

    before = []

    def parse():
        cache.cached("d1", "a.txt", source)
        before.extend(entry.stat().st_ino for entry in folder.iterdir())
        return source()

    assert same(cache.cached("d1", "a.txt", parse), dataset())
    assert [entry.stat().st_ino for entry in folder.iterdir()] == before  # someone may be reading it
    assert same(cache.cached("d1", "a.txt", source), dataset())
    assert source.parsed == 2
    assert len(os.listdir(folder)) == 1  # noqa: PTH208
    shutil.rmtree(folder)
