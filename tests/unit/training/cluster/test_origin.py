"""A worker takes work only of a command with its own versions and a folder that it sees."""

import os
from dataclasses import replace
from operator import add

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import call, current_origin, pickle_call


def test_work_is_done_in_the_folder_of_the_command_with_one_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    origin = current_origin()
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    assert call(origin, pickle_call(add, 1, 2)) == 3
    assert call(origin, pickle_call(os.getcwd)) == str(tmp_path)
    assert [os.environ[name] for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")] == ["1", "1"]


@pytest.mark.parametrize("name", ["Python", "ray", "listwright"])
def test_another_version_is_told_before_work_is_unpickled(name, monkeypatch):
    origin = current_origin()
    other = replace(origin, versions={**origin.versions, name: "0.0.1"})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(RecipeError, match=rf"has {name} \S.*, and this command has {name} 0\.0\.1: install the same"):
        call(other, b"no pickle")


def test_a_folder_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(RecipeError, match=r"does not see .*/away, the folder of this command: start it in a folder on"):
        call(replace(current_origin(), folder=str(tmp_path / "away")), pickle_call(add, 1, 2))
