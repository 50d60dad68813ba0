"""The exported file ranks under onnxruntime-node, and under onnxruntime-web in Chromium, as the bundle does."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking.bundle import load
from listwright.ranking.golden import read
from listwright.ranking.ranker_file import answer
from listwright.training.export.parity import hard_lists
from listwright.training.export.ranker_file import write_ranker
from support.pages.browsing import chromium
from support.service.bundles import make_bundle, rows

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo" / "1"
SCRIPT = Path(__file__).with_name("rank_lists.mjs")
FORMS = ["first_stage text", "first_stage codes", "qilcm text", "qilcm codes", "goals codes"]
LENGTHS = (1, 2, 20, 100, 101, 1000)
"""Candidates of the drawn lists; the demo's second stage scores 100."""

sys.path.append(str(ROOT / "tools"))
from client_tools import NODE_MODULES  # noqa: E402
from page_libraries import ONNXRUNTIME, ONNXRUNTIME_FILES  # noqa: E402


@pytest.fixture(scope="module")
def bundle():
    return load(DEMO)


@pytest.fixture(scope="module")
def lists(bundle):
    """``(L, D)`` features: golden lists, and drawn ones with missing values, unknown categories, and equal candidates."""
    golden = read((DEMO / "golden.jsonl").read_bytes(), DEMO / "golden.jsonl")
    features = [np.array(entry.features, dtype=np.float64).astype(np.float32) for entry in golden]
    rows, rng = np.concatenate(features), np.random.default_rng(59)
    schema = bundle.manifest.feature_schema
    hard = [drawn for length in LENGTHS for _, drawn in hard_lists(rows, length, schema, rng)]
    return features + hard + [rows[rng.integers(0, 8, length)] for length in LENGTHS]


@pytest.fixture(scope="module", params=FORMS)
def exported(request, bundle, lists, tmp_path_factory):
    """A file, its inputs as JSON, and the bundle's answers."""
    strategy, form = request.param.split()
    path = tmp_path_factory.mktemp("exported") / "ranker.onnx"
    if strategy == "goals":
        several = {"probability": "relevance", "goals": {"margin": 0.5, "eco": 0.0}, "relative": True}
        bundle = load(make_bundle(path.parent / "shop" / "1", cutoff=100, **several))
        strategy, rng = "qilcm", np.random.default_rng(60)
        lists = [rows(rng, length) for length in LENGTHS]
    file = write_ranker(bundle, path, strategy=strategy, codes=form == "codes")
    inputs = [as_inputs(features, bundle.manifest.feature_schema, form) for features in lists]
    answers = [answer(bundle.reranker, features, strategy, None) for features in lists]
    return path, inputs, list(zip(answers, map(file.rank, lists), strict=True))


def as_inputs(features, schema, form):
    """A list as JSON; codes without a category are missing in one row, and an unknown word in the next."""
    numbers = np.where(np.isnan(features), None, features.astype(object)).tolist()
    if form == "codes":
        return {"features": numbers}
    texts = [
        [
            schema.features[column].categories[int(row[column]) - 1] if row[column] else ("", "never seen")[place % 2]
            for column in schema.categorical
        ]
        for place, row in enumerate(features)
    ]
    return {"numbers": [[row[column] for column in schema.numeric] for row in numbers], "categories": texts}


def assert_same(ranked, answers, *, closeness=0.0):
    """The orders are equal; scores differ by rounding only."""
    assert len(ranked) == len(answers)
    for actual, (expected, in_python) in zip(ranked, answers, strict=True):
        for name in ("relevance", "probability", "goal_shares"):
            if (values := getattr(in_python, name)) is not None:
                found = np.array(actual[name], dtype=float).reshape(values.shape)
                np.testing.assert_allclose(found, values, rtol=1e-6, atol=closeness)
        assert actual["order"] == expected.order
        np.testing.assert_allclose(actual["scores"], expected.scores, rtol=1e-6, atol=closeness)
        np.testing.assert_allclose(actual["first_stage_scores"], expected.first_stage_scores, rtol=1e-12)


def test_node_ranks_as_the_bundle(exported, tmp_path):
    if shutil.which("node") is None or not (NODE_MODULES / "onnxruntime-node").is_dir():
        pytest.skip("no node, or no onnxruntime-node: python tools/client_tools.py fetches it with npm")
    path, inputs, answers = exported
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    script = shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "lists.json").write_text(json.dumps(inputs), encoding="utf-8")
    ran = subprocess.run(["node", script, path, tmp_path / "lists.json"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert_same(json.loads(ran.stdout), answers)


def test_a_browser_ranks_as_the_bundle(exported):
    if not (ONNXRUNTIME / ONNXRUNTIME_FILES[-1]).is_file():
        pytest.skip("no onnxruntime-web: python tools/page_libraries.py --onnxruntime fetches it with npm")
    path, inputs, answers = exported
    files = {file.name: file for file in (path, SCRIPT, *(ONNXRUNTIME / name for name in ONNXRUNTIME_FILES))}
    with chromium() as browser:
        page = browser.new_page()
        page.route(
            "http://ranker.test/*",
            lambda route: (
                route.fulfill(path=files[name])
                if (name := route.request.url.rsplit("/")[-1]) in files
                else route.fulfill(body="<title>empty</title>", content_type="text/html")
            ),
        )
        page.goto("http://ranker.test/")
        ranked = page.evaluate(
            """async (lists) => {
                const ort = await import("http://ranker.test/ort.wasm.bundle.min.mjs");
                const { rankLists } = await import("http://ranker.test/rank_lists.mjs");
                ort.env.wasm.numThreads = 1;
                return rankLists(ort, "http://ranker.test/ranker.onnx", lists);
            }""",
            inputs,
        )
    assert_same(ranked, answers, closeness=1e-5)  # WebAssembly adds up float32 products of the network in another order
