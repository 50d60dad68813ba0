"""``docs/compare.md``: its tables are the committed runs, its numbers are the code's."""

from listwright.training.commands import compare as command
from listwright.training.evaluation import bootstrap, intervals
from listwright.training.traffic.compare import compare, estimates
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/compare.md")
LOOKS, KINDS = result("sequences"), result("interleaving")
CASES = ("clicks, units return", "revenue, heavy tails", "interleaving, units return")
"""Simulations of the page; the file has more."""
NOISE = [1.5, 1.0]
"""Noise of the rankers on the page; the file has more."""


def false_verdicts():
    """Share of runs with a false verdict."""
    rows = [
        [case["name"], case["daily"] * LOOKS["days"], case["units"], f"{case['always']:.1%}", f"{case['fixed']:.0%}"]
        for case in LOOKS["cases"]
        if case["name"] in CASES
    ]
    return table(["equal rankers", "queries", "units", "false, at any look", "false, at one look, read daily"], rows)


def needed():
    """Queries by kind."""
    metrics = ("hit", "mrr", "ndcg@10")
    rows = [
        [row["shop"], f"{row['needed']['interleaving']:,}"]
        + [f"{row['times'][name]:g}" if name in row["times"] else "no difference seen" for name in metrics]
        for row in KINDS["rows"]
        if row["noise"] == NOISE
    ]
    head = ["shop", "interleaving", *(f"split by `{name}`, times" for name in metrics)]
    return table(head, rows)


def test_its_tables_are_the_committed_runs():
    assert blocks(PAGE) == [false_verdicts(), needed()]


def test_false_verdicts_stay_below_what_is_promised():
    assert LOOKS["runs"] >= 2000
    assert LOOKS["alpha"] == intervals.ALPHA
    assert all(case["always"] <= intervals.ALPHA for case in LOOKS["cases"])
    assert all(case["fixed"] > 2 * intervals.ALPHA for case in LOOKS["cases"])


def test_interleaving_needs_fewer_queries_by_every_metric():
    times = [row["times"][name] for row in KINDS["rows"] for name in row["times"]]
    assert f"{min(times)} to {max(times)} times as many" in " ".join(PAGE.split())


def test_its_bounds_are_the_codes():
    assert f"{estimates.FEWEST_UNITS} units a side, {estimates.FEWEST_ACTIVE} of them" in " ".join(PAGE.split())
    assert f"{bootstrap.MOST_GROUPS:,} random groups" in " ".join(PAGE.split())
    assert f"p < {estimates.LEVEL:g}" in PAGE
    helped = " ".join(command._parser().format_help().split())
    assert (
        f"preference {compare.PREFERENCE_DIFFERENCE:g}, split {compare.SPLIT_DIFFERENCE:.0%} of control's mean"
        in helped.replace(" %", "%")
    )
