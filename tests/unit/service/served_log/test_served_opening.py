"""Whether there is a log, and faults of its settings that are told before anything is loaded."""

from pathlib import Path

import pytest

from listwright.service import served_log
from listwright.service.app import create_app
from listwright.service.settings import Settings


def settings(**more):
    return Settings(bundle=Path("models/demo/1"), **more)


def test_there_is_none_unless_a_setting_names_one(tmp_path):
    assert create_app(settings()).service.served_log is None
    assert served_log.settings_fault(settings()) is None
    log = create_app(settings(served_log=tmp_path)).service.served_log
    assert log is not None
    log.close()


def test_the_folder_is_made(tmp_path):
    folder = tmp_path / "a" / "b"
    assert served_log.settings_fault(settings(served_log=folder)) is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_in_place_of_the_folder_is_a_fault(tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in served_log.settings_fault(settings(served_log=tmp_path / "file"))
    assert str(tmp_path / "file") in served_log.settings_fault(settings(served_log=tmp_path / "file" / "below"))


def test_an_address_of_another_scheme_is_a_fault_that_does_not_repeat_it():
    fault = served_log.settings_fault(settings(served_stream="http://me:secret@host/"))
    assert "'http'" in fault
    assert "secret" not in fault
    assert "secret" not in (fault := served_log.settings_fault(settings(served_stream="redis://:secret@host:70000/")))
    assert "port" in fault
    for url in (
        "redis://:secret@[::1/0",
        "redis://:pa[secret]w@host:1/0",
        "redis://:secret\N{FULLWIDTH QUESTION MARK}@host:1",
    ):
        assert "secret" not in (fault := served_log.settings_fault(settings(served_stream=url)))
        assert "cannot be read" in fault
    assert served_log.settings_fault(settings(served_stream="redis://host:1/0")) is None


@pytest.mark.parametrize(("name", "missing"), [("served_log", "fastavro"), ("served_stream", "redis")])
def test_a_missing_library_is_a_fault(tmp_path, monkeypatch, name, missing):
    monkeypatch.setattr(served_log, "find_spec", lambda module: None if module == missing else object())
    value = tmp_path if name == "served_log" else "redis://host"
    assert f"{name.upper()} needs {missing}" in served_log.settings_fault(settings(**{name: value}))
