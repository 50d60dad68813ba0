"""Runs over tables and splits that remember, line by line, what is finished."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from listwright.training.data.dataset import Splits
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.data import TableData

SPLITS = 5

Row = dict[str, Any]

Key = tuple[str, int, str]
"""Table, number of the split from 1, and what is measured there."""


PERSON = "person"
"""Column of the household or person of a list; no feature."""


def read_split(table: Path, number: int, *, persons_apart: bool = False) -> Splits:
    """Return a split of a table, 60/20/20 by query as ``listwright fit --fold NUMBER`` reads it.

    Args:
        table: Parquet with ``qid`` and ``label``.
        number: Number of the split, from 1.
        persons_apart: Whether the split is by :data:`PERSON` instead.
    """
    data = TableData(qid="qid", label="label", ignore=ignored(table))
    recipe = config.changed(config.load("table"), {"data": data})
    if not persons_apart:
        return load(config.changed(recipe, {"fold": number}), [str(table)])
    rows = pl.read_parquet(table)
    persons = rows[PERSON].unique().sort()
    part_of = np.random.default_rng(0).permutation(len(persons)) % SPLITS
    part = rows[PERSON].replace_strict(persons, part_of)
    test, valid = part == number - 1, part == number % SPLITS
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in ("train", "valid", "test")}
        for file, mask in zip(files.values(), (~test & ~valid, valid, test), strict=True):
            rows.filter(mask).write_parquet(file)
        return load(recipe, [f"{name}={file}" for name, file in files.items()])


def ignored(table: Path) -> tuple[str, ...]:
    """Return the columns of a table that are no features."""
    return (PERSON,) if PERSON in pl.read_parquet_schema(table) else ()


def read_rows(file: Path) -> dict[Key, Row]:
    """Return the rows of a file of JSON lines by their key; none where there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # a killed run may leave half a line
    return {(row["table"], row["split"], row["entrant"]): row for row in rows}


def measure_missing(file: Path, keys: Iterable[Key], measure: Callable[[Key], Row]) -> None:
    """Measure what a file of JSON lines has no row of, and append a line for each as soon as it is done."""
    done = read_rows(file)
    for key in keys:
        if key in done:
            continue
        row = dict(zip(("table", "split", "entrant"), key, strict=True)) | measure(key)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(*key, flush=True)
