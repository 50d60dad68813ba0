"""docs/report.md describes what a run writes, and its bounds are those of the code."""

import json
from pathlib import Path

from listwright.training.reporting.measures import behaviour, coverage, details, latency

TEXT = " ".join((Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8").split())


def test_every_part_of_the_report_is_described(fitted):
    report = json.loads((fitted / "report.json").read_text())
    assert [name for name in report if f"`{name}`" not in TEXT] == []
    assert [name for name in report["details"] if f"`details.{name}`" not in TEXT and f"`{name}`" not in TEXT] == []


def test_the_bounds_are_those_of_the_code():
    assert f"at most {behaviour.MOST_POINTS} points" in TEXT
    assert f"{details.MOST_EPOCHS} epochs or {behaviour.MOST_RANKS} bins" in TEXT
    assert f"the {coverage.MOST_FEATURES} most striking features" in TEXT
    assert f"{behaviour.MOST_QUERIES:,} queries" in TEXT
    assert behaviour.ANOMALY_BINS == 5
    assert "gain in five groups" in TEXT
    assert f"rows, {latency.REPEATS} per length" in TEXT
