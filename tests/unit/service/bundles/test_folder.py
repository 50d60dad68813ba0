"""The models folder: pointers are followed, or it is said why not."""

import os

import pytest

from listwright.service.bundles import folder


def put(root, name, **pointers):
    (root / name).mkdir(exist_ok=True)
    for pointer, text in pointers.items():
        (root / name / pointer).write_bytes(text)


def test_pointers_are_read(tmp_path):
    put(tmp_path, "shop-eu", CURRENT=b"8\n")
    put(tmp_path, "shop-us", CURRENT=b"\xef\xbb\xbf2026-11-21.1\r\n")
    put(tmp_path, "shop", ALIAS=b"shop-eu\r\n")
    put(tmp_path, "not-yet")
    put(tmp_path, "lost+found", CURRENT=b"1")
    (tmp_path / "README.md").touch()
    found = folder.read(tmp_path)
    assert found.versions == {"shop-eu": "8", "shop-us": "2026-11-21.1"}
    assert found.aliases == {"shop": "shop-eu"}
    assert found.faults == {}


@pytest.mark.parametrize("text", [b"", b"\n", b"../7", b"7\n8", b"a/b", b".hidden", b"\xff\xfe7", b"7" * 101, b"\0"])
@pytest.mark.parametrize("pointer", ["CURRENT", "ALIAS"])
def test_what_is_no_name_is_a_fault(tmp_path, pointer, text):
    put(tmp_path, "shop", **{pointer: text})
    found = folder.read(tmp_path)
    assert f"{pointer} holds no name of a folder, but {len(text)} bytes" in found.faults["shop"]
    assert not found.versions
    assert not found.aliases


@pytest.mark.parametrize("pointer", ["CURRENT", "ALIAS"])
def test_the_content_of_what_is_no_pointer_is_never_told(tmp_path, pointer):
    put(tmp_path, "shop")
    (tmp_path / "shop" / pointer).write_text("password: hunter2\n")
    put(tmp_path, "travel")
    (tmp_path.parent / f"{tmp_path.name}-secret").write_text("hunter2\n")
    (tmp_path / "travel" / pointer).symlink_to(f"../../{tmp_path.name}-secret")
    found = folder.read(tmp_path)
    assert "is a link that leads out of its folder" in found.faults["travel"]
    assert "hunter2" not in str(found)


def test_a_pointer_that_nobody_writes_to_is_not_waited_for(tmp_path):
    put(tmp_path, "shop")
    os.mkfifo(tmp_path / "shop" / "CURRENT")
    assert folder.read(tmp_path).faults == {
        "shop": "CURRENT is not a plain file: write the name into a plain file here, in one step"
    }


def test_a_link_inside_is_followed(tmp_path):
    """As Kubernetes mounts a ConfigMap; a folder of a name may itself lie elsewhere."""
    elsewhere = tmp_path / "elsewhere" / "shop"
    (elsewhere / "..data").mkdir(parents=True)
    (elsewhere / "..data" / "CURRENT").write_text("7\n")
    (elsewhere / "CURRENT").symlink_to("..data/CURRENT")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "shop").symlink_to(elsewhere)
    assert folder.read(tmp_path / "models").versions == {"shop": "7"}


def test_a_pointer_that_is_a_folder_is_a_fault(tmp_path):
    (tmp_path / "shop" / "CURRENT").mkdir(parents=True)
    assert folder.read(tmp_path).faults == {"shop": "CURRENT cannot be read: Is a directory"}


def test_one_pointer_to_a_name(tmp_path):
    put(tmp_path, "shop", CURRENT=b"7", ALIAS=b"other")
    assert folder.read(tmp_path).faults == {"shop": "there are CURRENT and ALIAS: remove one"}


@pytest.mark.parametrize("target", [b"nowhere", b"a", b"b"])
def test_an_alias_leads_to_a_bundle(tmp_path, target):
    """Not to nothing, itself, or another alias."""
    put(tmp_path, "a", ALIAS=target)
    put(tmp_path, "b", ALIAS=b"shop")
    put(tmp_path, "shop", CURRENT=b"7")
    found = folder.read(tmp_path)
    assert found.faults == {"a": f"ALIAS says {target.decode()!r}, which is the name of no bundle here"}
    assert found.aliases == {"b": "shop"}


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        folder.read(tmp_path / "nowhere")


def test_a_pointer_is_written_in_one_step(tmp_path, monkeypatch):
    put(tmp_path, "shop", CURRENT=b"7")
    folder.point(tmp_path, "shop", "8")
    assert folder.read(tmp_path).versions == {"shop": "8"}
    assert (tmp_path / "shop" / "CURRENT").stat().st_mode & 0o777 == 0o644

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.point(tmp_path, "shop", "9")
    assert folder.read(tmp_path).versions == {"shop": "8"}
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["CURRENT"], "nothing is left behind"


def test_the_state_changes_with_the_pointer_and_with_the_bundle(tmp_path):
    put(tmp_path, "shop", CURRENT=b"7")
    one = folder.state(tmp_path, "shop", "7")
    assert folder.state(tmp_path, "shop", "7") == one
    (tmp_path / "shop" / "7").mkdir()
    (tmp_path / "shop" / "7" / "manifest.json").write_text("{}")
    two = folder.state(tmp_path, "shop", "7")
    folder.point(tmp_path, "shop", "7")
    assert len({one, two, folder.state(tmp_path, "shop", "7")}) == 3
