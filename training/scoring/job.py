"""The options and the result of an offline scoring job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from listwright.ranking.errors import RecipeError
from listwright.training.data.sources import is_index

FORMATS = (".parquet", ".csv")

COLUMNS = ("rank", "score", "first_stage_score", "strategy")
"""Columns that scoring adds, before a prefix."""

PROBABILITY = "probability"
"""Column that scoring adds where it is asked for."""

PART_ROWS = 100_000
"""Rows of a part, besides the rest of its last list; finished parts survive an interruption."""


@dataclass(frozen=True)
class Job:
    """The options of a scoring job.

    Args:
        bundle: Folder of the bundle.
        data: File with the lists, or a folder of such files.
        out: File to write, whose name ends in one of :data:`FORMATS`; without an ending, a folder of Parquet parts.
        qid: Column with the query id, for tables.
        strategy: Ranker, as in a request.
        prefix: Prefix of the names of the added columns.
        columns: Names of the data's columns to write beside them; None for all that are no features.
        with_features: Whether to write the features, too; only without ``columns``.
        part_rows: Number of rows of a part; see :func:`listwright.training.scoring.run.parts`.
        probability: Whether to add the probabilities of being relevant.
        weights: Weight of each goal, as in a request; None for those of the bundle.
    """

    bundle: Path
    data: Path
    out: Path
    qid: str | None = None
    strategy: str = "auto"
    prefix: str = ""
    columns: Sequence[str] | None = None
    with_features: bool = False
    part_rows: int = PART_ROWS
    probability: bool = False
    weights: Mapping[str, float] | None = None

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns that scoring adds, without the prefix."""
        return (*COLUMNS, PROBABILITY) if self.probability else COLUMNS

    def written(self, names: Sequence[str], features: Sequence[str], qid: str) -> list[str]:
        """Return the columns of the data to write, in the order of the data or of the option.

        Args:
            names: Names of all columns of the data.
            features: Names of the bundle's features.
            qid: Column with the query id, which is written in any case.
        """
        if self.columns is not None:
            return list(self.columns)
        left_out = set() if self.with_features else set(features) - {qid}
        return [name for name in names if name not in left_out | unnamed(names, features, qid)]


def unnamed(names: Sequence[str], features: Sequence[str], qid: str) -> set[str]:
    """Return columns without a name of their own that are neither features nor the query id."""
    return {name for name in names if is_index(name)} - {*features, qid}


class ScoreResult(NamedTuple):
    """The result of a scoring job."""

    rows: int
    lists: int


def check_output(job: Job) -> None:
    """Raise RecipeError if the file or folder of the output exists, or its format is not known."""
    if job.out.suffix.lower() not in ("", *FORMATS):
        expected = f"expected a name that ends in {' or '.join(FORMATS)}, or a folder's name without an ending"
        raise RecipeError(f"--out {job.out}: {expected}")
    if job.out.exists():
        raise RecipeError(f"{job.out} exists already: choose another --out, or delete it")
