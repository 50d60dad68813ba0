"""``docs/large-data.md`` has the code's numbers and the figures of the committed runs."""

from listwright.training.commands import fit
from listwright.training.data import load
from listwright.training.data.shards import rows, shards
from listwright.training.reporting.measures import behaviour
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/large-data.md")
TEXT = " ".join(PAGE.split())


def figures():
    """Both runs."""
    both, large = result("shards"), result("shards_large")
    memory, disk = both["in_memory"][-1], both["on_disk"][-1]
    beside = f"{large['peak_beside_bins_gib']:.2f}"
    return table(
        ["figure", "value"],
        [
            ["same files in both bundles", "yes" if both["same_files"] else "no"],
            ["rows", f"{both['rows']:,}"],
            ["seconds from disk over seconds in memory", f"{both['ratio_of_seconds']:.2f}"],
            ["the same for the first fit, which writes the shards", f"{both['ratio_of_the_first_reading']:.2f}"],
            ["peak memory of a fit in memory, from disk, GiB", f"{memory['peak_gib']}, {disk['peak_gib']}"],
            ["rows of the large table", f"{large['rows']:,}"],
            ["its values as float32, GiB", f"{large['raw_gib']:.2f}"],
            ["peak memory of its fit, GiB", f"{large['peak_gib']:.2f}"],
            ["the same without LightGBM's bins, GiB", beside],
            ["peak memory of `listwright generate`, GiB", f"{large['generate_peak_gib']:.2f}"],
        ],
    )


def test_its_table_is_the_runs():
    assert blocks(PAGE) == [figures()]
    assert all(f"`{result(name)['command']}`" in PAGE for name in ("shards", "shards_large"))


def test_the_estimate_is_the_codes():
    text = f"{load._TEXT:g} for each byte of text and {load._TEXT * load._PACKED:g} for each byte of compressed text"
    assert f"{text}, times {load.COPIES} for copies" in TEXT


def test_every_choice_of_shards_is_there():
    (action,) = [action for action in fit._parser()._actions if action.dest == "shards"]
    assert all(f"`{choice}`" in TEXT for choice in {*action.choices} - {action.default})
    assert f"`--shards {action.default}` (default)" in TEXT


def test_sizes_are_the_code_s():
    assert f"{rows.HELD_BYTES // 2**20} MiB at a time" in TEXT
    assert f"up to {shards.SHARD_BYTES // 2**20} MiB" in TEXT
    assert f"at most {behaviour.MOST_QUERIES:,} test queries" in TEXT
