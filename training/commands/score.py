"""``listwright score``: offline scoring from its command line; its workers load while the command does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.training.cluster import add_on_option
from listwright.training.console.bars import elapsed_bars
from listwright.training.console.command import add_weights_option, command_parser, run_command, split_names
from listwright.training.job_folder import folder_of
from listwright.training.scoring.job import Job
from listwright.training.scoring.score import score

_EXAMPLES = """examples:
  listwright score models/shop/1 --data rows.parquet --qid search_id --out scored.parquet
  listwright score models/shop/1 --data rows.csv.gz --qid search_id --out scored.csv
  listwright score models/shop/1 --data test.txt --out scored.parquet     LETOR text
  listwright score models/shop/1 --data november/ --qid search_id --out scored
  listwright score models/shop/1 --data november/ --qid search_id --columns search_id,offer --out scored
  listwright score models/shop/1 --data november/ --qid search_id --with-features --out scored
  listwright score models/shop/1 --data rows.parquet --qid search_id --probability --out scored.parquet
  listwright score models/shop/1 --data rows.parquet --qid search_id --weights margin=0.3 --out scored.parquet
  listwright score models/shop/1 --data rows.parquet --qid search_id --out scored.parquet --on ray://head:10001

A folder's files are read by name. --out without an ending is a folder of Parquet parts.
The rows keep their order. All columns that are no features of the bundle are written.
--with-features writes the features, too; --columns writes the columns that it names.
Added are rank (1 is best), score and first_stage_score as POST /rerank answers them,
and strategy, the ranker; with --probability also probability. Rows of a query must stand together.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run ``listwright score``: 0 when the file is written, 1 with one line if it fails, 130 after Ctrl-C."""
    return run_command(_parser(), _score, arguments, interrupted=_what_is_left)


def _score(options: argparse.Namespace, console: Console) -> None:
    job = Job(
        _folder_of(options.bundle),
        options.data,
        options.out,
        qid=options.qid,
        strategy=options.strategy,
        prefix=options.prefix,
        columns=options.columns and tuple(dict.fromkeys(options.columns)),
        with_features=options.with_features,
        probability=options.probability,
        weights=options.weights,
    )
    began = perf_counter()
    if options.jobs is not None and options.jobs < 1:
        raise RecipeError(f"--jobs {options.jobs}: expected 1 or more")
    with elapsed_bars(console) as bars:
        scored = score(job, jobs=options.jobs, on=options.on, resume=options.resume, progress=bars)
    line = f"{job.out}: {scored.rows:,} rows of {scored.lists:,} lists in {perf_counter() - began:.1f} s"
    console.print(line, soft_wrap=True, markup=False)


def _folder_of(bundle: str) -> Path:
    """Return the folder of a bundle, a copy of one at a URL. Nothing large is imported for a folder."""
    if ":/" not in bundle:
        return Path(bundle)
    from listwright.ranking.remote import as_location, local_copy  # noqa: PLC0415

    try:
        return local_copy(as_location(bundle))
    except ValueError as error:
        raise RecipeError(f"BUNDLE: {error}") from None


def _what_is_left(options: argparse.Namespace) -> str:
    """Return how to go on after an interrupted job."""
    begun = folder_of(options.out).exists()
    return "finished parts are kept; the same command with --resume continues" if begun else "no part was begun"


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "score", "Rank every list of a file or folder as the service would, part by part.", _EXAMPLES
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="folder or URL of the bundle")
    add("--data", type=Path, required=True, metavar="FILE", help="Parquet, CSV (also gzipped), LETOR text, or a folder")
    add("--out", type=Path, required=True, metavar="FILE", help="a .parquet or .csv file, or a folder")
    add("--qid", metavar="COL", help="column with the query id; not for LETOR text")
    add("--strategy", default="auto", metavar="NAME", help="as in a request (default: auto)")
    add("--probability", action="store_true", help="add the probability of each candidate to be relevant")
    add_weights_option(parser)
    add("--prefix", default="", metavar="TEXT", help="before the names of the added columns")
    written = parser.add_mutually_exclusive_group()
    written.add_argument(
        "--columns",
        type=split_names,
        action="extend",
        metavar="COL,COL",
        help="columns of the data to write (default: all but the features)",
    )
    written.add_argument("--with-features", action="store_true", help="write the features of the bundle, too")
    add("--jobs", type=int, metavar="N", help="parts at a time (default: cores)")
    add_on_option(parser)
    add("--resume", action="store_true", help="continue an interrupted job")
    return parser


if __name__ == "__main__":
    sys.exit(main())
