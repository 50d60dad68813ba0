"""Fits whose rows stay on disk: the same bundle as in memory, from every kind of file."""

import json

import pytest

from listwright.training.commands import fit, generate
from listwright.training.specialists import lists
from support.training.tiny import SPECIALISED, TINY

pytestmark = pytest.mark.nightly

TABLE = ("--qid", "qid", "--label", "label")


def made(path, queries=120):
    assert generate.main(["--queries", str(queries), "--features", "12", "--length", "9", "--out", str(path)]) == 0
    return path


def fitted(tmp_path, shards, kind, data, *more, base=TINY):
    """The bundle, but for what says when and how it was made; a recipe of its own makes it small."""
    recipe = tmp_path / "tiny.toml"
    head, rest = base.split("[data]")[0], base.split("[first_stage]")[1]
    recipe.write_text(f'{head}[data]\nkind = "{kind}"\n[first_stage]{rest}')
    out = tmp_path / shards / "1"
    assert fit.main([str(recipe), "--data", *map(str, data), "--out", str(out), "--shards", shards, *more]) == 0
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in ("report.html", "report.json")}
    manifest = json.loads(files.pop("manifest.json"))
    manifest["files"] = [file for file in manifest["files"] if not file["name"].startswith("report")]
    manifest.pop("sha256")  # of all the rest, the time of its making among it
    report = json.loads((out / "report.json").read_text())
    untimed = {name: part for name, part in report.items() if name not in ("repeat", "measured_here")}
    fingerprint = report["repeat"]["data_fingerprint"]
    return files, {**manifest, "created_at": "", "name": ""}, untimed, fingerprint


def same_bundle(tmp_path, kind, data, *more, base=TINY):
    never, always = (fitted(tmp_path, shards, kind, data, *more, base=base) for shards in ("never", "always"))
    assert len(never[0]) >= 3
    for name, content in never[0].items():
        assert always[0][name] == content, name
    assert always[1] == never[1]
    assert always[2] == never[2]
    assert always[3] == never[3]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_gives_the_same_bundle(tmp_path, ending):
    same_bundle(tmp_path, "table", [made(tmp_path / f"rows.{ending}")], *TABLE)


def test_letor_text_gives_the_same_bundle(tmp_path):
    same_bundle(tmp_path, "letor", [made(tmp_path / "rows.txt")])


@pytest.mark.parametrize("block_rows", [lists.BLOCK_ROWS, 200])
def test_specialists_and_router_are_the_same(tmp_path, monkeypatch, block_rows):
    monkeypatch.setattr(lists, "BLOCK_ROWS", block_rows)
    same_bundle(tmp_path, "table", [made(tmp_path / "rows.parquet")], *TABLE, base=SPECIALISED)


def test_qilcm2_on_list_relative_columns_is_the_same(tmp_path):
    base = TINY.replace('kind = "qilcm"', 'kind = "qilcm2"\nrelative = true').replace("hidden = [8]\n", "")
    base = base.replace("trials = 2", 'trials = 1\nrelative = ["z", "rank"]')
    same_bundle(tmp_path, "letor", [made(tmp_path / "rows.txt", 60)], "--model", "qilcm2", base=base)
