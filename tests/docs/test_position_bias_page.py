"""``docs/position-bias.md``: its figures are the committed run, and its numbers are the code's."""

import re

from listwright.training.recipe.data import Propensity
from listwright.training.traffic import propensity as position_bias
from support.pages.figure_blocks import blocks, interval, page, result, table

PAGE = page("docs/position-bias.md")
RUN = result("position_bias")
WAYS = ("naive", "debiased", "full information")


def largest():
    """The last point of every curve."""
    for name, found in RUN["sets"].items():
        for strength in sorted({point["strength"] for point in found["curves"]}):
            points = [point for point in found["curves"] if point["strength"] == strength]
            yield name, max(points, key=lambda point: point["sessions"])


def gains():
    rows = [
        [
            f"`{name}`",
            f"{point['strength']:g}",
            f"{point['sessions']:,}",
            f"{point['clicks']:,}",
            *(f"{point[way]:.3f}" for way in WAYS),
            interval(point["debiased_over_naive"]),
        ]
        for name, point in largest()
    ]
    return table(["data", "strength", "lists", "clicks", *WAYS, "debiased over naive"], rows)


def test_its_table_is_the_committed_run():
    assert blocks(PAGE) == [gains()]


def test_debiasing_gains_beyond_doubt_with_enough_clicks():
    assert all(run["seeds"] >= 10 for found in RUN["sets"].values() for run in found["runs"])
    for name, point in largest():
        enough = name == "planted" or point["sessions"] >= 300_000
        assert point["debiased_over_naive"]["low" if enough else "high"] > 0.0
    assert any(name == "mq2008" and point["sessions"] >= 300_000 for name, point in largest())


def test_intervals_cover_the_truth():
    for found in RUN["sets"].values():
        for method in ("swaps", "harvest"):
            ones = [one for one in found["propensities"] if one["method"] == method]
            assert sum(one["covered"] for one in ones) >= 0.9 * sum(one["places"] for one in ones)
    for method in ("swaps", "harvest"):
        ones = [one for found in RUN["sets"].values() for one in found["propensities"] if one["method"] == method]
        inside, places = (sum(one[key] for one in ones) for key in ("covered", "places"))
        assert re.search(rf"{inside} of {places}( cases)? by\s+{method}", PAGE)


def test_its_bounds_are_the_codes():
    assert f"at least {position_bias.FEWEST_CLICKS} clicks" in PAGE
    assert f"(default {Propensity.model_fields['clip'].default:g})" in PAGE
