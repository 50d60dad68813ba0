"""Tables of the README are the committed results, and its commands, settings and files exist."""

import re

from benchmarks.tables import context
from listwright.service.settings import PREFIX, Settings
from support.pages.figure_blocks import ROOT, blocks, page, result, table
from support.pages.quality import DEMO, QUALITY, quality

README = page("README.md")


def speed():
    """Milliseconds, lists a second and memory, each with the page that has more."""
    formats = {row["format"]: row["p50_ms"] for row in result("floor")["table"] if row["candidates"] == 100}
    rates = [row["per_second"] for row in result("throughput")["clients"] if row["settings"][0] == "2"]
    memory = result("service")["start_up"]["resident_mb_when_ready"]
    rows = [
        [
            "answer for 100 candidates of 136 features, ms, median, by format",
            f"[{min(formats.values()):.1f} to {max(formats.values()):.1f}](docs/results.md#speed)",
        ],
        [
            "such lists a second, 2 workers, by format",
            f"[{min(rates):,.0f} to {max(rates):,.0f}](docs/benchmarks.md#the-service-alone)",
        ],
        ["memory of a worker with the demo bundle, MB", f"[{memory:.0f}](docs/results.md#speed)"],
    ]
    return table(["on two cores", ""], rows)


def test_its_tables_are_the_committed_results():
    assert blocks(README) == [speed(), quality()]


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


def test_what_fits_on_public_tables_ship():
    ships = [one for row in result("tables")["tables"] for one in row["ships"]]
    second = [one for one in ships if not one.startswith("LightGBM")]
    assert f"{len(second)} of {len(ships)} fits on public tables" in README
    assert ships.count("LightGBM + relative") > len(ships) / 2


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
