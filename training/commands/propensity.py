"""``listwright propensity``: the command line of position bias."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from listwright.ranking.plain_file import files_below
from listwright.training.console.bars import progress_bars
from listwright.training.console.command import check_outputs, command_parser, repeatable, run_command, write_output

if TYPE_CHECKING:
    from listwright.training.traffic.propensity import PositionBias

_EXAMPLES = """examples:
  listwright propensity rows.parquet --out propensities.json
  listwright propensity rows.parquet --out propensities.json --positions 8
  listwright propensity rows.parquet --out propensities.json --method harvest \\
      --same query_text
  listwright fit --data rows.parquet --qid query_id --label label \\
      --propensities propensities.json

rows.parquet is what listwright join writes, or a folder of such files. Swaps come from
an experiment of kind explore. docs/position-bias.md says what is estimated, and how.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright propensity``: 0 when the file is written, 1 with one line if it fails, 130 after Ctrl-C."""
    advice = "nothing is written; the same command begins anew"
    return run_command(_parser(), _estimate, arguments, interrupted=advice)


def _estimate(options: argparse.Namespace, console: Console) -> None:
    check_outputs({"--out": options.out}, {"ROWS": options.rows})
    with console.status("loading"):
        from listwright.training.data.tables.judged import JUDGED  # noqa: PLC0415
        from listwright.training.traffic.propensity import estimate  # noqa: PLC0415 - --help need not wait
    way = None if options.method == "auto" else options.method
    with progress_bars(console) as bars:
        files_below(options.rows, [JUDGED], bars.remark)
        bias = estimate(
            options.rows, way=way, places=options.positions, same=options.same, seed=options.seed, progress=bars
        )
    content = bias.file(repeatable("propensity", options.arguments)).model_dump() | {"same": options.same}
    console.print("\n".join(_table(bias)), markup=False, soft_wrap=True)
    write_output(options.out, lambda: json.dumps(content, indent=1) + "\n", console)


def _table(bias: PositionBias) -> Iterator[str]:
    what = "swaps" if bias.way == "swaps" else "requests that were shown in several orders"
    yield f"Propensities from {bias.observations:,} {what}, of {bias.queries:,} queries"
    yield ""
    yield f"{'place':>5}  {'propensity':>10}  {'95 % interval':17} {'clicks':>9}"
    rows = zip(bias.values, bias.low, bias.high, bias.clicks, strict=True)
    for place, (value, low, high, clicks) in enumerate(rows, start=1):
        bar = "█" * round(20 * min(1.0, float(value)))
        interval = f"[{low:.3f}, {high:.3f}]" if place > 1 else ""
        yield f"{place:>5}  {value:>10.3f}  {interval:17} {clicks:>9,.0f}  {bar}".rstrip()
    yield ""


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "propensity",
        "Estimate how likely each shown place is looked at, relative to the first: from swaps\n"
        "of places, or from several bundles that ranked the same requests differently. Refuse\n"
        "where the data cannot say.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("rows", type=Path, metavar="ROWS", help="judged rows: a Parquet file, or a folder of them")
    add("--out", type=Path, required=True, metavar="FILE", help="propensities as JSON")
    add(
        "--method",
        choices=("auto", "swaps", "harvest"),
        default="auto",
        help="swaps of places, or bundles that differ; auto (default): swaps where there are any",
    )
    add("--positions", type=int, metavar="K", help="places from the top (default: all that the evidence reaches)")
    add(
        "--same",
        metavar="COL",
        help="with harvest: column that says which queries asked the same (default: same shown candidates)",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the bootstrap (default: 0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
