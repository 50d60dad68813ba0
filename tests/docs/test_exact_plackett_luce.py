"""The page on the exact likelihood says what the committed results say, and its snippet runs."""

import json
import re
from pathlib import Path

import pytest
import torch

from listwright.training.losses.exact_plackett_luce import DEPTHS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "exact-plackett-luce.md").read_text(encoding="utf-8")
RESULT = json.loads((ROOT / "benchmarks" / "results" / "plackett_luce.json").read_text(encoding="utf-8"))
TEXT = " ".join(PAGE.split())
"""The page without its line breaks."""

WAYS = ("exact_32", "exact_64", "subsets", "sampling_1000", "sampling_10000", "efron", "breslow")
TIMED = WAYS[:5]


def short(value):
    """Two digits: ``9.2e-7`` below a thousandth, else plain."""
    if value is None:
        return ""
    if value == 0 or value >= 1e-3:
        return f"{float(f'{value:.1e}'):.10g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def table(title):
    """Cells of the table below a bold title, without its two head lines."""
    (body,) = re.findall(rf"^\*\*{re.escape(title)}\*\*(?:.+\n)+\n((?:\|.+\n)+)", PAGE, re.M)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_accuracy_by_nodes():
    rows = RESULT["accuracy"]["rows"]
    assert {row["nodes"]: row["depth"] for row in rows} == DEPTHS
    assert table("Error by number of nodes") == [
        [
            str(row["nodes"]),
            f"{row['depth']:.0f}",
            short(row["float64"]["log_a"]),
            short(row["float64"]["gradient"]),
            short(row["float32"]["log_a_relative"]),
            short(row["float32"]["gradient_relative"]),
        ]
        for row in rows
    ]


@pytest.mark.parametrize(
    ("title", "measure", "ways"),
    [("Error by size of the group", "largest_error", WAYS), ("Seconds by size of the group", "seconds", TIMED)],
)
def test_ways_by_size_of_the_group(title, measure, ways):
    assert table(title) == [
        [f"{row['group']:,}", *(short(row[measure].get(way)) for way in ways)] for row in RESULT["methods"]
    ]


def test_speed():
    speed = RESULT["speed"]
    seconds, ratios = speed["seconds"], speed["ratio_when_doubled"]
    assert table("Seconds of one evaluation") == [
        [
            f"{speed['queries']:,} queries × {speed['candidates']} candidates × {speed['components']} components",
            short(seconds["base"]),
            "",
        ],
        *([f"twice the {what}", short(seconds[what]), f"{ratios[what]:.2f}"] for what in ratios),
        ["`log_likelihood` with autograd, float32, 80 × 120", short(seconds["autograd_float32"]), ""],
    ]
    assert f"{speed['features']} linear features" in TEXT
    assert speed["threads"] == 1
    assert f" {speed['nodes']} nodes" in TEXT
    assert f" {100 * speed['share_of_windows']:.0f} % of `evaluate`" in TEXT


def test_concavity():
    found = RESULT["concavity"]
    for event, name in (("full", "full_event"), ("top-3", "top_3")):
        assert f"| {event} | {found['midpoints']:,} | {found[name]} |" in PAGE
    assert f"({found['candidates']} candidates, {found['labels']} labels)" in TEXT


def test_figures_beside_the_tables():
    accuracy, largest = RESULT["accuracy"], RESULT["methods"][-1]
    by_nodes = {row["nodes"]: row for row in accuracy["rows"]}
    assert f"`{RESULT['command']}`" in TEXT
    assert f"{accuracy['cases']} groups of up to {accuracy['largest_group']:,} candidates" in TEXT
    assert f"(“{by_nodes[32]['float64']['log_a_hardest']}”)" in TEXT
    assert f"standard deviation {RESULT['spread']:g}" in TEXT
    assert f"of {len(RESULT['seeds'])} draws" in TEXT
    assert f" {short(-largest['mean_error']['sampling_10000'])} nats" in TEXT


def test_figure_stands_beside_the_page():
    for path in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
    figure = (ROOT / "docs" / "exact-plackett-luce.svg").read_text(encoding="utf-8")
    assert figure.count("<use") > len(RESULT["methods"])
    assert "<dc:date>" not in figure


def test_snippet_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names = {}
    exec(compile(snippet, "exact-plackett-luce.md", "exec"), names)  # the page's own code
    gradient = names["scores"].grad
    assert gradient.isfinite().all()
    assert torch.count_nonzero(gradient) == gradient.numel()
