"""Runs over tables and splits that remember, line by line, what is finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from listwright.training.data.dataset import Splits
from listwright.training.recipe import config
from listwright.training.recipe.data import TableData
from listwright.training.steps import load

SPLITS = 5

Row = dict[str, Any]

Key = tuple[str, int, str]
"""Table, number of the split from 1, and what is measured there."""


def read_split(table: Path, number: int) -> Splits:
    """Return a split of a table, by query 60/20/20, as ``listwright fit --fold NUMBER`` reads it."""
    data = TableData(qid="qid", label="label")
    return load(config.changed(config.load("table"), {"data": data, "fold": number}), [str(table)])


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
