"""The tables of the page on the exact likelihood are the committed results, and its snippet runs."""

import re

import torch

from listwright.training.losses.exact_plackett_luce import DEPTHS
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/exact-plackett-luce.md")
RESULT = result("plackett_luce")
WAYS = {
    "32 nodes": "exact_32",
    "64 nodes": "exact_64",
    "subsets": "subsets",
    "1,000 samples": "sampling_1000",
    "10,000 samples": "sampling_10000",
    "Efron": "efron",
    "Breslow": "breslow",
}
TIMED = list(WAYS)[:5]


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


def conditions():
    """What the other tables were measured on."""
    accuracy, speed, largest = RESULT["accuracy"], RESULT["speed"], RESULT["methods"][-1]
    (hardest,) = (row["float64"]["log_a_hardest"] for row in accuracy["rows"] if row["nodes"] == 32)
    samples = -largest["mean_error"]["sampling_10000"]
    return table(
        ["measured", ""],
        [
            ["by number of nodes: groups", accuracy["cases"]],
            ["by number of nodes: candidates of the largest group", f"{accuracy['largest_group']:,}"],
            ["by number of nodes: hardest group for 32 nodes in float64", f"“{hardest}”"],
            ["by size of the group: draws", len(RESULT["seeds"])],
            ["by size of the group: standard deviation of the scores", f"{RESULT['spread']:g}"],
            ["10,000 samples, largest group: how much too low on average, nats", short(samples)],
            ["one evaluation: features", speed["features"]],
            ["one evaluation: nodes", speed["nodes"]],
            ["one evaluation: threads", speed["threads"]],
            ["one evaluation: share of the search for the windows", f"{100 * speed['share_of_windows']:.0f} %"],
        ],
    )


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


def by_size(measure, ways):
    rows = [[f"{row['group']:,}", *(short(row[measure].get(WAYS[way])) for way in ways)] for row in RESULT["methods"]]
    return table(["group", *ways], rows)


def evaluation():
    """Seconds of one evaluation."""
    speed = RESULT["speed"]
    seconds, ratios = speed["seconds"], speed["ratio_when_doubled"]
    sizes = f"{speed['queries']:,} queries × {speed['candidates']} candidates × {speed['components']} components"
    return table(
        ["what", "seconds", "ratio"],
        [
            [sizes, short(seconds["base"]), ""],
            *([f"twice the {what}", short(seconds[what]), f"{ratios[what]:.2f}"] for what in ratios),
            ["`log_likelihood` with autograd, float32, 80 × 120", short(seconds["autograd_float32"]), ""],
        ],
    )


def tables():
    errors, seconds = by_size("largest_error", WAYS), by_size("seconds", TIMED)
    return [concavity(), conditions(), by_nodes(), errors, seconds, evaluation()]


def test_the_tables_are_the_committed_results():
    assert blocks(PAGE) == tables()
    assert {row["nodes"]: row["depth"] for row in RESULT["accuracy"]["rows"]} == DEPTHS
    assert f"`{RESULT['command']}`" in PAGE


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
