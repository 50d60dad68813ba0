"""The tables of ``docs/scaling.md`` are those of the committed throughput."""

import math

from support.pages.figure_blocks import blocks, page, result, table

FORMATS = ("npy", "columnar JSON")
LOADS = (100, 1_000, 10_000, 100_000)
BUSY, SPARE = 0.7, 1


def per_second():
    """Lists a second of one worker on one core, by format."""
    clients = result("throughput")["clients"]
    return {row["format"]: row["per_second"] for row in clients if row["settings"] == "1 worker, no threads"}


def test_replicas_follow_from_the_measured_throughput():
    found = per_second()
    replicas = [
        [f"{load:,}", *(f"{math.ceil(load / (BUSY * found[form])) + SPARE:,}" for form in FORMATS)] for load in LOADS
    ]
    assert blocks(page("docs/scaling.md")) == [
        table(["format", "lists a second of one replica"], [[f"`{name}`", f"{found[name]:.0f}"] for name in FORMATS]),
        table(["lists a second in a burst", *(f"`{name}`" for name in FORMATS)], replicas),
    ]
