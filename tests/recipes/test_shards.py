"""Fits whose rows stay on disk: the same bundle as in memory, from every kind of file."""

import json

import pytest

from listwright.training import fit, generate
from support.training.tiny import TINY

pytestmark = pytest.mark.slow

TABLE = ("--qid", "qid", "--label", "label")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))


def made(path, queries=120):
    assert generate.main(["--queries", str(queries), "--features", "12", "--length", "9", "--out", str(path)]) == 0
    return path


def fitted(tmp_path, shards, kind, data, *more):
    """The bundle, but for what says when and how it was made; a recipe of its own makes it small."""
    recipe = tmp_path / "tiny.toml"
    head, rest = TINY.split("[data]")[0], TINY.split("[first_stage]")[1]
    recipe.write_text(f'{head}[data]\nkind = "{kind}"\n[first_stage]{rest}')
    out = tmp_path / shards / "1"
    assert fit.main([str(recipe), "--data", *map(str, data), "--out", str(out), "--shards", shards, *more]) == 0
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in ("report.html", "report.json")}
    manifest = json.loads(files.pop("manifest.json"))
    manifest["files"] = [file for file in manifest["files"] if not file["name"].startswith("report")]
    manifest.pop("sha256")  # of all the rest, the time of its making among it
    report = json.loads((out / "report.json").read_text())
    untimed = {name: part for name, part in report.items() if name not in ("seconds", "repeat", "measured_here")}
    fingerprint = report["repeat"]["data_fingerprint"]
    return files, {**manifest, "created_at": "", "name": ""}, untimed, fingerprint


def same_bundle(tmp_path, kind, data, *more):
    never, always = (fitted(tmp_path, shards, kind, data, *more) for shards in ("never", "always"))
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
