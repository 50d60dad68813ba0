"""Offline scoring that is interrupted: by Ctrl-C, a kill, a full disk; finished parts stay."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.commands import score as command
from listwright.training.job_folder import job_folder
from listwright.training.scoring import run as scoring
from listwright.training.scoring.frames import RowRange
from listwright.training.scoring.score import score
from listwright.training.scoring.worker import score_part
from support.training.scored import LENGTHS, job, lists
from support.waiting import until


def stopped_at(monkeypatch, function, asked):
    """Score until this function of the job would begin."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scoring, function, stopped)
        with pytest.raises(KeyboardInterrupt):
            score(asked, jobs=1)


@pytest.mark.nightly
def test_a_job_goes_on_with_the_columns_that_it_began_with(folder, data, monkeypatch):
    stopped_at(monkeypatch, "_publish", job(folder, data, columns=("query",)))
    with pytest.raises(RecipeError, match=r"columns was \['query'\]"):
        score(job(folder, data), jobs=1, resume=True)
    assert score(job(folder, data, columns=("query",)), jobs=1, resume=True) == (171, 5)


@pytest.mark.nightly
def test_finished_parts_are_not_scored_again(folder, data, monkeypatch):
    lists([5] * 40).write_parquet(data)
    whole = score(job(folder, data, out=data.with_name("whole.parquet")), jobs=1)
    seen = []
    begun = scoring._submit

    def counted(workers, part, *rest, **more):
        seen.append(part.number)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return begun(workers, part, *rest, **more)

    monkeypatch.setattr(scoring, "_submit", counted)
    with pytest.raises(KeyboardInterrupt):
        score(job(folder, data), jobs=1)
    kept = len(list(data.with_name(".out.parquet.partial").glob("0*.json")))
    assert 0 < kept < 4
    seen.clear()
    with pytest.raises(RecipeError, match="holds an interrupted job: continue it with --resume"):
        score(job(folder, data), jobs=1)
    for changed in (job(folder, data, strategy="first_stage"), job(folder, data, part_rows=50)):
        with pytest.raises(RecipeError, match="when the job was interrupted, and is"):
            score(changed, jobs=1, resume=True)
    monkeypatch.setattr(scoring, "_submit", begun)
    assert score(job(folder, data), jobs=1, resume=True) == whole
    assert pl.read_parquet(data.with_name("out.parquet")).equals(pl.read_parquet(data.with_name("whole.parquet")))
    with pytest.raises(RecipeError, match="nothing to resume"):
        score(job(folder, data, out=data.with_name("other.csv")), jobs=1, resume=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out"])
def test_a_job_that_stopped_while_its_parts_were_joined_goes_on(folder, data, monkeypatch, name):
    asked, replace = job(folder, data, out=data.with_name(name)), Path.replace

    def stopped(path, target):
        if target == asked.out:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            score(asked, jobs=1)
    assert list(data.with_name(f".{name}.partial").glob("0*.parquet"))
    assert score(asked, jobs=1, resume=True) == (171, 5)
    assert asked.out.exists()


@pytest.mark.nightly
def test_what_is_stopped_before_its_first_part_goes_on(folder, data, monkeypatch):
    stopped_at(monkeypatch, "_submit", job(folder, data))
    assert score(job(folder, data), jobs=1, resume=True) == (171, 5)


def test_the_command_says_to_resume_where_a_part_was_begun(folder, data, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    words = [str(folder), "--data", str(data), "--qid", "query", "--out", str(data.with_name("out.csv")), "--jobs", "1"]
    for function, resumed in (("batches", True), ("inputs", False)):
        with monkeypatch.context() as patch:
            patch.setattr(scoring, function, stopped)
            assert command.main(words) == 130
        assert ("--resume" in capsys.readouterr().out) is resumed
        shutil.rmtree(data.with_name(".out.csv.partial"), ignore_errors=True)


def test_a_job_that_runs_is_not_called_interrupted(folder, data):
    asked = job(folder, data)
    with job_folder(asked.out, {}, resume=False, keep_pattern="*"):
        for resume in (False, True):
            with pytest.raises(RecipeError, match="is in use: another process writes"):
                score(asked, jobs=1, resume=resume)


@pytest.mark.nightly
def test_a_full_disk_is_told_and_the_job_goes_on(folder, data, monkeypatch):
    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(pl.LazyFrame, "sink_parquet", full)
        with pytest.raises(DataError, match="no room is left on this disk: make some, and run the same command"):
            score(job(folder, data), jobs=1)
    assert score(job(folder, data), jobs=1, resume=True) == (171, 5)


def test_data_that_changed_meanwhile_are_noticed(folder, data, monkeypatch):
    stopped_at(monkeypatch, "_publish", job(folder, data))
    lists(LENGTHS, seed=1).write_parquet(data)
    with pytest.raises(RecipeError, match="size and time of data was"):
        score(job(folder, data), jobs=1, resume=True)


def test_data_that_change_while_they_are_scored_are_noticed(folder, data, monkeypatch):
    begun = scoring._submit

    def replaced(*given, **more):
        lists(LENGTHS, seed=1).write_parquet(data)
        return begun(*given, **more)

    monkeypatch.setattr(scoring, "_submit", replaced)
    with pytest.raises(DataError, match="changed while it was scored: delete"):
        score(job(folder, data), jobs=1)
    assert not data.with_name("out.parquet").exists()


@pytest.mark.nightly
def test_a_kill_loses_no_finished_part(folder, tmp_path):
    data = tmp_path / "rows.parquet"
    lists([20] * 60_000).write_parquet(data)
    out, root = tmp_path / "out.parquet", Path(__file__).resolve().parents[4]
    words = [str(folder), "--data", str(data), "--qid", "query", "--out", str(out), "--jobs", "2"]
    with subprocess.Popen([sys.executable, "-m", "listwright", "score", *words], cwd=root) as process:

        def begun():
            assert process.poll() is None, "it was over before it could be killed"
            return len(list(tmp_path.glob(".out.parquet.partial/0*.json"))) > 1

        try:
            until(begun, pause_s=0.005)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert not out.exists()
    assert command.main([*words, "--resume"]) == 0
    found = pl.read_parquet(out)
    assert found.height == 1_200_000
    assert found["note"].to_list() == pl.read_parquet(data)["note"].to_list()


def test_what_a_part_holds_is_written_last(folder, data, monkeypatch, tmp_path):
    """A part that a kill cuts short has no such file, and is scored again."""

    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    lists([2]).write_ipc(tmp_path / "0000000.arrow")
    given = (0, [RowRange(tmp_path / "0000000.arrow", 0, 2)], job(folder, data), "query", str(tmp_path))
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(DataError, match="no room is left on this disk"):
        score_part(*given)
    assert list(tmp_path.glob("*.json")) == []
    monkeypatch.undo()
    for _ in range(2):  # a task that is lost at its very end is run again
        score_part(*given)
        assert json.loads((tmp_path / "0000000.json").read_text())[:2] == [2, 1]
        assert np.isfinite(pl.read_parquet(tmp_path / "0000000.parquet")["score"].to_numpy()).all()
    assert not (tmp_path / "0000000.arrow").exists()
