"""Files that grow by blocks."""

import errno
import os

import pytest

from listwright.ranking.served_log import files
from listwright.ranking.served_log.record import columns_of
from listwright.service.served_log import folder as module
from listwright.service.served_log.folder import OpenFile
from support.served import block_of, served_record

COLUMNS = columns_of(served_record())


def encoded(*numbers):
    return block_of(*map(served_record, numbers))


def ids(path):
    return [record.query_id for record in files.records([path])]


def test_a_file_is_readable_after_each_block_and_gets_its_name_at_the_end(tmp_path):
    file = OpenFile(tmp_path, COLUMNS, 0o600)
    assert file.path.name.endswith(".avro.part")
    assert ids(file.path) == []
    size = file.append(encoded(0, 1))
    assert (ids(file.path), file.records) == (["query-0", "query-1"], 2)
    assert file.size == file.path.stat().st_size > size
    file.append(encoded(2))
    file.finish()
    (path,) = tmp_path.iterdir()
    assert path.name == file.path.name.removesuffix(".part")
    assert ids(path) == ["query-0", "query-1", "query-2"]


def test_a_file_without_records_is_removed(tmp_path):
    OpenFile(tmp_path, COLUMNS, 0o600).finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_the_mode_does_not_depend_on_the_umask(tmp_path, mode):
    before = os.umask(0o077)
    try:
        file = OpenFile(tmp_path, COLUMNS, mode)
    finally:
        os.umask(before)
    assert file.path.stat().st_mode & 0o777 == mode
    file.finish()


def test_short_writes_go_on_where_they_stopped(tmp_path, monkeypatch):
    written = os.writev

    def a_little(descriptor, parts):
        return os.write(descriptor, bytes(parts[0])[:7]) if parts else written(descriptor, parts)

    monkeypatch.setattr(module.os, "writev", a_little)
    file = OpenFile(tmp_path, COLUMNS, 0o600)
    file.append(encoded(0, 1, 2))
    file.finish()
    assert ids(next(tmp_path.iterdir())) == ["query-0", "query-1", "query-2"]


def test_a_block_of_many_records_is_written_whole(tmp_path):
    file = OpenFile(tmp_path, COLUMNS, 0o600)
    file.append(encoded(*range(700)))
    file.finish()
    assert ids(next(tmp_path.iterdir())) == [f"query-{number}" for number in range(700)]


def test_a_block_that_fails_in_the_middle_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = OpenFile(tmp_path, COLUMNS, 0o600)
    file.append(encoded(0))

    def half(descriptor, parts):
        os.write(descriptor, b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module.os, "writev", half)
        with pytest.raises(OSError, match="No space"):
            file.append(encoded(1))
    file.append(encoded(2))
    file.finish()
    assert ids(next(tmp_path.iterdir())) == ["query-0", "query-2"]


def test_a_file_that_cannot_begin_leaves_nothing(tmp_path, monkeypatch):
    def fail(descriptor, parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "writev", fail)
    with pytest.raises(OSError, match="No space"):
        OpenFile(tmp_path, COLUMNS, 0o600)
    assert list(tmp_path.iterdir()) == []
