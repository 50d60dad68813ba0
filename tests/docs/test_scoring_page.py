"""``docs/scoring.md``: its commands and its program run as they stand, and its figures are those of the committed run."""

import re
import shlex

import polars as pl
import pytest

from listwright.training.commands import score as command
from listwright.training.scoring.job import COLUMNS
from support.pages.figure_blocks import blocks, page, result, table
from support.service.bundles import make_bundle
from support.training.scored import lists

PAGE = page("docs/scoring.md")


def figures():
    rows = [
        [
            one["bundle"],
            one["columns"],
            f"{one['rows']:,}",
            f"{one['floor_per_second_and_core']:,}",
            f"{one['scored_per_second_and_core']:,}",
            f"{one['ratio']:.2f}",
            f"{one['peak_rss_mib_all']:,.0f}",
        ]
        for one in result("scoring")["table"]
    ]
    head = ["bundle", "columns", "rows", "floor", "scored", "ratio", "peak memory, MiB"]
    return table(head, rows)


def test_the_figures_are_those_of_the_committed_run():
    assert blocks(PAGE) == [figures()]
    assert f"{result('scoring')['seconds_of_a_start']:.1f} s" in PAGE


def test_the_program_and_the_command_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models" / "shop" / "1")
    apart = lists((3, 4)).rename({"query": "search_id"}).sample(fraction=1.0, shuffle=True, seed=1)
    apart.write_parquet("rows.parquet")
    words = shlex.split(re.search(r"^listwright score (.*)$", PAGE, re.M)[1])
    assert command.main(words) == 1, "rows of a query stand apart"
    exec(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], {})  # what a reader would run
    assert command.main([*words, "--data", "sorted.parquet"]) == 0
    assert pl.read_parquet("scored.parquet").height == 7


@pytest.mark.parametrize("name", COLUMNS)
def test_every_added_column_has_a_row(name):
    assert f"| `{name}` |" in PAGE
