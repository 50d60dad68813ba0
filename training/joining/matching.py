"""Which record an event belongs to, in parts that fit into memory however long the log is.

Records and events are dealt into buckets by the hash of their query id. A bucket holds all of a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import polars as pl

from listwright.training.joining.causes import Cause, Counts
from listwright.training.joining.event_files import SUMMED, event_schema
from listwright.training.joining.labels import Labels

BUCKET_ROWS = 2_000_000
"""Records and events that a bucket should hold at most, on average."""

DEALT_ROWS = 200_000
"""Rows that are dealt at a time: one file a bucket for all of them."""

SKEW = timedelta(seconds=1)
"""An event may be so much earlier than the only answer that it can belong to: many clocks write whole seconds."""

_KEYS = ("query_id", "served_at", "record")
_WITHOUT_ID = ("query_id", "action_name", "client_id", "timestamp", "object_id")


def keys_of(pieces: Iterable[Path]) -> Iterator[pl.DataFrame]:
    """What of the records is matched, piece by piece."""
    for path in pieces:
        yield pl.read_parquet(path, columns=list(_KEYS))


def deal(frames: Iterable[pl.DataFrame], buckets: int, folder: Path, stem: str) -> None:
    """Write rows into the buckets of their queries: ``folder/BUCKET/STEM-NUMBER.parquet``."""
    for number, frame in enumerate(_together(frames)):
        dealt = frame.with_columns((pl.col("query_id").hash(seed=0) % buckets).alias("bucket"))
        for (bucket,), part in dealt.partition_by("bucket", as_dict=True, include_key=False).items():
            inside = folder / f"{int(str(bucket)):05}"
            inside.mkdir(parents=True, exist_ok=True)
            part.write_parquet(inside / f"{stem}-{number:07}.parquet", compression="lz4")


def _together(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Several frames as one, of :data:`DEALT_ROWS` or a little more."""
    held, rows = list[pl.DataFrame](), 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows >= DEALT_ROWS:
            yield pl.concat(held)
            held, rows = [], 0
    if held:
        yield pl.concat(held)


def worth_matching(frame: pl.DataFrame, labels: Labels, counts: Counts) -> pl.DataFrame:
    """Events whose action counts, and that name a query and a candidate; the others are counted."""
    for cause, good in (
        (Cause.NO_LABEL, pl.col("action_name").is_in(list(labels.actions))),
        (Cause.NO_QUERY, pl.col("query_id").is_not_null()),
        (Cause.NO_CANDIDATE, pl.col("object_id").is_not_null()),
    ):
        kept = frame.filter(good)
        counts[cause] += frame.height - kept.height
        frame = kept
    return frame


def match(folder: Path, window: timedelta, labels: Labels, counts: Counts) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events of a bucket with their records, and the records that do not stand.

    An event belongs to the list of its query that was served last, at its time or before; where there is none, to the
    first that was served up to :data:`SKEW` later. Of several records of one query the last
    one with an event stands, or the last one: the others were tries whose answer did not arrive, or lists that it
    replaced.

    Args:
        folder: of the bucket.
        window: an event counts up to so long after serving.
        labels: name the numbers that are summed.
        counts: of events that do not count; added to.

    Returns:
        Events with ``served_at`` and ``record``, by the time of serving; and ``served_at`` and ``record`` of the
        records that do not stand.
    """
    keys = _read(folder, "keys", {"query_id": pl.String(), "served_at": pl.Datetime("us"), "record": pl.Int64()})
    keys = keys.sort("served_at", "record")
    events = _read(folder, "events", event_schema(labels))
    once = _once(events)
    counts[Cause.DUPLICATE] += events.height - once.height
    known = once.join(keys.select("query_id").unique(), on="query_id", how="semi", maintain_order="left")
    counts[Cause.UNKNOWN_QUERY] += once.height - known.height
    known = known.sort("timestamp", maintain_order=True)
    before, near = _find_nearest_list(known, keys, "backward"), _find_nearest_list(known, keys, "forward")
    found = before.with_columns(before[name].fill_null(near[name]) for name in ("served_at", "record"))
    for cause, good in (
        (Cause.BEFORE_SERVING, pl.col("record").is_not_null()),
        (Cause.OUTSIDE_WINDOW, pl.col("timestamp") - pl.col("served_at") <= window),
    ):
        kept = found.filter(good)
        counts[cause] += found.height - kept.height
        found = kept
    with_events = keys.join(found, on="record", how="semi", maintain_order="left")
    stands = pl.concat([keys, with_events]).unique("query_id", keep="last", maintain_order=True)
    superseded = keys.join(stands, on="record", how="anti").select("served_at", "record")
    kept = found.join(stands, on="record", how="semi", maintain_order="left")
    counts[Cause.REPLACED] += found.height - kept.height
    summed = [SUMMED + name for name in labels.sums]
    matched = kept.select("record", "served_at", "object_id", "action_name", "ordinal", *summed)
    return matched.sort("served_at", "record", maintain_order=True), superseded.sort("served_at", "record")


def _find_nearest_list(events: pl.DataFrame, keys: pl.DataFrame, side: Literal["backward", "forward"]) -> pl.DataFrame:
    """Each event with the list of its query that was served last before it, or first within :data:`SKEW` after it."""
    return events.join_asof(
        keys.select("query_id", "served_at", "record"),
        left_on="timestamp",
        right_on="served_at",
        by="query_id",
        strategy=side,
        tolerance=None if side == "backward" else SKEW,
        coalesce=False,
        check_sortedness=False,  # both are sorted
    )


def _once(events: pl.DataFrame) -> pl.DataFrame:
    """Each event once: by its id within its query, or, without an id, by all that it says."""
    named = events.filter(pl.col("event_id").is_not_null())
    unnamed = events.filter(pl.col("event_id").is_null())
    return pl.concat(
        [
            named.unique(["query_id", "event_id"], keep="first", maintain_order=True),
            unnamed.unique(list(_WITHOUT_ID), keep="first", maintain_order=True),
        ]
    )


def _read(folder: Path, stem: str, schema: dict[str, Any]) -> pl.DataFrame:
    found = sorted(folder.glob(f"{stem}-*.parquet"))
    return pl.read_parquet(found) if found else pl.DataFrame(schema=schema)
