"""Reading plain files: whatever else is there, nobody waits for it, and nothing outside is read."""

import os
import socket
from pathlib import Path

import pytest

from listwright.ranking import plain_file
from listwright.ranking.errors import DataError
from listwright.ranking.plain_file import NotPlainError


def test_a_plain_file_is_read_whole(tmp_path):
    content = bytes(range(256)) * 1000
    (tmp_path / "file").write_bytes(content)
    assert plain_file.read(tmp_path / "file", len(content)) == content
    (tmp_path / "empty").touch()
    assert plain_file.read(tmp_path / "empty", 0) == b""


def test_a_larger_one_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(NotPlainError, match="has 11 bytes; the limit is 10"):
        plain_file.read(tmp_path / "file", 10)


def test_one_without_a_size_is_bounded_as_well():
    """Files of the kernel's say 0."""
    file = Path("/proc/self/status")
    if not file.exists():
        pytest.skip("there is no /proc here")
    assert b"Pid:" in plain_file.read(file, 2**20)
    with pytest.raises(NotPlainError, match="has more than 10 bytes"):
        plain_file.read(file, 10)


def fifo(path):
    os.mkfifo(path)


def bound(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [fifo, bound, device])
def test_what_is_no_plain_file_is_not_opened(tmp_path, make, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    make(Path("file"))
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    with pytest.raises(NotPlainError, match="is not a plain file"):
        plain_file.read(tmp_path / "file", 100)


@pytest.mark.parametrize("make", [fifo, bound, device, os.mkdir])
def test_what_is_no_plain_file_is_not_waited_for(tmp_path, make, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(Path("file"))
    with pytest.raises(DataError, match=str(tmp_path / "file")):
        plain_file.open_file(tmp_path / "file")
    assert not plain_file.is_plain(tmp_path / "file")


DEEP, LONG = 10**5, 10**4
HOSTILE_JSON = {
    "deep arrays": "[" * DEEP,
    "deep objects": '{"a":' * DEEP,
    "closed": "[" * DEEP + "]" * DEEP,
    "digits": "9" * LONG,
    "digits within": '{"a": [' + "9" * LONG + "]}",
    "no UTF-8": b'"\xff"',
    "words": "nothing",
}
HOSTILE_TOML = {"deep arrays": "a = " + "[" * DEEP, "deep tables": "a = " + "{a=" * DEEP, "digits": f"a = {'9' * LONG}"}


@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_json_that_python_gives_up_on_is_an_error_like_any_other(tmp_path, text):
    with pytest.raises(ValueError, match=r"."):
        plain_file.from_json(text)
    file = tmp_path / "state.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=str(file)):
        plain_file.read_object(file)


@pytest.mark.parametrize("text", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_toml_that_python_gives_up_on_is_an_error_like_any_other(text):
    with pytest.raises(ValueError, match=r"."):
        plain_file.from_toml(text.encode())


def key(parts, part="a"):
    return ".".join([part] * parts)


@pytest.mark.parametrize("part", ["a", "'a = b'", r'"a\" . \""', "1-_"])
@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "[[{}]]", "b = {{ {} = 1 }}", "[t]\n  {} = 1"])
def test_dotted_keys_have_as_many_parts_as_the_limit_and_no_more(line, part):
    most = plain_file.MOST_KEY_PARTS
    assert plain_file.from_toml(line.format(key(most, part)).encode())
    for dots in (key(most + 1, part), key(most + 1, part).replace(".", " . "), key(20_000, part)):
        with pytest.raises(ValueError, match=rf"line \d has a dotted key of more than {most} parts"):
            plain_file.from_toml(line.format(dots).encode())


def test_dots_that_are_no_key_are_not_counted():
    assert (
        plain_file.from_toml(b"a = [" + b"0.5, " * 100 + b"]\nb = '1. 2. 3'\n# see a, b. " + b"... " * 50)["a"]
        == [0.5] * 100
    )


@pytest.mark.parametrize("text", ["a" * 2**20, '"' + '\\"' * 2**19, "'" * 2**20, "a " * 2**19, '" ' * 2**19])
def test_long_lines_without_a_long_key_are_toml_or_not_as_before(text):
    with pytest.raises(ValueError, match=r"Expected|Unterminated"):
        plain_file.from_toml(text.encode())


@pytest.mark.parametrize("text", [b"[1, [2], {}]", "[1, [2], {}]", '["", [[], ""]]'])
def test_values_are_counted_before_json_is_parsed(text, monkeypatch):
    assert plain_file.from_json(text, 5)
    monkeypatch.setattr(plain_file.json, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(ValueError, match="more than 4 values"):
        plain_file.from_json(text, 4)


def test_the_state_of_a_run_is_bounded_in_bytes_and_values(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    file.write_text('{"a": [1, 2, 3]}')
    monkeypatch.setattr(plain_file, "MOST_JSON_BYTES", file.stat().st_size)
    monkeypatch.setattr(plain_file, "MOST_JSON_VALUES", 4)
    assert plain_file.read_object(file) == {"a": [1, 2, 3]}
    file.write_text('{"a": [1, 2,[]]}')
    with pytest.raises(DataError, match="more than 4 values"):
        plain_file.read_object(file)
    file.write_text('{"a":  [1, 2, 3]}')
    with pytest.raises(DataError, match="the limit is 16"):
        plain_file.read_object(file)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_another_encoding_is_called_so(encoding):
    with pytest.raises(ValueError, match="UTF-16"):
        plain_file.to_text("a = 1".encode(encoding))
    with pytest.raises(ValueError, match="UTF-16"):
        plain_file.from_toml("a = 1".encode(encoding))


def test_a_byte_order_mark_says_nothing():
    assert plain_file.to_text(b"\xef\xbb\xbftree\r\n") == "tree\r\n"
    assert plain_file.from_toml(b"\xef\xbb\xbfa = 1") == {"a": 1}
    assert plain_file.from_json(b"\xef\xbb\xbf[1]") == [1]


def test_numbers_that_python_reads_are_read():
    assert plain_file.from_json("9" * 4000) == int("9" * 4000)
    assert plain_file.from_toml(b"a = 0x" + b"f" * 5000)["a"] == 16**5000 - 1


def test_one_that_is_replaced_meanwhile_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    opened = os.open

    def replaced(path, flags):
        (tmp_path / "file").unlink()
        os.mkfifo(tmp_path / "file")
        return opened(path, flags)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(NotPlainError, match="is not a plain file"):
        plain_file.read(tmp_path / "file", 100)


def test_folders_gone_files_and_loops_are_errors_of_the_system(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(IsADirectoryError):
        plain_file.read(tmp_path, 100)
    with pytest.raises(FileNotFoundError):
        plain_file.read(tmp_path / "gone", 100)
    with pytest.raises(OSError, match="Too many levels"):
        plain_file.read(tmp_path / "loop", 100)


def test_links_may_lead_anywhere_inside(tmp_path):
    """As Kubernetes mounts a ConfigMap."""
    (tmp_path / "shop" / "..2026_11_22").mkdir(parents=True)
    (tmp_path / "shop" / "..2026_11_22" / "CURRENT").write_text("7")
    (tmp_path / "shop" / "..data").symlink_to("..2026_11_22")
    (tmp_path / "shop" / "CURRENT").symlink_to("..data/CURRENT")
    assert plain_file.read(tmp_path / "shop" / "CURRENT", 10, inside=(tmp_path / "shop",)) == b"7"


def test_links_that_lead_out_are_refused(tmp_path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "CURRENT").symlink_to("../secret")
    with pytest.raises(NotPlainError, match="leads out"):
        plain_file.read(tmp_path / "shop" / "CURRENT", 10, inside=(tmp_path / "shop",))
    assert plain_file.read(tmp_path / "shop" / "CURRENT", 10, inside=(tmp_path / "shop", tmp_path)) == b"x"
    (tmp_path / "shopping").mkdir()
    (tmp_path / "shopping" / "file").touch()
    (tmp_path / "shop" / "near").symlink_to("../shopping/file")
    with pytest.raises(NotPlainError, match="leads out"):
        plain_file.read(tmp_path / "shop" / "near", 10, inside=(tmp_path / "shop",))
