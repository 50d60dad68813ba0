"""The tables of the page on the exact likelihood are the committed results, and its snippet runs."""

import re

import torch

from listwright.training.losses.exact_plackett_luce import DEPTHS
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/exact-plackett-luce.md")
RESULT = result("plackett_luce")
GROUPS = (8, 20, 100, 1000)


def short(value):
    """Two digits: ``9.2e-7`` below a thousandth, else plain."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 1e-3:
        return f"{float(f'{value:.1e}'):.10g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def concavity():
    """Where a midpoint lies below the chord."""
    found = RESULT["concavity"]
    events = (("full", "full_event"), ("top-3", "top_3"))
    rows = [[event, f"{found['midpoints']:,}", found[name]] for event, name in events]
    head = f"event, {found['candidates']} candidates, {found['labels']} labels"
    return table([head, "pairs", "midpoint below the chord"], rows)


def by_nodes():
    """Errors by number of nodes."""
    rows = [
        [
            row["nodes"],
            f"{row['depth']:.0f}",
            short(row["float64"]["log_a"]),
            short(row["float64"]["gradient"]),
            short(row["float32"]["log_a_relative"]),
            short(row["float32"]["gradient_relative"]),
        ]
        for row in RESULT["accuracy"]["rows"]
    ]
    return table(["Q", "Λ", "log A, float64", "gradient, float64", "log A, float32", "gradient, float32"], rows)


def by_size():
    """Errors and seconds by size of the group."""
    rows = []
    for row in RESULT["methods"]:
        if row["group"] in GROUPS:
            error, seconds = row["largest_error"], row["seconds"]
            cells = [error["exact_32"], seconds["exact_32"], seconds.get("subsets")]
            cells += [error["sampling_10000"], seconds["sampling_10000"], error["efron"]]
            rows.append([f"{row['group']:,}", *map(short, cells)])
    return table(["group", "32 nodes", "s", "subsets, s", "10,000 samples", "s", "Efron"], rows)


def test_the_tables_are_the_committed_results():
    assert blocks(PAGE) == [concavity(), by_nodes(), by_size()]
    assert {row["nodes"]: row["depth"] for row in RESULT["accuracy"]["rows"]} == DEPTHS
    assert f"`{RESULT['command']}`" in PAGE


def test_the_conditions_are_those_of_the_run():
    accuracy, speed = RESULT["accuracy"], RESULT["speed"]
    assert f"over {accuracy['cases']} groups of up to {accuracy['largest_group']:,} candidates" in PAGE
    sizes = f"{speed['queries']:,} lists of {speed['candidates']} candidates"
    assert sizes in PAGE
    assert f"take {short(speed['seconds']['base'])} s" in PAGE
    assert (speed["components"], speed["nodes"], speed["threads"]) == (5, 32, 1)


def test_the_full_event_is_concave_and_the_top_is_not():
    assert RESULT["concavity"]["full_event"] == 0 < RESULT["concavity"]["top_3"]


def test_time_is_linear_in_the_list():
    assert max(RESULT["speed"]["ratio_when_doubled"].values()) < 2.5


def test_snippet_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names = {}
    exec(compile(snippet, "exact-plackett-luce.md", "exec"), names)  # the page's own code
    gradient = names["scores"].grad
    assert gradient.isfinite().all()
    assert torch.count_nonzero(gradient) == gradient.numel()
