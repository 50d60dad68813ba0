"""Ranking data of any size, drawn and written block by block: lists, ties and grades as large public sets have them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from polars.io.plugins import register_io_source

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import RecipeError
from listwright.training.console.progress import Progress
from listwright.training.job_folder import disk_full_as_data_error

BLOCK_QUERIES = 512
BLOCK_CELLS = 2**25
"""Queries that are drawn at a time, fewer where they would have more cells than this: memory depends on these numbers,
not on how many queries there are in all."""

GRADE_SHARES = (0.52, 0.32, 0.13, 0.02, 0.01)
"""Shares of labels 0 to 4, about as in MSLR-WEB10K; per list they differ, and some lists have none above 0."""

SPREAD_OF_LENGTHS = 0.6
"""Standard deviation of the logarithm of the list length."""

MISSING = 0.02
"""Share of missing values in every tenth feature."""

_USED = 12
"""Features that the utility is made of, at most."""

_PILOT_ROWS = 100_000


ENDINGS = (".parquet", ".csv", ".txt")

MOST_CELLS = 4 * BLOCK_CELLS
"""Most cells of one list, which is drawn at once."""

_GROUP_ROWS = 50_000
_TEXT_CELLS = 2**22
"""Cells that are formatted at a time."""


class SyntheticBlock(NamedTuple):
    """Some complete queries.

    Args:
        first: Number of the first query, from 0.
        features: ``(R, D)`` float32; NaN = missing.
        labels: ``(R,)`` labels 0 to 4.
        lengths: ``(N,)`` numbers of rows of the queries.
    """

    first: int
    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    lengths: Int[np.ndarray, " N"]


def blocks(
    queries: int, features: int, *, length: int = 100, longest: int = 1000, seed: int = 0
) -> Iterator[SyntheticBlock]:
    """Draw queries; the same arguments give the same data, and more queries begin with those of fewer.

    List lengths are log-normal with mean ``length``, cut at ``longest``. Each row has standard normal values z. Its
    utility is linear in the first of them, with one product, a level of its query, and Gumbel noise. Fixed bounds grade
    it. The columns show z in five forms, in turn: as it is, shifted per query, as a count, as a positive number that is
    often 0, and rounded to two digits. Counts, zeros and rounding make ties.

    Args:
        queries: Number of queries, N.
        features: Number of features, D.
        length, longest: Mean and largest length of a list.
        seed: Seed of all randomness.
    """
    fixed = np.random.default_rng([seed, 0])
    width = min(features, _USED)
    weights = fixed.normal(size=width).astype(np.float32)
    bounds = _bounds(weights, fixed)
    at_once = max(1, min(BLOCK_QUERIES, BLOCK_CELLS // (features * min(length, longest))))
    for number, first in enumerate(range(0, queries, at_once), start=1):
        rng = np.random.default_rng([seed, number])
        lengths = _lengths(at_once, length, longest, rng)  # of a whole block, so that the last begins as any
        rows, query_of = int(lengths.sum()), np.repeat(np.arange(at_once), lengths)
        z = rng.standard_normal((rows, features), dtype=np.float32)
        utilities = _utilities(z[:, :width], weights, rng.normal(size=at_once)[query_of], rng)
        labels = np.searchsorted(bounds, utilities).astype(np.int32)
        columns = _fill_columns(z, query_of, at_once, rng)
        count = min(at_once, queries - first)
        rows_of_count = int(lengths[:count].sum())
        yield SyntheticBlock(first, columns[:rows_of_count], labels[:rows_of_count], lengths[:count])


def _lengths(count: int, length: int, longest: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    middle = np.log(length) - SPREAD_OF_LENGTHS**2 / 2
    sample = np.exp(rng.normal(middle, SPREAD_OF_LENGTHS, size=count))
    lengths: Int[np.ndarray, " N"] = sample.round().astype(np.int64).clip(1, longest)
    return lengths


def _utilities(
    z: Float[np.ndarray, "R F"],
    weights: Float[np.ndarray, " F"],
    levels: Float[np.ndarray, " R"],
    rng: np.random.Generator,
) -> Float[np.ndarray, " R"]:
    with np.errstate(invalid="ignore"):  # a BLAS may set the flag for lanes that it reads beyond the rows
        sums = z @ weights
    utilities: Float[np.ndarray, " R"] = sums + z[:, 0] * z[:, -1] + levels + rng.gumbel(size=len(z))
    return utilities


def _bounds(weights: Float[np.ndarray, " F"], rng: np.random.Generator) -> Float[np.ndarray, " bounds"]:
    """Return the utilities between grades, so that each grade has its share."""
    z = rng.standard_normal((_PILOT_ROWS, len(weights)), dtype=np.float32)
    utilities = _utilities(z, weights, rng.normal(size=_PILOT_ROWS), rng)
    bounds: Float[np.ndarray, " bounds"] = np.quantile(utilities, np.cumsum(GRADE_SHARES[:-1]))
    return bounds


def _fill_columns(
    z: Float[np.ndarray, "R D"], query_of: Int[np.ndarray, " R"], queries: int, rng: np.random.Generator
) -> Float[np.ndarray, "R D"]:
    """Replace z by what the feature columns hold."""
    shifts = rng.standard_normal((queries, z[:, 1::5].shape[1]), dtype=np.float32)
    z[:, 1::5] += 2.0 * shifts[query_of]
    z[:, 2::5] = np.floor(np.exp(z[:, 2::5]))
    z[:, 3::5] = np.maximum(z[:, 3::5], 0.0) ** 2
    z[:, 4::5] = np.round(z[:, 4::5], 2)
    holes = z[:, 9::10]
    holes[rng.random(holes.shape, dtype=np.float32) < MISSING] = np.nan
    return z


def write(out: Path, queries: int, features: int, *, length: int, longest: int, seed: int, progress: Progress) -> int:
    """Write a set in full or not at all; return the number of its rows.

    Args:
        out: Parquet, CSV or LETOR text file, by the ending of its name; it must not exist.
        queries, features, length, longest, seed: Arguments of :func:`blocks`.
        progress: Report of the queries written.

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

    with disk_full_as_data_error(out.parent, "make some, or choose another --out"), atomic_file(out) as file:
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
