"""docs/report.md describes what a run writes, and its bounds are those of the code."""

import json
import re

import pytest

from listwright.training.evaluation import calibration, intervals
from listwright.training.recipe.config import Choice
from listwright.training.reporting.measures import behaviour, explained, scores
from support.pages.figure_blocks import ROOT, blocks, excerpt, page, table

PAGE = page("docs/report.md")


@pytest.mark.nightly
def test_every_part_of_the_report_is_described(fitted):
    report = json.loads((fitted / "report.json").read_text())
    assert [name for name in report if f"`{name}`" not in PAGE] == []
    assert [name for name in report["details"] if f"`details.{name}`" not in PAGE and f"`{name}`" not in PAGE] == []


def test_its_example_is_the_demo():
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    report = json.loads((ROOT / "models" / "demo" / "1" / "report.json").read_text(encoding="utf-8"))
    assert excerpt(report, json.loads(text)) == json.loads(text)


def bounds():
    """How much is measured and kept."""
    return table(
        ["bound", "value"],
        [
            ["queries that a verdict needs", f"{intervals.FEWEST:,}"],
            ["folds of a choice, by default", Choice().folds],
            ["validation lists for a temperature", f"{calibration.FEWEST_LISTS:,}"],
            ["queries in `looked_at`, at most", f"{behaviour.MOST_QUERIES:,}"],
            ["candidates moved for a constraint, at most", f"{scores.MOST_MOVES:,}"],
            ["features with an importance, at most", f"{explained.MOST_FEATURES}"],
        ],
    )


def test_the_bounds_are_those_of_the_code():
    assert blocks(PAGE) == [bounds()]
