"""The command that writes synthetic data: three kinds of file with the same rows, whole or not at all."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.commands import generate
from listwright.training.console.progress import SILENT
from listwright.training.data.letor import text
from listwright.training.data.synthetic import stream as synthetic

SIZES = ("--queries", "40", "--features", "12", "--length", "6")


def run(out, *more):
    return generate.main([*SIZES, "--out", str(out), *more])


def test_all_kinds_of_file_hold_the_same_rows(tmp_path, capsys):
    for ending in synthetic.ENDINGS:
        assert run(tmp_path / f"rows{ending}") == 0
    parquet, csv = pl.read_parquet(tmp_path / "rows.parquet"), pl.read_csv(tmp_path / "rows.csv")
    assert parquet.columns == ["qid", "label", *(f"f{d}" for d in range(1, 13))]
    with (tmp_path / "rows.txt").open("rb") as stream:
        letor = text.read(stream, "rows.txt")
    features = parquet.select(pl.exclude("qid", "label")).to_numpy()
    np.testing.assert_array_equal(csv.select(pl.exclude("qid", "label")).to_numpy().astype(np.float32), features)
    np.testing.assert_array_equal(letor.features, features)
    assert np.isnan(features).any()
    assert letor.labels.tolist() == parquet["label"].to_list() == csv["label"].to_list()
    assert np.repeat(np.array(letor.qids, dtype=int), letor.lengths).tolist() == parquet["qid"].to_list()
    assert f"{parquet.height:,} rows of 40 lists" in capsys.readouterr().out


@pytest.mark.parametrize("ending", synthetic.ENDINGS)
def test_pieces_of_any_size_hold_the_same_rows(tmp_path, monkeypatch, ending):
    run(tmp_path / f"whole{ending}")
    for limit, cells in (("_TEXT_CELLS", 100), ("_GROUP_ROWS", 7)):
        monkeypatch.setattr(synthetic, limit, cells)
    run(tmp_path / f"pieces{ending}")
    whole, pieces = (tmp_path / f"{name}{ending}" for name in ("whole", "pieces"))
    if ending == ".parquet":
        assert pl.read_parquet(whole).equals(pl.read_parquet(pieces))
        assert pieces.stat().st_size > whole.stat().st_size  # of more groups
    else:
        assert whole.read_bytes() == pieces.read_bytes()


def test_the_same_options_give_the_same_file(tmp_path):
    for name in ("a.parquet", "b.parquet"):
        run(tmp_path / name)
    run(tmp_path / "c.parquet", "--seed", "1")
    a, b, c = ((tmp_path / f"{name}.parquet").read_bytes() for name in "abc")
    assert a == b != c


def test_a_file_is_not_written_over(tmp_path, capsys):
    out = tmp_path / "rows.csv"
    out.write_text("mine")
    assert run(out) == 1
    assert "exists already" in capsys.readouterr().out
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--queries", "0"), "--queries 0: expected 1 or more"),
        (("--seed", "-1"), "--seed -1: expected 0 or more"),
        (("--longest", "-1"), "--longest -1: expected 1"),
        (("--features", "1000000"), "say --longest 134 or less"),
    ],
)
def test_a_number_without_sense_is_refused(tmp_path, capsys, more, said):
    assert run(tmp_path / "rows.csv", *more) == 1
    assert said in capsys.readouterr().out


def test_a_name_of_no_known_kind_is_refused(tmp_path, capsys):
    assert run(tmp_path / "rows.xlsx") == 1
    assert ".parquet, .csv, .txt" in capsys.readouterr().out


@pytest.mark.parametrize("ending", synthetic.ENDINGS)
def test_an_interruption_leaves_no_file(tmp_path, monkeypatch, capsys, ending):
    def interrupted(*_, **__):
        yield from list(blocks(5, 12))
        raise KeyboardInterrupt

    blocks = synthetic.blocks
    monkeypatch.setattr(synthetic, "blocks", interrupted)
    assert run(tmp_path / f"rows{ending}") == 130
    assert "no file was written" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path, monkeypatch, capsys):
    def full(*_):
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"x")

    monkeypatch.setattr(synthetic, "_write_table", full)
    assert run(tmp_path / "rows.csv") == 1
    assert "no room is left on this disk" in capsys.readouterr().out


def test_a_file_that_another_process_writes_meanwhile_stays(tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    write_table = synthetic._write_table

    def write_after_the_other(*words):
        write_table(*words)
        out.write_text("of another process\n")

    monkeypatch.setattr(synthetic, "_write_table", write_after_the_other)
    with pytest.raises(RecipeError, match="exists already"):
        synthetic.write(out, 5, 3, length=4, longest=6, seed=0, progress=SILENT)
    assert [path.read_text() for path in tmp_path.rglob("*")] == ["of another process\n"]
