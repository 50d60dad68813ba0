"""The join gives what a plain loop over all records and events gives, in parts of whatever size."""

import tempfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.ranking.errors import DataError
from listwright.ranking.served_log.files import write
from listwright.training.traffic.join.events import COUNTED, Cause, Labels
from listwright.training.traffic.join.job import JoinJob, join
from support.events import event, write_events
from support.served import NOON, served_record
from support.strategies import scale_examples

WORTH = {"purchase": 3, "click": 1}
WINDOW = timedelta(minutes=10)
RECORDS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 7200), st.permutations(range(4)), st.integers(1, 4)),
    min_size=1,
    max_size=12,
    unique_by=lambda record: record[1],
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 4),
        st.sampled_from(["click", "purchase", "hover"]),
        st.integers(-5, 9000),
        st.sampled_from([None, "e1", "e2", "e3"]),
    ),
    max_size=20,
)


def list_of(several, at):
    """Which of the lists of a query an event belongs to, or why to none."""
    before = [one for one in several if one.served_at <= at]
    before = before or [one for one in several if one.served_at - timedelta(seconds=1) <= at]
    if not several:
        return None, Cause.UNKNOWN_QUERY
    if not before:
        return None, Cause.BEFORE_SERVING
    return (None, Cause.OUTSIDE_WINDOW) if at - before[-1].served_at > WINDOW else (before[-1], None)


def by_hand(records, events):
    """Rows and counts, event by event."""
    lists = {}
    for record in sorted(records, key=lambda record: record.served_at):
        lists.setdefault(record.query_id, []).append(record)
    counts, found, seen = Counter(), [], set()
    for sent in events:
        query, item = sent["query_id"], sent["event_attributes"]["object"]["object_id"]
        key = (query, sent.get("event_id") or (sent["action_name"], sent["timestamp"], item))
        if sent["action_name"] not in WORTH:
            counts[Cause.NO_LABEL] += 1
            continue
        if key in seen:
            counts[Cause.DUPLICATE] += 1
            continue
        seen.add(key)
        record, cause = list_of(lists.get(query, []), datetime.fromisoformat(sent["timestamp"]))
        if record is None:
            counts[cause] += 1
        else:
            found.append((record, item, WORTH[sent["action_name"]]))
    used = {id(record) for record, _, _ in found}
    stands = {query: ([one for one in several if id(one) in used] or several)[-1] for query, several in lists.items()}
    labels = {}
    for record, item, worth in found:
        if record is not stands[record.query_id]:
            counts[Cause.REPLACED] += 1
        elif item not in record.candidate_ids:
            counts[Cause.NOT_IN_LIST] += 1
        elif record.candidate_ids.index(item) not in record.order:
            counts[Cause.NOT_SHOWN] += 1
        else:
            counts[COUNTED] += 1
            labels[record.query_id, item] = max(labels.get((record.query_id, item), 0), worth)
    rows = [
        (
            record.query_id,
            record.candidate_ids[index],
            place,
            labels.get((record.query_id, record.candidate_ids[index]), 0),
        )
        for record in sorted(stands.values(), key=lambda record: record.served_at)
        for place, index in enumerate(record.order.tolist(), start=1)
    ]
    return rows, counts


@settings(max_examples=scale_examples(30))
@given(RECORDS, EVENTS, st.integers(1, 40), st.integers(1, 4000))
def test_the_join_is_a_loop_over_everything(asked, sent, bucket_rows, slice_bytes):
    records = [
        served_record(number, served_at=NOON + timedelta(seconds=at), order=np.array(order[:shown]))
        for number, at, order, shown in asked
    ]
    events = []
    for number, place, action, at, key in sent:
        events.append(event(number, place, action=action, timestamp=(NOON + timedelta(seconds=at)).isoformat()))
        if key is not None:
            events[-1]["event_id"] = key
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "1.avro", records[: len(records) // 2 + 1])
        if records[len(records) // 2 + 1 :]:
            write(folder / "2.avro", records[len(records) // 2 + 1 :])
        write_events(folder / "events.jsonl", events)
        job = JoinJob(
            folder,
            (folder / "events.jsonl",),
            Labels(labels=WORTH),
            WINDOW,
            folder / "rows.parquet",
            bucket_rows=bucket_rows,
            slice_bytes=slice_bytes,
        )
        expected, counts = by_hand(records, events)
        if counts.keys() - {COUNTED, Cause.NO_LABEL} and not counts[COUNTED]:
            with pytest.raises(DataError, match="no event counts"):
                join(job)
            return
        found = join(job)
        rows = pl.read_parquet(folder / "rows.parquet")
    assert list(rows.select("query_id", "candidate_id", "position", "label").iter_rows()) == expected
    assert {cause: count for cause, count in found.counts.items() if cause in (COUNTED, *Cause)} == +counts
