"""The parser of LETOR text on polars, where there was no C compiler: a whole chunk, or None on any doubt."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.features import MISSING_WORDS

MAX_INDEX = 65_536
MAX_LABEL = 30
"""LightGBM's table of the gains ``2^y - 1`` ends here."""

MISSING_DOUBLE = float(np.finfo(np.float64).max)
"""1.797693134862315708e+308, which the Istella sets write where a feature has no value (PT-Ranking's notes on its data
sets name it too, and replace it); NaN here."""

FLOAT32_BOUND = 2.0**128 - 2.0**103
"""The smallest number that float32 rounds to infinity."""

_BLANKS = bytes.maketrans(b"\t\r\f\v", b"    ")


class Block(NamedTuple):
    """Parsed lines of one chunk."""

    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    qids: list[str]  # of each run of rows with one qid; empty without qids
    runs: Int[np.ndarray, " lists"]  # rows in each run
    lines: Int[np.ndarray, " R"]  # 1-based line of each row


def parse_fast(chunk: bytes, first_line: int, *, with_qid: bool) -> Block | None:
    """Parse lines with one blank between tokens; None on any doubt."""
    text = re.sub(rb"#[^\n]*", b"", chunk).translate(_BLANKS)
    if not text.isascii() or b" +" in text:  # the cast to integers takes +1, which is no index
        return None
    rows = (
        pl.DataFrame({"text": [text.decode("ascii")]})
        .select(pl.col("text").str.split("\n").explode().str.strip_chars(" "))
        .with_row_index("line")
        .filter(pl.col("text") != "")
        .select("line", pl.col("text").str.splitn(" ", 3 if with_qid else 2))
        .unnest("text")
    )
    labels = rows["field_0"].cast(pl.Float64, strict=False).to_numpy()  # null becomes NaN
    queries = rows["field_1"] if with_qid else pl.Series(dtype=pl.String)
    is_regular = (
        queries.str.contains("^qid:[!-~]+$").all(ignore_nulls=False) and np.isin(labels, range(MAX_LABEL + 1)).all()
    )
    features = _to_matrix(rows["field_2" if with_qid else "field_1"]) if is_regular else None
    if features is None:
        return None
    runs = queries.str.slice(len("qid:")).rle().struct.unnest()
    lengths, lines = (column.to_numpy().astype(np.int64) for column in (runs["len"], rows["line"]))
    return Block(features, labels.astype(np.int32), runs["value"].to_list(), lengths, first_line + lines)


def _to_matrix(texts: pl.Series) -> Float[np.ndarray, "R D"] | None:
    """Parse each row's ``index:value`` pairs, null where it has none; None on any doubt."""
    pairs = (
        pl.DataFrame({"pair": texts})
        .with_row_index("row")
        .drop_nulls()
        .with_columns(pl.col("pair").str.split(" "))
        .explode("pair")
        .select("row", pl.col("pair").str.splitn(":", 2))
        .unnest("pair")
        .with_columns(
            index=pl.col("field_0").cast(pl.Int64, strict=False), value=pl.col("field_1").cast(pl.Float64, strict=False)
        )
    )
    others = pairs["field_1"].filter(pairs["value"].is_null()).str.to_lowercase()
    if pairs["index"].has_nulls() or not others.is_in(MISSING_WORDS - {""}).all(ignore_nulls=False):
        return None
    row, index, value = (pairs[column].to_numpy() for column in ("row", "index", "value"))
    value = np.where(value == MISSING_DOUBLE, np.nan, value)
    increases = (np.diff(index) > 0) | (np.diff(row) > 0)
    if ((index < 1) | (index > MAX_INDEX) | (np.abs(value) >= FLOAT32_BOUND)).any() or not increases.all():
        return None
    features = np.zeros((len(texts), index.max(initial=0)), dtype=np.float32)
    features[row, index - 1] = value
    return features
