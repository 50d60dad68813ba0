"""Offline scoring: the service's answers to the bit, in the order of the rows, whatever interrupts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, RecipeError, SchemaMismatchError, ScoringError, UnknownStrategyError
from listwright.service.app import create_app
from listwright.service.settings import Settings
from listwright.training import score as command
from listwright.training.scoring import job as scoring
from listwright.training.scoring.job import Job, score
from listwright.training.stored.job_folder import job_folder
from support.service import bundles
from support.service.asgi import asking
from support.service.bundles import CATEGORY, NUMERIC, make_bundle
from support.training.scored import lists
from support.waiting import until

LENGTHS = (1, 7, 120, 3, 40)
"""One list is longer than the cutoff: its tail has no score."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", defaults={"price": 0.5})


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.parquet"
    lists(LENGTHS).write_parquet(path)
    return path


def job(folder, data, **changes):
    out = changes.pop("out", data.with_name("out.parquet"))
    return Job(folder, data, out, **{"qid": "query", "part_rows": 30} | changes)


def answers(folder, frame, names=(*NUMERIC, CATEGORY.name)):
    """What ``POST /rerank`` says of each list: scores, ranks, first-stage scores, strategy."""
    with asking(create_app(Settings(bundle=folder), loaded=bundle.load(folder))) as client:
        for rows in frame.partition_by("query", maintain_order=True):
            features = rows.select(names).rows()
            said = client.post("/rerank", json={"features": [list(row) for row in features]}).json()
            first = {one["index"]: one["first_stage_score"] for one in said["results"]}
            yield from zip(
                said["scores"],
                said["ranks"],
                [first[n] for n in range(len(first))],
                [said["route"]["strategy"]] * len(first),
                strict=True,
            )


@pytest.mark.parametrize("ends", [".parquet", ".csv"])
@pytest.mark.parametrize("given", [".parquet", ".csv"])
def test_rows_keep_their_order_and_scores_are_those_of_the_service_to_the_bit(folder, tmp_path, given, ends):
    frame, data = lists(LENGTHS), tmp_path / f"rows{given}"
    frame.write_parquet(data) if given == ".parquet" else frame.write_csv(data)
    out = tmp_path / f"out{ends}"
    assert score(job(folder, data, out=out), jobs=2) == (171, 5)
    found = pl.read_parquet(out) if ends == ".parquet" else pl.read_csv(out)
    assert found["note"].to_list() == frame["note"].to_list()
    columns = found.select("score", "rank", "first_stage_score", "strategy").rows()
    assert columns == list(answers(folder, frame))
    assert found["score"].null_count() == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, out.name])


def test_letor_text_is_scored_as_the_service_scores_its_numbers(tmp_path, monkeypatch):
    names = ("f1", "f2", "f3")
    monkeypatch.setattr(bundles, "NUMERIC", names)
    monkeypatch.setattr(bundles, "MISSING", "f3")
    numbered = make_bundle(tmp_path / "numbered" / "1", categorical=False)
    values = bundles.rows(np.random.default_rng(0), 171, categorical=False).astype(np.float32)
    ids = np.repeat([f"q{n}" for n in range(len(LENGTHS))], LENGTHS)
    said = [" ".join(f"{d}:{value!r}" for d, value in enumerate(row, 1)) for row in values.tolist()]
    (tmp_path / "rows.txt").write_text("".join(f"1 qid:{qid} {text}\n" for qid, text in zip(ids, said, strict=True)))
    score(Job(numbered, tmp_path / "rows.txt", tmp_path / "out.parquet", part_rows=30), jobs=1)
    found = pl.read_parquet(tmp_path / "out.parquet").select("score", "rank", "first_stage_score", "strategy").rows()
    columns = {name: pl.Series(values[:, d], nan_to_null=True) for d, name in enumerate(names)}
    assert found == list(answers(numbered, pl.DataFrame({"query": ids, **columns}), names))


def test_a_folder_is_scored_into_a_folder_of_parts_and_a_list_may_cross_files(folder, tmp_path):
    frame, data, out = lists(LENGTHS), tmp_path / "days", tmp_path / "scored"
    data.mkdir()
    for n, rows in enumerate((frame[:50], frame[50:])):
        rows.write_parquet(data / f"{n}.parquet")
    assert score(job(folder, data, out=out), jobs=1) == (171, 5)
    found = pl.concat(pl.read_parquet(path) for path in sorted(out.iterdir()))
    assert [path.name for path in sorted(out.iterdir())] == ["0000000.parquet", "0000001.parquet"]
    assert found.select("score", "rank", "first_stage_score", "strategy").rows() == list(answers(folder, frame))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days", "scored"]


def test_a_feature_with_a_default_may_be_absent_and_others_not(folder, data):
    pl.read_parquet(data).drop("price", "bm25").write_parquet(data)
    assert score(job(folder, data), jobs=1).rows == 171
    pl.read_parquet(data).drop("stars").write_parquet(data)
    with pytest.raises(SchemaMismatchError, match="lacks stars"):
        score(job(folder, data, out=data.with_name("o.csv")), jobs=1)


def test_strategy_and_names_of_columns_are_the_callers(folder, data):
    score(job(folder, data, strategy="first_stage", prefix="new_"), jobs=1)
    found = pl.read_parquet(data.with_name("out.parquet"))
    assert set(found["new_strategy"]) == {"first_stage"}
    assert found["new_score"].null_count() == 0
    again = job(folder, data.with_name("out.parquet"), out=data.with_name("o.csv"), prefix="new_")
    with pytest.raises(RecipeError, match="has a column 'new_rank' already: say --prefix"):
        score(again, jobs=1)
    with pytest.raises(UnknownStrategyError, match="nonesuch"):
        score(job(folder, data, strategy="nonesuch", out=data.with_name("o.csv")), jobs=1)


def test_a_failing_stage_is_an_error_and_no_answer(data, tmp_path):
    broken = make_bundle(tmp_path / "shop" / "2", graph="broken")
    pl.read_parquet(data).with_columns(price=0.0).write_parquet(data)
    with pytest.raises(ScoringError, match="query q"):
        score(job(broken, data), jobs=1)
    assert not data.with_name("out.parquet").exists()


def test_finished_parts_are_not_scored_again(folder, data, monkeypatch):
    lists([5] * 40).write_parquet(data)
    whole = score(job(folder, data, out=data.with_name("whole.parquet")), jobs=1)
    seen = []
    begun = scoring._begun

    def counted(workers, part, *rest):
        seen.append(part.number)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return begun(workers, part, *rest)

    monkeypatch.setattr(scoring, "_begun", counted)
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
    monkeypatch.setattr(scoring, "_begun", begun)
    assert score(job(folder, data), jobs=1, resume=True) == whole
    assert pl.read_parquet(data.with_name("out.parquet")).equals(pl.read_parquet(data.with_name("whole.parquet")))
    with pytest.raises(RecipeError, match="nothing to resume"):
        score(job(folder, data, out=data.with_name("other.csv")), jobs=1, resume=True)


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
    assert list(data.with_name(f".{name}.partial").glob("whole*"))
    assert score(asked, jobs=1, resume=True) == (171, 5)
    assert asked.out.exists()


def test_what_is_stopped_before_its_first_part_goes_on(folder, data, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "_begun", stopped)
        with pytest.raises(KeyboardInterrupt):
            score(job(folder, data), jobs=1)
    assert score(job(folder, data), jobs=1, resume=True) == (171, 5)


def test_a_job_that_runs_is_not_called_interrupted(folder, data):
    asked = job(folder, data)
    with job_folder(asked.out, {}, resume=False, kept="*"):
        for resume in (False, True):
            with pytest.raises(RecipeError, match="is in use: another process writes"):
                score(asked, jobs=1, resume=resume)


def test_a_full_disk_is_told_and_the_job_goes_on(folder, data, monkeypatch):
    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(pl.LazyFrame, "sink_parquet", full)
        with pytest.raises(DataError, match="no room is left on this disk: make some, and run the same command"):
            score(job(folder, data), jobs=1)
    assert score(job(folder, data), jobs=1, resume=True) == (171, 5)


def test_data_that_changed_meanwhile_are_noticed(folder, data, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "_publish", stopped)
        with pytest.raises(KeyboardInterrupt):
            score(job(folder, data), jobs=1)
    lists(LENGTHS, seed=1).write_parquet(data)
    with pytest.raises(RecipeError, match="size and time of data was"):
        score(job(folder, data), jobs=1, resume=True)


@pytest.mark.slow
def test_a_kill_loses_no_finished_part(folder, tmp_path):
    data = tmp_path / "rows.parquet"
    lists([20] * 60_000).write_parquet(data)
    out, root = tmp_path / "out.parquet", Path(__file__).resolve().parents[4]
    words = [str(folder), "--data", str(data), "--qid", "query", "--out", str(out), "--jobs", "2"]
    with subprocess.Popen([sys.executable, "-m", "training.score", *words], cwd=root) as process:

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


def test_the_command_says_what_it_wrote_and_what_is_wrong(folder, data, capsys):
    out = data.with_name("o.csv")
    words = [str(folder), "--data", str(data), "--qid", "query", "--out", str(out)]
    assert command.main(words) == 0
    assert "171 rows of 5 lists" in capsys.readouterr().out
    for more, says in (
        ([], "exists already"),
        (["--out", str(out.with_suffix(".xls"))], "expected a name that ends in .parquet or .csv"),
        (["--out", str(out.with_suffix(".parquet")), "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--out", str(out.with_suffix(".parquet")), "--qid", "nobody"], "no column 'nobody'"),
    ):
        assert command.main([*words, *more]) == 1
        assert says in capsys.readouterr().out.replace("\n", " ")


def test_what_a_part_holds_is_written_last(folder, data, monkeypatch, tmp_path):
    """A part that a kill cuts short has no such file, and is scored again."""

    def full(*_, **__):
        raise pl.exceptions.ComputeError("No space left on device (os error 28)")

    lists([2]).write_ipc(tmp_path / "0000000.arrow")
    given = (0, str(folder), "query", "auto", "", str(tmp_path))
    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(DataError, match="no room is left on this disk"):
        scoring._score_part(*given)
    assert list(tmp_path.glob("*.json")) == []
    monkeypatch.undo()
    for _ in range(2):  # a task that is lost at its very end is run again
        scoring._score_part(*given)
        assert json.loads((tmp_path / "0000000.json").read_text()) == [2, 1]
        assert np.isfinite(pl.read_parquet(tmp_path / "0000000.parquet")["score"].to_numpy()).all()
    assert not (tmp_path / "0000000.arrow").exists()
