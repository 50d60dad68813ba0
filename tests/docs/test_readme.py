"""Tables of the README are the committed results, and its commands, settings and files exist."""

import re

from benchmarks.tables import context
from listwright.service.settings import PREFIX, Settings
from support.pages.figure_blocks import ROOT, blocks, page, result
from support.pages.quality import DEMO, QUALITY, quality

README = page("README.md")


def test_its_table_is_the_committed_results():
    assert blocks(README) == [quality()]


def test_what_is_shipped_is_what_the_readme_claims():
    """Beyond doubt better than LightGBM on two sets, nowhere shown to differ from LightGBM with relative columns."""
    over = {
        name: {one["rival"]: one for one in found["over_lambdamart"] if one["method"] == "shipped"}
        for name, found in QUALITY.items()
    }
    assert {name for name, rivals in over.items() if rivals["lambdamart"]["low"] > 0} == {"airline", "mq2008"}
    for rivals in over.values():
        assert rivals["lambdamart+relative"]["low"] < 0 < rivals["lambdamart+relative"]["high"]
    assert DEMO["default_over_plain"]["low"] > 0


def test_on_real_sets_no_fit_chose_a_second_stage():
    for found in QUALITY.values():
        chosen = found["methods"]["shipped"]["chosen"]
        assert sum(chosen.values()) == 5 * found["seeds"]
        assert set(chosen) <= {"lambdamart", "lambdamart+relative"}
    assert DEMO["default_strategy"]["strategy"] == "first_stage"


def test_the_gain_of_the_first_screen_is_the_largest_by_the_columns():
    gains = [row["gains"][context.COLUMNS][0] for row in result("context")["over_lightgbm"] if not row["persons_apart"]]
    assert f"{max(gains):.3f} NDCG@10" in README
    right = result("predictions")
    assert f"right on {right['right']['by_rankers']} of {right['of']}" in README


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z][a-z-]+)", README))
    assert named
    assert named <= targets


def test_settings_exist():
    for name in re.findall(rf"{PREFIX}([A-Z_]+)", README):
        assert name.lower() in Settings.model_fields or name in ("DATA", "REFERENCE", "CACHE")


def test_files_exist():
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
