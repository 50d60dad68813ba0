"""``GET /ui/bundle``: what a bundle has for the page, and what becomes of files that are gone or altered."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking import bundle, golden
from listwright.ranking.features import QUANTILE_LEVELS
from listwright.service.ui.routes import About, describe_bundle
from support.service.bundles import make_bundle

DEMO = Path(__file__).resolve().parents[4] / "models" / "demo" / "1"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", specialists=2, margin=0.0, also="mlp")


@pytest.fixture
def altered(shop, tmp_path):
    """Writes other bytes into a file of a copy, after it was loaded."""

    def alter(name, content):
        copy = tmp_path / "shop" / "1"
        copy.mkdir(parents=True)
        for path in shop.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        loaded = bundle.load(copy)
        if content is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(content)
        return loaded

    return alter


def test_golden_lists_stand_there_once_as_a_request_would_send_them(shop):
    loaded = bundle.load(shop)
    recorded = golden.read((shop / "golden.jsonl").read_bytes(), shop / "golden.jsonl")
    found = describe_bundle(loaded)
    assert found.golden_fault is None
    assert [len(one.rows) for one in found.golden] == [1, 2, 3, 5, 8, 12], "each list once, whoever answered it"
    assert len(recorded) > len(found.golden)
    schema = loaded.manifest.feature_schema
    for one, original in zip(found.golden, recorded, strict=False):
        for row, values in zip(one.rows, original.features, strict=True):
            for value, was, feature in zip(row, values, schema.features, strict=True):
                if feature.kind == "categorical":
                    assert (feature.code(value) if value is not None else 0) == was
                elif was is None:
                    assert value is None
                else:
                    assert np.float32(value) == np.float32(was)


def test_the_features_have_what_training_saw():
    found = describe_bundle(bundle.load(DEMO))
    assert tuple(found.quantile_levels) == QUANTILE_LEVELS
    schema = bundle.load(DEMO).manifest.feature_schema
    for one, feature in zip(found.features, schema.features, strict=True):
        assert (one.name, one.kind, tuple(one.categories)) == (feature.name, feature.kind, feature.categories)
        assert one.quantiles == (None if feature.quantiles is None else list(feature.quantiles))
        assert one.required is (not feature.optional)
    assert any(one.quantiles for one in found.features)
    assert any(one.categories for one in found.features)


def test_the_table_is_the_reports_and_without_one_the_manifests(altered):
    loaded = bundle.load(DEMO)
    found = describe_bundle(loaded)
    assert found.held_out_from == "report.json"
    assert {"plain_first_stage", "first_stage", "qilcm"} <= {metric.ranker for metric in found.held_out}
    assert found.titles["qilcm"] == "QILCM"
    assert found.report
    assert found.compared == list(loaded.manifest.choice)
    by_hand = describe_bundle(altered("golden.jsonl", b""))
    assert (by_hand.held_out_from, by_hand.held_out, by_hand.report) == ("manifest.json", [], False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist, although the manifest lists it"),
        (b"", "truncated or replaced"),
        (b"{}", "truncated or replaced"),
    ],
)
def test_golden_lists_that_are_gone_are_said_to_be(altered, content, says):
    found = describe_bundle(altered("golden.jsonl", content))
    assert found.golden == []
    assert found.golden_fault.startswith("golden.jsonl: ")
    assert says in found.golden_fault


def test_golden_lists_of_the_same_length_that_are_others_are_not_shown(altered, shop):
    content = (shop / "golden.jsonl").read_bytes()
    found = describe_bundle(altered("golden.jsonl", content.replace(b"1", b"2", 1)))
    assert found.golden == []
    assert "does not match its sha256" in found.golden_fault


def test_no_path_of_the_machine_is_told(altered, tmp_path):
    loaded = altered("golden.jsonl", None)
    assert str(tmp_path).encode() not in About().of(loaded)


def test_an_answer_is_made_once_and_few_are_kept(shop, monkeypatch):
    made = []
    monkeypatch.setattr(
        "listwright.service.ui.routes.describe_bundle", lambda served: made.append(served) or describe_bundle(served)
    )
    found, loaded = About(), bundle.load(shop)
    assert found.of(loaded) == found.of(loaded) == describe_bundle(loaded).model_dump_json().encode()
    assert len(made) == 1
    for number in range(5):
        other = loaded.manifest.model_copy(update={"sha256": str(number)})
        found.of(bundle.Bundle(loaded.path, other, loaded.reranker))
    found.of(loaded)
    assert len(made) == 7, "the oldest was dropped"


@pytest.mark.parametrize("name", ["golden.jsonl", "report.json"])
def test_a_file_that_comes_back_is_shown_again(tmp_path, name):
    copy = tmp_path / "demo" / "1"
    shutil.copytree(DEMO, copy)
    loaded, about = bundle.load(copy), About()
    (copy / name).rename(copy / "gone")
    lacking = about.of(loaded)
    (copy / "gone").rename(copy / name)
    assert about.of(loaded) == describe_bundle(loaded).model_dump_json().encode() != lacking
    (copy / name).unlink()
    assert about.of(loaded) != lacking, "this one was whole, and is kept"


def test_long_lists_are_left_out_before_a_browser_has_to_hold_them(shop, monkeypatch):
    monkeypatch.setattr("listwright.service.ui.routes.MOST_VALUES", 30)
    assert [len(one.rows) for one in describe_bundle(bundle.load(shop)).golden] == [1, 2, 3]
    monkeypatch.setattr("listwright.service.ui.routes.MOST_VALUES", 10**6)
    monkeypatch.setattr("listwright.service.ui.routes.MOST_LISTS", 2)
    assert [len(one.rows) for one in describe_bundle(bundle.load(shop)).golden] == [1, 2]


def test_many_categories_are_not_all_named(shop, monkeypatch):
    monkeypatch.setattr("listwright.service.ui.routes.MOST_CATEGORIES", 2)
    carrier = describe_bundle(bundle.load(shop)).features[-1]
    assert (carrier.categories, carrier.known) == (["A5", "B2"], 3)
