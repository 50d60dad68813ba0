"""Tables of judged rows, as ``listwright join`` writes them: they say themselves which columns are features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from listwright.ranking.plain_file import from_json
from listwright.training.data.sources import path_of
from listwright.training.data.tables.frames import is_parquet
from listwright.training.recipe.data import TableData

KEY = "listwright.judged"
"""Metadata of the Parquet file: JSON of the feature columns, and the columns of query ids, labels and times."""


def judged_metadata(
    features: Sequence[str], *, qid: str, label: str, time: str, prefix: str = "", seen: bool = False
) -> dict[str, str]:
    """The metadata of a file of judged rows.

    Args:
        features: names of the feature columns, in order.
        qid, label, time: names of other columns.
        prefix: of the names of all columns but the features.
        seen: whether shown candidates are missing that nobody saw.
    """
    said = {"features": list(features), "qid": qid, "label": label, "time": time, "prefix": prefix, "seen": seen}
    return {KEY: json.dumps(said)}


def with_judged_columns(spec: TableData, sources: Sequence[str]) -> TableData:
    """A reading of tables under which judged rows need no options: their files say which columns are what.

    Args:
        spec: what a recipe and a command line say; this comes first.
        sources: the tables; those of judged rows are told by their metadata.

    Returns:
        The same where the first table holds no judged rows. Otherwise columns that are neither features nor named are
        ignored.
    """
    said = said_of(path_of(sources[0])) if sources else None
    if said is None:
        return spec
    features, split = set(said["features"]), spec.split
    if split.by == "time" and split.column is None:
        split = split.model_copy(update={"column": said["time"]})
    qid, label = spec.qid or said["qid"], spec.label or said["label"]
    named = {qid, label, spec.weight, split.column, *spec.categorical}
    columns = pl.read_parquet_schema(path_of(sources[0]))
    others = tuple(name for name in columns if name not in features | named and name not in spec.ignore)
    return spec.model_copy(update={"qid": qid, "label": label, "split": split, "ignore": (*spec.ignore, *others)})


def said_of(path: Path) -> dict[str, Any] | None:
    """What a file of judged rows says of its columns; None of another file."""
    if not path.is_file() or not is_parquet(path):
        return None
    try:
        text = pl.read_parquet_metadata(path).get(KEY)
        found = None if text is None else from_json(text)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None  # whoever reads the table says what is wrong with it
    return found if isinstance(found, dict) and {"features", "qid", "label", "time"} <= found.keys() else None
