"""docs/report.md describes what a run writes, and its bounds are those of the code."""

import json
from pathlib import Path

import pytest

from listwright.training.reporting.measures import behaviour, coverage, details, latency

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


def test_every_part_of_the_report_is_described(fitted):
    report = json.loads((fitted / "report.json").read_text())
    assert [name for name in report if f"`{name}`" not in TEXT] == []
    assert [name for name in report["details"] if f"`details.{name}`" not in TEXT and f"`{name}`" not in TEXT] == []


def test_the_bounds_are_those_of_the_code():
    looked_at = (
        "queries for movement, scores, attention and anomaly (`looked_at`), evenly spread over a larger test split"
    )
    for part, bound in (
        ("points of a curve", behaviour.MOST_POINTS),
        ("epochs of a curve", details.MOST_EPOCHS),
        ("bins of ranks", behaviour.MOST_RANKS),
        ("features, the most striking ones", coverage.MOST_FEATURES),
        (looked_at, behaviour.MOST_QUERIES),
        ("groups of the gain by anomaly", behaviour.ANOMALY_BINS),
    ):
        assert f"| {part} | {bound:,} |" in PAGE
    assert f"rows, {latency.REPEATS} per length" in TEXT
