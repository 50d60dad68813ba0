"""Writing files and folders in one step."""

import errno
import os
import stat
from pathlib import Path

import pytest

from listwright.ranking.atomic_file import atomic_file, atomic_folder, atomic_write, remove


class Stopped(Exception):
    """Ends a block early."""


@pytest.mark.parametrize("content", ["größer\n", "größer\n".encode()])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, content):
    (tmp_path / "file").write_bytes(b"old")
    atomic_write(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == "größer\n".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_until_the_block_ends_the_old_content_stays(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        (hidden,) = tmp_path.glob(".file.*.new")
        assert (hidden.read_bytes(), path.read_bytes()) == (b"new", b"old")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_after_an_error_the_old_content_stays_alone(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with atomic_file(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_two_writers_of_a_file_each_write_a_whole_one(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path) as first:
        first.write(b"first")
        atomic_write(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o600, 0o600), (0o666, 0o666)])
def test_permissions_are_the_given_ones_or_those_that_the_umask_leaves(tmp_path, mode, expected):
    before = os.umask(0o026)
    try:
        atomic_write(tmp_path / "file", b"", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


@pytest.mark.parametrize("sync", [False, True])
def test_a_synced_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch, sync):
    path, synced = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_size, path.exists())))
    atomic_write(path, b"content", sync=sync)
    assert synced == ([(7, False)] if sync else [])


def test_a_fifo_is_written_and_not_replaced(tmp_path):
    """Never try this with a device: where it fails, a file takes the place of the device."""
    fifo, link, arrived = tmp_path / "fifo", tmp_path / "link", []
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    for path in (fifo, link):
        atomic_write(path, b"content", mode=0o600, sync=True)
        arrived.append(os.read(reader, 100))
    os.close(reader)
    assert arrived == [b"content"] * 2
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"fifo", "link"}


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_what_a_shell_opened_is_appended_to(tmp_path, folder):
    path = tmp_path / "file"
    path.write_bytes(b"old ")
    with path.open("ab") as file:
        atomic_write(Path(folder) / str(file.fileno()), b"new")
    assert path.read_bytes() == b"old new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_an_error_of_a_write_names_the_path(tmp_path, number):
    with pytest.raises(OSError, match=f"Errno {number}") as raised, atomic_file(tmp_path / "file"):
        raise OSError(number, os.strerror(number))
    assert raised.value.filename == str(tmp_path / "file")
    assert (raised.type is BrokenPipeError) == (number == errno.EPIPE)


def test_an_error_names_no_hidden_file_and_no_other_path_in_place_of_its_own(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"/folder'$"):
        atomic_write(tmp_path / "folder", b"")
    with pytest.raises(FileNotFoundError, match=r"/gone/file'$"):
        atomic_write(tmp_path / "gone" / "file", b"")
    with pytest.raises(FileNotFoundError, match=r"/other'$"), atomic_file(tmp_path / "file"):
        (tmp_path / "other").read_bytes()


def test_a_folder_appears_when_it_is_whole(tmp_path):
    path, temporary = tmp_path / "folder", tmp_path / ".folder.new"
    temporary.mkdir()
    (temporary / "of a killed process").touch()
    with atomic_folder(path, temporary, mode=0o700) as folder:
        assert folder == temporary
        (folder / "file").touch()
        assert not path.exists()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [str(entry.relative_to(tmp_path)) for entry in tmp_path.rglob("*")] == ["folder", "folder/file"]


def test_after_an_error_a_folder_is_removed(tmp_path):
    def write_half():
        with atomic_folder(tmp_path / "folder", tmp_path / "new") as folder:
            (folder / "file").touch()
            raise Stopped

    with pytest.raises(Stopped):
        write_half()
    assert not list(tmp_path.iterdir())


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    for name in ("link", "absent"):
        remove(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious" / "file").exists()
    remove(tmp_path / "precious")
    assert not list(tmp_path.iterdir())
