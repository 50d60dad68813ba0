"""docs/report.md describes what a run writes, shows the demo's report, and its bounds are those of the code."""

import json
import re

import pytest

from listwright.training.evaluation import calibration, intervals
from listwright.training.recipe.config import Choice
from listwright.training.reporting.measures import behaviour, explained, scores
from support.pages.figure_blocks import ROOT, excerpt, page

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


@pytest.mark.parametrize(
    "bound",
    [
        f"fewer than {intervals.FEWEST} queries",
        f"`[choice] folds`, {Choice().folds} by default",
        f"fewer than {calibration.FEWEST_LISTS} usable lists",
        f"at most {behaviour.MOST_QUERIES:,} queries",
        f"At most {scores.MOST_MOVES} test candidates",
        f"at most {explained.MOST_FEATURES} features",
    ],
)
def test_its_bounds_are_those_of_the_code(bound):
    assert bound in " ".join(PAGE.split())
