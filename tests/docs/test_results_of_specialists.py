"""What the page of results says of specialists is what the committed results say."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
SETS = ("mq2008", "ohsumed", "planted")
SHOWN_K = 5


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def three(value):
    return f"{value:.3f}"


def interval(values):
    return f"{values['mean']:+.3f} [{values['low']:+.3f}, {values['high']:+.3f}]"


@pytest.mark.parametrize("name", SETS)
def test_table_is_the_committed_result(name):
    oracle, routing = result(f"oracle_{name}"), result(f"routing_{name}")
    (curve,) = (curve for curve in oracle["curves"] if curve["specialists"] == SHOWN_K)
    even = curve["break_even"]
    cells = [
        three(oracle["lambdamart"]["mean"]),
        three(oracle["single_linear_ranker"]["mean"]),
        f"{three(curve['mean_specialist']['mean'])} / {three(curve['oracle']['mean'])}",
        f"{even['mean']:.0%} [{even['low']:.0%}, {even['high']:.0%}]",
        f"{routing['coverage']:.0%}",
        interval(routing["gain_over_generalist"]),
        interval(routing["mixture_over_hard_route"]),
    ]
    assert f"| {name} | {' | '.join(cells)} |" in PAGE


def test_the_hidden_groups_are_told_as_they_came_out():
    hidden = result("routing_planted-hidden")
    assert f"(`planted-hidden`) {hidden['coverage']:.0%}" in PAGE


def test_added_time_is_the_committed_result():
    rows = {row["candidates"]: row for row in result("routing")["table"]}
    for title, column in (
        ("added, where the router abstains", "added"),
        ("saved, where it routes", "saved_where_routed"),
    ):
        cells = [f"{rows[length][column]:.0%}" for length in (10, 100, 1000)]
        assert f"| {title} | {' | '.join(cells)} |" in PAGE


def test_pages_stand_beside_the_results():
    for name in (
        "oracle_mq2008",
        "oracle_ohsumed",
        "oracle_planted",
        *(f"routing_{n}" for n in (*SETS, "planted-hidden")),
    ):
        page = (RESULTS / f"{name}.html").read_text(encoding="utf-8")
        assert result(name)["sentence"] in page.replace("&#39;", "'").replace("&gt;", ">")
        assert not re.search(r"/(tmp|work)/", page)
