"""``listwright generate``: ranking data of any size in a file, written in a stream."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source
from rich.console import Console

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import RecipeError
from listwright.training.console.bars import progress_bars
from listwright.training.console.command import command_parser, run_command
from listwright.training.console.progress import Progress
from listwright.training.data.synthetic.stream import BLOCK_CELLS, SyntheticBlock, blocks
from listwright.training.job_folder import disk_full_as_data_error

ENDINGS = (".parquet", ".csv", ".txt")

MOST_CELLS = 4 * BLOCK_CELLS
"""Most cells of one list, which is drawn at once."""

_GROUP_ROWS = 50_000
_TEXT_CELLS = 2**22
"""Cells that are formatted at a time."""

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


def write(out: Path, queries: int, features: int, *, length: int, longest: int, seed: int, progress: Progress) -> int:
    """Write a set in full or not at all; return the number of its rows.

    Args:
        out: Parquet, CSV or LETOR text, by its name; must not exist.
        queries, features, length, longest, seed: as of :func:`listwright.training.data.synthetic.stream.blocks`.
        progress: reports the queries written.

    Raises:
        RecipeError: if a number makes no sense, the name is of no known kind, or the file exists.
        DataError: if the disk is full.
    """
    for name, value in (("queries", queries), ("features", features), ("length", length), ("longest", longest)):
        if value < 1:
            raise RecipeError(f"--{name} {value}: expected 1 or more")
    if seed < 0:
        raise RecipeError(f"--seed {seed}: expected 0 or more")
    if longest * features > MOST_CELLS:
        raise RecipeError(
            f"--features {features} with lists of up to {longest}: a list may have {MOST_CELLS:,} values at most; for "
            f"so many features say --longest {MOST_CELLS // features} or less"
        )
    if out.suffix not in ENDINGS:
        raise RecipeError(f"--out {out}: expected a name that ends in {', '.join(ENDINGS)}")
    _check_absent(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    task, rows = progress.begin(f"Writing {out.name}, queries", queries), 0

    def draw_frames() -> Iterator[pl.DataFrame]:
        nonlocal rows
        for block in blocks(queries, features, length=length, longest=longest, seed=seed):
            rows += len(block.labels)
            yield _frame(block)
            task.reach(block.first + len(block.lengths))

    with (
        disk_full_as_data_error(out.parent, "make some, or choose another --out"),
        atomic_file(out) as file,
    ):
        (_write_text if out.suffix == ".txt" else _write_table)(file, out.suffix, draw_frames())
        _check_absent(out)
    return rows


def _check_absent(out: Path) -> None:
    if out.exists():
        raise RecipeError(f"{out} exists already, and is not written over: choose another --out, or delete it")


def _frame(block: SyntheticBlock) -> pl.DataFrame:
    numbers = np.arange(block.first + 1, block.first + len(block.lengths) + 1)
    judged = {"qid": np.repeat(numbers, block.lengths), "label": block.labels}
    names = (f"f{d}" for d in range(1, block.features.shape[1] + 1))
    columns = np.ascontiguousarray(block.features.T)
    frame = pl.DataFrame(judged | dict(zip(names, columns, strict=True)))
    return frame.with_columns(pl.exclude("qid", "label").fill_nan(None))


def _write_table(file: BinaryIO, suffix: str, frames: Iterator[pl.DataFrame]) -> None:
    first = next(frames)

    def source(*_: object) -> Iterator[pl.DataFrame]:
        yield from chain([first], frames)

    rows = register_io_source(source, schema=first.schema)
    if suffix == ".csv":
        rows.sink_csv(file)
    else:
        group = max(1, min(_GROUP_ROWS, BLOCK_CELLS // first.width))  # a group is written at once
        rows.sink_parquet(file, compression="zstd", compression_level=1, row_group_size=group)


def _write_text(file: BinaryIO, _suffix: str, frames: Iterator[pl.DataFrame]) -> None:
    for frame in chain.from_iterable(f.iter_slices(max(1, _TEXT_CELLS // f.width)) for f in frames):
        parts = [pl.format("{} qid:{}", "label", "qid")]
        parts += [
            pl.format("{}:{}", pl.lit(name[1:]), pl.col(name).cast(pl.String).fill_null("NULL"))
            for name in frame.columns[2:]
        ]
        lines = frame.select(pl.concat_str(parts, separator=" ")).to_series()
        file.write(("\n".join(lines.to_list()) + "\n").encode())


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
