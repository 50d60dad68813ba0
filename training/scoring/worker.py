"""A worker of offline scoring: it reads a part, ranks it and writes it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import polars as pl
from polars.selectors import by_name

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.features import FeatureSchema
from listwright.training.data.cells import numbers_in
from listwright.training.data.leaks import rounding_of
from listwright.training.scoring.job import Job
from listwright.training.scoring.part_files import FULL, part_file, rows_file, size_file
from listwright.training.scoring.ranges import RowRange, needed, read
from listwright.training.scoring.rank import COLUMNS, ranked
from listwright.training.stored.disk import told_if_full
from listwright.training.stored.job_folder import write_json


def score_part(number: int, ranges: Sequence[RowRange], job: Job, qid: str, folder: str) -> None:
    """Read, rank, write, and say last how much it is; once more does nothing.

    Args:
        number: of the part.
        ranges: where its rows stand.
        job: that it belongs to.
        qid: column with the query id.
        folder: of the job, hidden.
    """
    size = size_file(Path(folder), number)
    if size.exists():
        return
    served = loaded(str(job.bundle))
    rows = read(ranges, needed(served.manifest.feature_schema, qid, job.columns))
    schema = served.manifest.feature_schema
    found, counts = ranked(rows, served, qid, strategy=job.strategy, prefix=job.prefix)
    lists = int((found[job.prefix + "rank"] == 1).sum())
    written = job.written(rows.columns, schema.names, qid)
    found = found.select(by_name([*written, *(job.prefix + name for name in COLUMNS)]))
    path = part_file(Path(folder), number)
    with told_if_full(path.parent, FULL):
        found.write_parquet(path, compression="lz4")  # the time counts, and the parts of one file are written again
    write_json(size, [found.height, lists, counts.tolist(), [] if number else _coarse(rows, schema)])
    rows_file(Path(folder), number).unlink(missing_ok=True)


def _coarse(rows: pl.DataFrame, schema: FeatureSchema) -> list[str]:
    """A sentence on each column of numbers many of which float32 merges."""
    numbers = (rows[schema.names[d]] for d in schema.numeric if schema.names[d] in rows.columns)
    return [str(found) for column in numbers if (found := rounding_of(numbers_in(column).values))]


@cache
def loaded(folder: str) -> Bundle:
    """The bundle of a folder, which stays in this process."""
    _import_lightgbm()
    return bundle.load(Path(folder))


def _import_lightgbm() -> None:
    """As in the service's image, which has neither pandas nor scikit-learn: it would import them, for two seconds."""
    if "lightgbm" in sys.modules:
        return
    hidden = {"pandas", "sklearn"} - sys.modules.keys()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # so an import of it fails
    try:
        import_module("lightgbm")
    finally:
        for name in hidden:
            del sys.modules[name]
