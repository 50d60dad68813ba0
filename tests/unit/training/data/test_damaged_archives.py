"""Archives that are cut, altered, encrypted or of an unknown kind: an error that names the file, and nothing cached."""

import gzip

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from support.training.archives import PACKERS, as_folder, as_zip, folds, splits_of, text


@pytest.mark.parametrize("pack", ["zip", "tar.gz", "tar"])
def test_damaged_archives_are_errors_of_the_data(tmp_path, pack):
    """Whatever byte is cut or flipped: never an error that is not ours, and never other data."""
    path = PACKERS[pack](folds(), tmp_path)
    whole = path.read_bytes()
    expected = splits_of(path).train.features
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(30):
        content = bytearray(whole)
        if trial % 3 == 0:
            content = content[: rng.integers(1, len(whole))]
        else:
            content[rng.integers(len(whole) // 2 if trial % 3 == 1 else len(whole))] ^= 1 + rng.integers(255)
        path.write_bytes(content)
        try:
            found = splits_of(path).train.features
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert pack == "tar" or np.array_equal(found, expected)  # a plain tar has no checksum over its files
    assert refused > 5


@pytest.mark.parametrize(("place", "change"), [("flags", 0x01), ("method", 99)])
def test_a_zip_that_cannot_be_opened(tmp_path, place, change):
    """Encrypted, and of an unknown compression: one byte in the header of each file and one in the table of contents."""
    path = as_zip(folds(), tmp_path / "set.zip")
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(signature)
        while at >= 0:
            content[at + flags + (2 if place == "method" else 0)] = change
            at = content.find(signature, at + 4)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"set\.zip:Fold1/train\.txt: cannot be read"):
        splits_of(path)


def test_a_member_that_is_damaged_from_its_first_byte(tmp_path):
    path = as_zip(folds(), tmp_path / "set.zip")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Fold1/train.txt", b"Fold1/train.txt\xff\xff", 1)[:-2])
    with pytest.raises(DataError):
        splits_of(path)
    content = bytearray(content)
    content[30 + len("Fold1/train.txt")] = 0xFF  # the first byte of the first file's compressed data
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"set\.zip:Fold1/train\.txt: cannot be read"):
        splits_of(path)


def test_a_truncated_file_leaves_nothing_in_the_cache(tmp_path):
    as_folder({"a.gz": gzip.compress(text(*range(1, 500)))[:-50]}, tmp_path)
    with pytest.raises(DataError, match=r"a\.gz: cannot be read to its end"):
        splits_of(tmp_path / "a.gz")
    assert not list((tmp_path / "cache").glob("*"))
