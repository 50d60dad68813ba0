"""Whether there is a log, and faults of its settings that are told before anything is loaded."""

from pathlib import Path

import pytest

from listwright.service.served_log import opening
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry


def settings(**more):
    return Settings(bundle=Path("models/demo/1"), **more)


def test_there_is_none_unless_a_setting_names_one(tmp_path):
    assert opening.open_log(settings(), Telemetry()) is None
    assert opening.fault(settings()) is None
    log = opening.open_log(settings(served_log=tmp_path), Telemetry())
    assert log is not None
    log.close()


def test_the_folder_is_made(tmp_path):
    folder = tmp_path / "a" / "b"
    assert opening.fault(settings(served_log=folder)) is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_in_place_of_the_folder_is_a_fault(tmp_path):
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in opening.fault(settings(served_log=tmp_path / "file"))
    assert str(tmp_path / "file") in opening.fault(settings(served_log=tmp_path / "file" / "below"))


def test_an_address_of_another_scheme_is_a_fault_that_does_not_repeat_it():
    fault = opening.fault(settings(served_stream="http://me:secret@host/"))
    assert "'http'" in fault
    assert "secret" not in fault
    assert "secret" not in (fault := opening.fault(settings(served_stream="redis://:secret@host:70000/")))
    assert "port" in fault
    for url in (
        "redis://:secret@[::1/0",
        "redis://:pa[secret]w@host:1/0",
        "redis://:secret\N{FULLWIDTH QUESTION MARK}@host:1",
    ):
        assert "secret" not in (fault := opening.fault(settings(served_stream=url)))
        assert "cannot be read" in fault
    assert opening.fault(settings(served_stream="redis://host:1/0")) is None


@pytest.mark.parametrize(("name", "missing"), [("served_log", "fastavro"), ("served_stream", "redis")])
def test_a_missing_library_is_a_fault(tmp_path, monkeypatch, name, missing):
    monkeypatch.setattr(opening, "find_spec", lambda module: None if module == missing else object())
    value = tmp_path if name == "served_log" else "redis://host"
    assert f"{name.upper()} needs {missing}" in opening.fault(settings(**{name: value}))
