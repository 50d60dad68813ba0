"""A worker of offline scoring: it reads a part, ranks it as the service would, and writes it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from polars.selectors import by_name

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import FeatureSchema, count_categories
from listwright.ranking.order import finite_scores
from listwright.ranking.reranker import Reranker
from listwright.training.data.cells import codes_in, is_text, is_usable, names_in, numbers_in
from listwright.training.data.memory import read_unjudged, rounding
from listwright.training.job_folder import disk_full_as_data_error, write_json
from listwright.training.scoring.frames import ARROW, RowRange, columns_to_read, read
from listwright.training.scoring.job import COLUMNS, PROBABILITY, Job

BLOCK_ROWS = 20_000
"""Rows that the first stage scores at a time: few enough to be in the cache when their lists are ranked."""

FULL = "make some, and run the same command with --resume"
"""Remedy for a full disk."""

SIZES = "0*.json"
"""Pattern of the files of :func:`size_file`."""


def score_part(number: int, ranges: Sequence[RowRange], job: Job, qid: str, folder: str) -> None:
    """Read, rank and write a part, then its counts; running again does nothing.

    Args:
        number: Number of the part.
        ranges: Places of its rows in the files.
        job: Job of the part.
        qid: Column with the query id.
        folder: Hidden folder of the job.
    """
    size = size_file(Path(folder), number)
    if size.exists():
        return
    served = load_bundle(str(job.bundle))
    rows = read(ranges, columns_to_read(served.manifest.feature_schema, qid, job.columns))
    schema = served.manifest.feature_schema
    options: dict[str, Any] = {"strategy": job.strategy, "probability": job.probability, "weights": job.weights}
    scored, counts = rank_rows(rows, served, qid, prefix=job.prefix, **options)
    lists = int((scored[job.prefix + "rank"] == 1).sum())
    written = job.written(rows.columns, schema.names, qid)
    scored = scored.select(by_name([*written, *(job.prefix + name for name in job.added)]))
    path = Path(folder) / f"{number:07}.parquet"
    with disk_full_as_data_error(path.parent, FULL):
        scored.write_parquet(path, compression="lz4")  # the time counts, and the parts of one file are written again
    coarse = () if number else rounding(rows, schema)
    write_json(size, [scored.height, lists, counts.tolist(), list(map(str, coarse))])
    rows_file(Path(folder), number).unlink(missing_ok=True)


@cache
def load_bundle(folder: str) -> Bundle:
    """Load the bundle of a folder, which is cached in this process."""
    _import_lightgbm()
    return bundle.load(Path(folder))


def _import_lightgbm() -> None:
    """Import LightGBM without pandas and scikit-learn, which the service's image lacks; they would take two seconds."""
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


def rank_rows(
    rows: pl.DataFrame,
    model: Bundle,
    qid: str,
    *,
    prefix: str = "",
    probability: bool = False,
    **options: Any,
) -> tuple[pl.DataFrame, Int[np.ndarray, "2 J"]]:
    """Return the rows with four more columns: ``rank`` from 1, ``score``, ``first_stage_score``, and the ``strategy``.

    Args:
        rows: Rows of whole lists.
        qid: Column with the query id.
        prefix: Prefix of the names of the added columns.
        probability: Whether a fifth column has the candidates' probabilities of being relevant, or chosen.
        options: Strategy and weights, as of :meth:`listwright.ranking.reranker.Reranker.rerank`.

    Returns:
        The rows in their order. Scores are those of ``POST /rerank`` to the bit: ``score`` is the candidate's share of
        its list, or below 0 a place for one that the second stage does not score. And what
        :func:`listwright.ranking.features.count_categories` counts in them.

    Raises:
        SchemaMismatchError: if a feature is not there, or text stands where numbers were fitted.
        UnknownStrategyError: if the bundle has no such strategy.
        ScoringError: if a stage fails: an earlier stage's answer must not pass for its; if a list has no probabilities.
    """
    # arrays alone: kept rankings would be garbage to look at
    orders, scores, first_scores, strategies = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), list[str]()
    probabilities = list[np.ndarray]()
    lists = lists_of(rows, model.manifest.feature_schema, qid)
    _, offsets, order, qids = lists
    for ranking in rankings_of(lists, model.reranker, probability=probability, **options):
        if ranking.reason is not None:
            raise ScoringError(f"query {qids[len(orders)]}: {ranking.reason}")
        if ranking.probability is not None:
            probabilities.append(ranking.probability)
        elif probability:
            raise ScoringError(f"query {qids[len(orders)]}: strategy {ranking.route.strategy} is not calibrated")
        orders.append(ranking.order)
        scores.append(finite_scores(ranking.relevance, ranking.order))
        first_scores.append(ranking.first_stage_scores)
        strategies.append(ranking.route.strategy)
    list_of = np.repeat(np.arange(len(strategies)), np.diff(offsets))
    begins = offsets[list_of]
    rank = np.empty(rows.height, dtype=np.uint32)
    rank[begins + np.concatenate(orders)] = np.arange(rows.height) - begins + 1
    columns = [
        pl.Series(rank),
        pl.Series(np.concatenate(scores)),
        pl.Series(np.concatenate(first_scores), nan_to_null=True),
        pl.Series(strategies, dtype=pl.String).gather(list_of),
        *([pl.Series(np.concatenate(probabilities))] if probability else ()),
    ]
    if order is not None:
        place = np.argsort(order)
        columns = [column.gather(place) for column in columns]
    names = (*COLUMNS, PROBABILITY)
    added = rows.with_columns(column.alias(prefix + name) for name, column in zip(names, columns, strict=False))
    return added, count_categories(lists.codes(model.manifest.feature_schema))


class PartLists(NamedTuple):
    """Lists of a part.

    Args:
        features: ``(R, D)`` features, list by list; float32 columns as they were read, or an array.
        offsets: ``(N + 1,)`` bounds of the lists.
        order: ``(R,)`` row of the part at each place; None where the rows stand in its order.
        qids: ``(N,)`` ids of the lists.
    """

    features: pl.DataFrame | Float[np.ndarray, "R D"]
    offsets: Int[np.ndarray, " O"]
    order: Int[np.ndarray, " R"] | None
    qids: Sequence[object]

    def codes(self, schema: FeatureSchema) -> Float[np.ndarray, "R J"]:
        """Return the codes of the categorical columns."""
        columns = list(schema.categorical)
        if not isinstance(self.features, pl.DataFrame):
            return self.features[:, columns]
        codes = [self.features[:, column].to_numpy() for column in columns]
        return np.stack(codes, axis=1) if codes else np.empty((self.features.height, 0), dtype=np.float32)

    def blocks(self) -> Iterator[_Block]:
        """Yield consecutive lists, some at a time; the next ones may overwrite them."""
        bounds, place = self.offsets.tolist(), 0
        columns = [column.to_numpy() for column in self.features] if isinstance(self.features, pl.DataFrame) else []
        room = np.empty((max(BLOCK_ROWS, int(np.diff(self.offsets).max())), len(columns)), dtype=np.float32)
        while place + 1 < len(bounds):
            until = max(place + 1, bisect_right(bounds, bounds[place] + BLOCK_ROWS) - 1)
            first, end = bounds[place], bounds[until]
            if isinstance(self.features, pl.DataFrame):
                rows = room[: end - first]  # in the same memory each time: a cache holds it, and no page is new
                np.stack([column[first:end] for column in columns], axis=1, out=rows)
            else:
                rows = self.features[first:end]
            yield _Block(rows, [bound - first for bound in bounds[place : until + 1]])
            place = until


class _Block(NamedTuple):
    """Rows of some lists, with the bounds of the lists."""

    rows: Float[np.ndarray, "R D"]
    bounds: list[int]


def rankings_of(lists: PartLists, reranker: Reranker, **options: Any) -> Iterator[Ranking]:
    """Yield each list's ranking, with options of :meth:`listwright.ranking.reranker.Reranker.rerank`.

    The first stage scores a block at once where it scores each row alone.
    """
    for rows, bounds in lists.blocks():
        first_scores = reranker.first_stage_scores(rows)
        for begin, end in pairwise(bounds):
            scores = None if first_scores is None else first_scores[begin:end]
            yield reranker.rerank(CandidateList(rows[begin:end]), first_stage_scores=scores, **options)


def lists_of(rows: pl.DataFrame, schema: FeatureSchema, qid: str) -> PartLists:
    """Return the lists as :func:`read_unjudged` reads them, faster where all columns exist."""
    ids = names_in(rows[qid]) if is_text(rows[qid]) else rows[qid]
    if ids.dtype.is_integer() or ids.dtype == pl.String:
        features = _plain(rows, schema)
        if features is not None:
            begins = np.flatnonzero(np.concatenate([[True], ids[1:].ne_missing(ids[:-1]).to_numpy()]))
            return PartLists(features, np.append(begins, rows.height), None, ids.gather(begins).to_list())
    columns = rows.select(by_name([name for name in schema.names if name in rows.columns]))
    data, order = read_unjudged(columns, ids, schema, schema.names)
    assert isinstance(data.features, np.ndarray)
    return PartLists(data.features, data.offsets, order, data.qids)


def _plain(rows: pl.DataFrame, schema: FeatureSchema) -> pl.DataFrame | None:
    """Return the features as float32; None if a column or number is missing, of another type, or too large."""
    columns = []
    for feature in schema.features:
        if feature.name not in rows.columns:
            return None
        column = rows[feature.name]
        if feature.kind == "categorical":
            if not is_usable(column):
                return None
            columns.append(pl.Series(feature.name, codes_in(column, feature)))
            continue
        numbers = numbers_in(column)
        if len(numbers.wrong):
            return None
        values = numbers.values
        columns.append((values if values.dtype == pl.Float32 else values.cast(pl.Float64)).cast(pl.Float32))
    return None if any(np.isinf(column.to_numpy()).any() for column in columns) else pl.DataFrame(columns)


def rows_file(folder: Path, number: int) -> Path:
    """Return the path of a part's unranked rows, for data that a worker cannot read itself."""
    return folder / f"{number:07}{ARROW}"


def size_file(folder: Path, number: int) -> Path:
    """Return the path of a part's counts and notes; the file exists once the part is complete."""
    return folder / f"{number:07}.json"
