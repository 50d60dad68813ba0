"""docs/report.md describes what a run writes, and its bounds are those of the code."""

import json

import pytest

from listwright.training.evaluation import calibration, verdicts
from listwright.training.recipe.config import Choice
from listwright.training.reporting.measures import behaviour, details, explained, scores
from support.pages.figure_blocks import blocks, page, table

PAGE = page("docs/report.md")


@pytest.mark.nightly
def test_every_part_of_the_report_is_described(fitted):
    report = json.loads((fitted / "report.json").read_text())
    assert [name for name in report if f"`{name}`" not in PAGE] == []
    assert [name for name in report["details"] if f"`details.{name}`" not in PAGE and f"`{name}`" not in PAGE] == []


def bounds():
    """How much is measured and kept."""
    looked_at = "queries for movement, scores, attention and anomaly (`looked_at`), evenly spread, at most"
    return table(
        ["bound", "value"],
        [
            ["points of a curve, at most", f"{behaviour.MOST_POINTS:,}"],
            ["epochs of a curve, at most", f"{details.MOST_EPOCHS:,}"],
            ["bins of ranks, at most", f"{behaviour.MOST_RANKS:,}"],
            ["features, those with the largest shares, at most", f"{details.MOST_FEATURES:,}"],
            [looked_at, f"{behaviour.MOST_QUERIES:,}"],
            ["groups of the gain by anomaly, at most", f"{behaviour.ANOMALY_BINS:,}"],
            ["candidates that are moved for a monotone constraint, at most", f"{scores.MOST_MOVES:,}"],
            ["bins of a reliability diagram, at most", f"{scores.MOST_BINS:,}"],
            ["validation lists that a temperature is fitted on, at least", f"{calibration.FEWEST_LISTS:,}"],
            ["lists of each length that latency is measured on", f"{details.LATENCY_REPEATS:,}"],
            ["contributions of a stage that are shown for an explained query, at most", f"{explained.MOST_SHOWN:,}"],
            ["candidates of an explained query, where shorter lists exist, at most", f"{explained.MOST_CANDIDATES:,}"],
            [
                "changed candidates that the second stage scores for an explained query, at most",
                f"{explained.BUDGET:,}",
            ],
            ["seconds that a query is explained for, at most", f"{explained.MOST_SECONDS:g}"],
            ["queries that a verdict needs, at least", f"{verdicts.FEWEST:,}"],
            ["folds of a choice, where the recipe has no other number", Choice().folds],
        ],
    )


def test_the_bounds_are_those_of_the_code():
    assert blocks(PAGE) == [bounds()]
