"""``docs/large-data.md`` has the code's settings and the figures of the committed runs."""

from listwright.training import fit
from listwright.training.data import load
from listwright.training.reporting.measures import behaviour
from listwright.training.stored import rows, shards
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/large-data.md")


def settings():
    """What ``auto`` goes by."""
    return table(
        ["estimate of `auto`", "value"],
        [
            ["bytes of a value in Parquet", 4],
            ["bytes of a value for each byte of text", f"{load._TEXT:g}"],
            ["the same of compressed text", f"{load._TEXT * load._PACKED:g}"],
            ["copies while rows are read and split", load.COPIES],
        ],
    )


def figures():
    """Both runs."""
    both, large = result("shards"), result("shards_large")
    memory, disk = both["in_memory"][-1], both["on_disk"][-1]
    beside = f"{large['peak_beside_bins_gib']:.2f}"
    return table(
        ["figure", "value", "command"],
        [
            ["same files in both bundles", "yes" if both["same_files"] else "no", f"`{both['command']}`"],
            ["rows", f"{both['rows']:,}", ""],
            ["seconds from disk over seconds in memory", f"{both['ratio_of_seconds']:.2f}", ""],
            ["the same of the first fit, which writes the shards", f"{both['ratio_of_the_first_reading']:.2f}", ""],
            ["peak resident memory in memory, from disk, GiB", f"{memory['peak_gib']}, {disk['peak_gib']}", ""],
            ["rows of the large table", f"{large['rows']:,}", f"`{large['command']}`"],
            ["its values as float32, GiB", f"{large['raw_gib']:.2f}", ""],
            ["peak resident memory of its fit, GiB", f"{large['peak_gib']:.2f}", ""],
            ["the same without LightGBM's bins, GiB", beside, ""],
            ["peak resident memory of `listwright generate`, GiB", f"{large['generate_peak_gib']:.2f}", ""],
        ],
    )


def test_its_tables_are_the_code_s_and_the_runs():
    assert blocks(PAGE) == [settings(), figures()]


def test_every_choice_of_shards_is_there():
    (action,) = [action for action in fit._parser()._actions if action.dest == "shards"]
    assert all(f"| `{choice}`" in PAGE for choice in action.choices)
    assert f"`{action.default}` (default)" in PAGE


def test_sizes_are_the_code_s():
    assert f"{rows.HELD_BYTES // 2**20} MiB at a time" in PAGE
    assert f"up to {shards.SHARD_BYTES // 2**20} MiB" in PAGE
    assert f"at most {behaviour.MOST_QUERIES:,} test queries" in PAGE
    assert all(f"{name}" in PAGE for name in ("Parquet", "CSV", "LETOR"))
