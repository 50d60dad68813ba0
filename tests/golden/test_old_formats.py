"""Bundles of every format version ever written load and answer as they did when they were sealed."""

import json
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking import bundle, golden, manifest
from listwright.ranking.candidates import CandidateList
from listwright.ranking.manifest import FORMAT_VERSION
from listwright.ranking.relative import KINDS

HERE = Path(__file__).parent


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_a_bundle_of_each_version_is_kept_and_loads(version):
    """Loading checks the hashes and ranks the golden lists again."""
    loaded = bundle.load(HERE / f"format_{version}" / "shop" / "1")
    strategies = dict.fromkeys((1, 2, 6, 7, 8), "qilcm") | {3: "dlcm", 4: "first_stage", 5: "qilcm2"}
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
        8: 0,
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


def test_probabilities_and_goals_came_with_format_8():
    """Earlier bundles have neither, whatever is asked for."""
    answers = {}
    for version in range(1, FORMAT_VERSION + 1):
        loaded = bundle.load(HERE / f"format_{version}" / "shop" / "1")
        recorded = golden.read((loaded.path / "golden.jsonl").read_bytes(), loaded.path)[2]
        candidates = CandidateList(np.array(recorded.features, dtype=np.float32))
        answers[version] = loaded.reranker.rerank(candidates, probability=True)
    assert {version for version, ranking in answers.items() if ranking.probability is not None} == {8}
    assert answers[8].probability.tolist() == pytest.approx([0.5144752, 0.3405806, 0.5729167], abs=1e-6)
    assert answers[8].weights == {"booked": 1.0, "margin": 0.5}
    assert all(answers[version].weights is None for version in range(1, 8))
