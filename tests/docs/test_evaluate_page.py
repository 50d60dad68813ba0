"""``docs/evaluate.md``: its table is the committed simulation, and its numbers are the code's."""

from listwright.training.commands import evaluate
from listwright.training.evaluation import intervals
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/evaluate.md")
GATES = result("gates")
RULES = ("point", "percentile", "t", "product")
SHOWN = ("normal", "exponential", "one list of 100", "ohsumed: columns")
"""Gains in the table of the page; the file has more."""
LEVEL = intervals.ALPHA / 2.0


def worst(gains, rule):
    """Largest share of wrong verdicts of one kind, of all numbers of lists at which a rule was run."""
    rows = [row["broken, holds"] for row in GATES["all_lists"] if row["gains"] == gains]
    return max(max(row[rule]) for row in rows if rule in row)


def wrong():
    """Wrong verdicts by gains: of all lists, and of 50 segments of 20 lists."""
    rows = []
    small = [row for row in GATES["segments"] if (row["segments"], row["lists"]) == (50, 20)]
    for row in (row for row in small if row["gains"] in SHOWN):
        skew = next(one["skew"] for one in GATES["all_lists"] if one["gains"] == row["gains"])
        cells = [f"{worst(row['gains'], rule):.1%}" for rule in RULES]
        segments = [f"{row['broken'][rule]:.1%}" for rule in ("percentile", "t", "product")]
        rows.append([row["gains"], f"{skew:g}", *cells, *segments])
    lists = ["all lists: by the mean", "percentile", "t", "this gate"]
    return table(["gains", "skew", *lists, "50 segments of 20: percentile", "t", "this gate"], rows)


def test_its_table_is_the_committed_simulation():
    assert blocks(PAGE) == [wrong()]


def test_the_gate_keeps_its_level_everywhere_and_the_others_do_not():
    assert GATES["runs"] >= 4000
    margin = 3.0 * (LEVEL * (1.0 - LEVEL) / GATES["runs"]) ** 0.5
    for row in GATES["all_lists"]:
        assert max(row["broken, holds"]["product"]) <= LEVEL + margin, row
        assert min(row["broken, holds"]["point"]) >= 0.0
    assert all(row["broken"]["product"] <= 2.0 * LEVEL for row in GATES["segments"])
    assert max(worst(row["gains"], "t") for row in GATES["all_lists"]) > 10.0 * LEVEL


def test_the_lists_that_an_undecided_gate_names_decide_it():
    for found in GATES["power"].values():
        assert abs(found["decided"] - intervals.POWER) <= 0.06


def test_its_numbers_are_the_codes():
    assert f"| undecided | {evaluate.UNDECIDED} |" in PAGE
    assert f"fewer than {intervals.FEWEST} lists" in PAGE
