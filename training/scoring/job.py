"""What offline scoring is asked for, and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from listwright.ranking.errors import RecipeError

FORMATS = (".parquet", ".csv")
PART_ROWS = 100_000
"""Rows of a part, and those of its last list; a part is what an interrupted run keeps."""


@dataclass(frozen=True)
class Job:
    """What is scored, and how.

    Args:
        bundle: its folder.
        data: file with the lists, or a folder of such files.
        out: the file to write, whose name ends in one of :data:`FORMATS`; without an ending, a folder of Parquet parts.
        qid: column with the query id, for tables.
        strategy: as a request says it.
        prefix: of the added columns.
        columns: of the data that are written beside them; None for all.
        part_rows: see :func:`listwright.training.scoring.parts.parts`.
    """

    bundle: Path
    data: Path
    out: Path
    qid: str | None = None
    strategy: str = "auto"
    prefix: str = ""
    columns: Sequence[str] | None = None
    part_rows: int = PART_ROWS


class Scored(NamedTuple):
    """What a job wrote."""

    rows: int
    lists: int


def check_output(job: Job) -> None:
    """Look whether the job may write what it is asked for.

    Raises:
        RecipeError: if ``out`` exists, or its format is not known.
    """
    if job.out.suffix.lower() not in ("", *FORMATS):
        expected = f"expected a name that ends in {' or '.join(FORMATS)}, or a folder's name without an ending"
        raise RecipeError(f"--out {job.out}: {expected}")
    if job.out.exists():
        raise RecipeError(f"{job.out} exists already: choose another --out, or delete it")
