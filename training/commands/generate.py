"""``listwright generate``: ranking data of any size in a file, written in a stream."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from listwright.training.console.bars import progress_bars
from listwright.training.console.command import command_parser, run_command
from listwright.training.data.synthetic.stream import write

_EXAMPLES = """examples:
  listwright generate --queries 1000 --features 40 --out data/rows.parquet
  listwright generate --queries 100000 --features 136 --out rows.parquet
      about 10 million rows, 5 GB
  listwright generate --queries 1000 --out rows.csv
  listwright generate --queries 1000 --out rows.txt      LETOR text
  listwright fit --data rows.parquet --qid qid --label label

Columns are qid, label, and f1, f2 ... Memory does not depend on the number of queries,
and grows with the features up to about 650 of them.
The same options give the same file.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright generate``: 0 when the file is written, 1 with one line if it fails, 130 after Ctrl-C."""
    return run_command(_parser(), _generate, arguments, interrupted="no file was written")


def _generate(options: argparse.Namespace, console: Console) -> None:
    with progress_bars(console) as bars:
        rows = write(
            options.out,
            options.queries,
            options.features,
            length=options.length,
            longest=options.longest,
            seed=options.seed,
            progress=bars,
        )
    console.print(f"{options.out}: {rows:,} rows of {options.queries:,} lists", soft_wrap=True, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "generate", "Write synthetic ranking data of any size: Parquet, CSV or LETOR text.", _EXAMPLES
    )
    parser.add_argument("--queries", type=int, required=True, metavar="N", help="number of lists")
    parser.add_argument("--features", type=int, default=136, metavar="D", help="columns (default: 136)")
    parser.add_argument("--length", type=int, default=100, metavar="L", help="mean length of a list (default: 100)")
    parser.add_argument("--longest", type=int, default=1000, metavar="L", help="longest list (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="fixes everything that is drawn (default: 0)")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="a new .parquet, .csv or .txt file (LETOR text)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
