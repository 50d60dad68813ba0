"""``listwright score``: the command line of offline scoring."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.training.bars import progress_bars
from listwright.training.cluster.connection import add_on_option
from listwright.training.command import split_names
from listwright.training.scoring.job import Job
from listwright.training.scoring.start import score
from listwright.training.stored.job_folder import folder_of

_EXAMPLES = """examples:
  listwright score models/shop/1 --data rows.parquet --qid search_id --out scored.parquet
  listwright score models/shop/1 --data rows.csv.gz --qid search_id --out scored.csv
  listwright score models/shop/1 --data test.txt --out scored.parquet     LETOR text
  listwright score models/shop/1 --data november/ --qid search_id --out scored
  listwright score models/shop/1 --data november/ --qid search_id --columns search_id,offer --out scored
  listwright score models/shop/1 --data november/ --qid search_id --with-features --out scored
  listwright score models/shop/1 --data rows.parquet --qid search_id --out scored.parquet --on ray://head:10001

A folder's files are read by name. --out without an ending is a folder of Parquet parts.
The rows keep their order. All columns that are no features of the bundle are written.
--with-features writes the features, too; --columns writes the columns that it names.
Added are rank (1 is best), score and first_stage_score as POST /rerank answers them,
and strategy, the ranker. Rows of a query must stand together.
"""


def main(arguments: list[str] | None = None) -> int:
    """Command line; 0 when the file is written, 1 with one clear line when it is not, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    job = Job(
        options.bundle,
        options.data,
        options.out,
        qid=options.qid,
        strategy=options.strategy,
        prefix=options.prefix,
        columns=options.columns and tuple(dict.fromkeys(options.columns)),
        with_features=options.with_features,
    )
    began = perf_counter()
    try:
        if options.jobs is not None and options.jobs < 1:
            raise RecipeError(f"--jobs {options.jobs}: expected 1 or more")
        columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
        with progress_bars(console, *columns) as bars:
            scored = score(job, jobs=options.jobs, on=options.on, resume=options.resume, progress=bars)
    except (ListwrightError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        begun = folder_of(job.out).exists()
        advice = "finished parts are kept; the same command with --resume continues" if begun else "no part was begun"
        console.print(f"interrupted: {advice}")
        return 130
    seconds = perf_counter() - began
    said = f"{job.out}: {scored.rows:,} rows of {scored.lists:,} lists in {seconds:.1f} s"
    console.print(said, soft_wrap=True, markup=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="listwright score",
        description="Rank every list of a file or folder as the service would, part by part.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of the bundle")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="Parquet, CSV (also gzipped), LETOR text, or a folder"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .parquet or .csv file, or a folder")
    parser.add_argument("--qid", metavar="COL", help="column with the query id; not for LETOR text")
    parser.add_argument("--strategy", default="auto", metavar="NAME", help="as in a request (default: auto)")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="before the names of the added columns")
    written = parser.add_mutually_exclusive_group()
    written.add_argument(
        "--columns",
        type=split_names,
        action="extend",
        metavar="COL,COL",
        help="columns of the data to write (default: all but the features)",
    )
    written.add_argument("--with-features", action="store_true", help="write the features of the bundle, too")
    parser.add_argument("--jobs", type=int, metavar="N", help="parts at a time (default: cores)")
    add_on_option(parser)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted job")
    return parser


if __name__ == "__main__":
    sys.exit(main())
