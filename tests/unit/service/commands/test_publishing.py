"""``listwright publish``: the same bundle under another name."""

import shutil

import numpy as np
import pytest

from listwright.command import main as listwright
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError
from listwright.service.bundles import folder
from listwright.service.commands import publish as publishing
from support.service.bundles import make_bundle, rows


@pytest.fixture
def challenger(tmp_path):
    return make_bundle(tmp_path / "models" / "shop-next" / "1")


def test_the_copy_has_the_new_name_and_ranks_as_before(challenger, capsys):
    out = challenger.parents[1] / "shop" / "2"
    assert listwright(["publish", str(challenger), str(out), "--current"]) == 0
    before, after = bundle.load(challenger), bundle.load(out)
    assert (after.manifest.name, after.manifest.version) == ("shop", "2")
    assert after.manifest.files == before.manifest.files
    candidates = CandidateList(rows(np.random.default_rng(0), 9))
    assert np.array_equal(after.reranker.rerank(candidates).scores, before.reranker.rerank(candidates).scores)
    assert folder.read(challenger.parents[1]).versions == {"shop": "2"}
    assert "shop/2" in capsys.readouterr().out


def test_a_version_that_is_there_stays(challenger, capsys):
    out = make_bundle(challenger.parents[1] / "shop" / "2")
    before = (out / "manifest.json").read_bytes()
    assert publishing.main([str(challenger), str(out), "--current"]) == 1
    assert (out / "manifest.json").read_bytes() == before
    assert "exists already" in capsys.readouterr().err
    assert not (out.parent / "CURRENT").exists()


def test_an_altered_bundle_is_refused_and_nothing_is_left(challenger):
    out = challenger.parents[1] / "shop" / "2"
    (challenger / "first_stage.txt").write_text("tree\n")
    with pytest.raises(BundleError):
        publishing.publish_as(challenger, out)
    assert not out.parent.exists()


def test_a_file_that_changes_while_it_is_copied_is_noticed(challenger, monkeypatch):
    out, copied = challenger.parents[1] / "shop" / "2", shutil.copyfile

    def altered(source, target):
        copied(source, target)
        if target.name == "golden.jsonl":
            target.write_text("")

    monkeypatch.setattr(publishing.shutil, "copyfile", altered)
    with pytest.raises(BundleError):
        publishing.publish_as(challenger, out)
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["-shop/1", "shop/.2", "shop/2 b"])
def test_a_name_that_no_bundle_could_have_is_refused(challenger, name, capsys):
    assert publishing.main([str(challenger), str(challenger.parents[1] / name)]) == 1
    assert name in capsys.readouterr().err
    assert not (challenger.parents[1] / name).exists()


def test_of_two_that_publish_the_same_version_at_once_one_succeeds_and_the_other_says_why(challenger, monkeypatch):
    out, copy = challenger.parents[1] / "shop" / "2", shutil.copyfile

    def copy_after_the_other(source, target):
        if not out.exists():
            monkeypatch.setattr(publishing.shutil, "copyfile", copy)
            publishing.publish_as(challenger, out)
        copy(source, target)

    monkeypatch.setattr(publishing.shutil, "copyfile", copy_after_the_other)
    with pytest.raises(BundleError, match="exists already"):
        publishing.publish_as(challenger, out)
    assert bundle.load(out).manifest.name == "shop"
    assert [path.name for path in out.parent.iterdir()] == ["2"]


def test_a_version_that_appears_at_the_last_moment_stays(challenger, monkeypatch):
    out = make_bundle(challenger.parents[1] / "shop" / "2")
    before = (out / "manifest.json").read_bytes()
    monkeypatch.setattr(bundle.Path, "exists", lambda _: False)
    with pytest.raises(BundleError, match="shop/2: exists already"):
        bundle.publish(challenger, out)
    assert (out / "manifest.json").read_bytes() == before


def test_other_features_than_are_served_now_are_pointed_out(challenger, capsys):
    models = challenger.parents[1]
    make_bundle(models / "shop" / "1", categorical=False)
    assert publishing.main([str(challenger), str(models / "shop" / "2"), "--current"]) == 0
    assert capsys.readouterr().err == ""  # nothing was served before
    folder.point(models, "shop", "1")
    assert publishing.main([str(challenger), str(models / "shop" / "3"), "--current"]) == 0
    assert "+carrier against shop/1" in capsys.readouterr().err
    assert publishing.main([str(challenger), str(models / "shop" / "4"), "--current"]) == 0
    assert capsys.readouterr().err == ""
    assert publishing.main([str(models / "shop" / "1"), str(models / "shop" / "5")]) == 0
    assert capsys.readouterr().err == ""  # it is not served
    assert publishing.main([str(models / "shop" / "1"), str(models / "shop" / "6"), "--current"]) == 0
    assert "-carrier against shop/4" in capsys.readouterr().err
    (models / "shop" / "6" / "manifest.json").write_text("{}")
    assert publishing.main([str(challenger), str(models / "shop" / "7"), "--current"]) == 0
    assert folder.read(models).versions["shop"] == "7"
