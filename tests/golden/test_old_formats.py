"""Bundles of every format version ever written load and answer as they did when they were sealed."""

import json
from pathlib import Path

import pytest

from listwright.ranking import bundle, manifest
from listwright.ranking.manifest import FORMAT_VERSION
from listwright.ranking.relative import KINDS

HERE = Path(__file__).parent


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_a_bundle_of_each_version_is_kept_and_loads(version):
    """Loading checks the hashes and ranks the golden lists again."""
    loaded = bundle.load(HERE / f"format_{version}" / "shop" / "1")
    strategies = {1: "qilcm", 2: "qilcm", 3: "dlcm", 4: "first_stage", 5: "qilcm2", 6: "qilcm", 7: "qilcm"}
    assert loaded.manifest.strategy == strategies[version]
    assert loaded.manifest.protocol.ties == ("input_order" if version < 6 else "shared")
    assert loaded.manifest.feature_schema.names == ("price", "stars", "bm25", "carrier")
    defaults = {feature.name: feature.default for feature in loaded.manifest.feature_schema.features}
    assert [name for name, default in defaults.items() if default is not None] == (
        ["stars", "carrier"] if version == 4 else []
    )


def test_list_relative_columns_and_a_second_network_came_with_format_5():
    manifests = {v: bundle.load(HERE / f"format_{v}" / "shop" / "1").manifest for v in range(1, FORMAT_VERSION + 1)}
    assert {v: len(manifest.relative) for v, manifest in manifests.items()} == {
        1: 0,
        2: 0,
        3: 0,
        4: 0,
        5: 3,
        6: 0,
        7: 8,
    }
    assert [stage.kind for stage in manifests[5].second_stages] == ["qilcm2", "qilcm"]
    assert [stage.kind for stage in manifests[4].second_stages] == ["qilcm"]


def test_a_first_stage_that_stands_alone_is_read_from_before_format_5():
    path = HERE / "format_4" / "shop" / "1" / "manifest.json"
    values = json.loads(path.read_text(encoding="utf-8")) | {"second_stage": None, "strategy": "first_stage"}
    values["sha256"] = manifest._own_hash(values)
    assert manifest.parse(json.dumps(values).encode(), path).second_stages == ()


def test_columns_of_categories_came_with_format_7():
    kinds = {column.kind for column in bundle.load(HERE / "format_7" / "shop" / "1").manifest.relative}
    assert kinds == set(KINDS)
