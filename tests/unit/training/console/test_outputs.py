"""Outputs of commands: files that are refused before the work, and an output that is closed or full."""

import argparse
import errno
import io
import os
import sys

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.console import command
from listwright.training.console.bars import progress_bars
from listwright.training.console.command import check_outputs, run_command, write_output


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working folder, with a file of data and a link to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").write_text("data")
    (tmp_path / "link").symlink_to("rows")
    (tmp_path / "hard").hardlink_to("rows")
    return tmp_path


@pytest.mark.parametrize(
    ("out", "json", "says"),
    [
        ("rows", None, r"^--data and --out name the same file, .*/rows: choose another --out$"),
        ("hard", None, r"^--data and --out name the same file, .*/hard: choose another --out$"),
        (None, "link", r"^--data and --json name the same file, .*/link: choose another --json$"),
        ("page", "../{name}/page", "^--out and --json name the same file, .*/page: choose another --json$"),
        ("no/page", None, "--out .*: there is no folder .*/no; make it first"),
        ("", None, "--out .*: is a folder; choose another name"),
    ],
)
def test_an_output_that_would_overwrite_something_is_refused(folder, out, json, says):
    paths = [path if path is None else folder / path.format(name=folder.name) for path in (out, json)]
    with pytest.raises(RecipeError, match=says):
        check_outputs(dict(zip(("--out", "--json"), paths, strict=True)), {"--data": folder / "rows", "--run": None})


def test_a_file_of_a_folder_of_data_is_not_overwritten(folder):
    for name in ("1.parquet", "numbers.json"):
        (folder / name).write_text("")
    with pytest.raises(RecipeError, match=r"--out .*/1\.parquet: --data reads this file"):
        check_outputs({"--out": folder / "1.parquet"}, {"--data": folder})
    outputs = {"--json": folder / "numbers.json", "--out": folder / "2.parquet"}
    check_outputs(outputs, {"--data": folder})
    with pytest.raises(RecipeError, match=r"--json .*/numbers\.json: BUNDLE reads this file"):
        check_outputs(outputs, {}, [folder])


def test_an_unwritable_folder_is_refused_for_what_is_written_into_it(folder, monkeypatch):
    """As root every folder is writable, but for those of a read-only file system."""
    monkeypatch.setattr(command.os, "access", lambda path, _mode: path != folder)
    with pytest.raises(RecipeError, match=r"--json .*/numbers: .* cannot be written to; choose another folder"):
        check_outputs({"--json": folder / "numbers"}, {})
    os.mkfifo(folder / "fifo")
    check_outputs({"--json": folder / "fifo"}, {"--data": folder / "rows"})


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
@pytest.mark.parametrize("fails", [False, True])
def test_where_nothing_can_be_printed_the_work_goes_on(folder, monkeypatch, number, fails):
    class Unwritable(io.StringIO):
        def write(self, _text):
            raise OSError(number, os.strerror(number))

    def work(_options, console):
        with progress_bars(console) as bars:
            bars.remark("a note")
            bars.begin("Working", 1).end(1)
        console.print("text")
        write_output(folder / "file", lambda: "content", console)
        if fails:
            raise RecipeError("a fault")

    monkeypatch.setattr(sys, "stdout", Unwritable())
    assert run_command(argparse.ArgumentParser(), work, [], interrupted="") == 1
    assert (folder / "file").read_text() == "content"
