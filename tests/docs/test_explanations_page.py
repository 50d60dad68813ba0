"""``docs/explanations.md``: its program runs, its numbers are those of the code, its figures those of the committed run."""

import dataclasses
import re

import pytest

from listwright.ranking.explaining import contributions, passing
from listwright.ranking.explaining.explanation import CandidateExplanation
from support.pages.figure_blocks import ROOT, blocks, page, result, table

PAGE = page("docs/explanations.md")
PARTS = ("first_stage", "second_stage", "passing")
"""Parts that take more than 0.01 s."""


def times():
    rows = [
        [
            one["ranker"],
            *(f"{one['parts_s'][part]:.2f}" for part in PARTS),
            f"{one['median_s']:.2f}",
            f"{one['slowest_s']:.2f}",
        ]
        for one in result("explain")["times"]
    ]
    return table(["ranker", *(f"`{part}`" for part in PARTS), "all", "slowest place"], rows)


def accuracy():
    found = result("explain")["accuracy"]
    rows = [
        [
            one["bundle"],
            f"{one['budget']:,}",
            *(f"{100 * one[name]:.1f} %" for name in ("error", "claimed")),
            f"{100 * one['within_three']:.1f} %",
            f"{one['second_stage_s']:.2f}",
        ]
        for one in found
        if one["budget"] in (1000, 4000)
    ]
    return table(["bundle", "budget", "error", "claimed", "within three standard errors", "seconds"], rows)


def beside_rankings():
    """The 99th percentile of rankings with and without explanations."""
    rows = []
    for load, found in result("explain_load")["loads"].items():
        low, high = (f"{100 * value:+.1f}" for value in found["later_quartiles"])
        p99 = [f"{found['p99_ms'][way]:.2f}" for way in ("without", "with")]
        later = f"{100 * found['later']:+.1f} [{low}, {high}]"
        rows.append([f"{float(load):.0%}", *p99, later, f"{found['explanation_s']:.1f}"])
    return table(["load, of the peak", "p99 without, ms", "with", "later, %", "seconds of an explanation"], rows)


def test_the_figures_are_those_of_the_committed_run():
    assert blocks(PAGE) == [times(), accuracy(), beside_rankings()]


def test_the_goal_is_that_of_the_benchmark():
    assert f"the goal is {result('explain')['goal_s']:g} s" in " ".join(PAGE.split())


def test_the_program_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], {})  # what a reader would run
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_every_part_has_a_row():
    for field in dataclasses.fields(CandidateExplanation):
        assert f"`{field.name}`" in PAGE or field.name == "candidate"


@pytest.mark.parametrize(
    "says",
    [
        f"up to {contributions.EXHAUSTIVE.bit_length() - 1} features, budget {contributions.EXHAUSTIVE:,}: yes",
        f"all coalitions are tried, {contributions.EXHAUSTIVE:,} of them",
        f"other categories, {passing.MOST_CATEGORIES} are tried",
        f"the {passing.MOST_STEPS:,} smallest",
        f"below {100 * contributions.TOLERANCE:g} %",
        f"after {contributions.FEWEST_PAIRS} pairs at least",
        f"At most {passing.MOST_PAIRS} pairs",
        f"at most {100 * contributions.SAMPLING_SHARE:g} % of the time that is left",
        f"halved {['', 'once', 'twice', 'three times', 'four times', 'five times'][passing.HALVINGS]}",
        {0.5: "counts as half of the rows"}[passing.OTHER_KIND],
    ],
)
def test_its_numbers_are_those_of_the_code(says):
    assert says in re.sub(r"\s+", " ", PAGE)
