"""A small join."""

from datetime import timedelta

import pytest

from listwright.ranking.served_log.files import write
from listwright.training.console.progress import SILENT
from listwright.training.traffic.join.events import Labels
from listwright.training.traffic.join.job import JoinJob, join
from support.events import write_events

LABELS = Labels(labels={"purchase": 3, "click": 1})


@pytest.fixture
def joined(tmp_path):
    """Joins records and events with two options changed at will; the result, and the file."""

    def run(
        records,
        events,
        *,
        out="rows.parquet",
        resume=False,
        several=None,
        source="events.jsonl",
        progress=SILENT,
        **changes,
    ):
        served = tmp_path / "served"
        if not served.exists():
            served.mkdir()
            for number, part in enumerate(several or [records]):
                write(served / f"{number}.avro", part)
            write_events(tmp_path / "events.jsonl", events)
        job = {"labels": LABELS, "window": timedelta(minutes=30), "events": (tmp_path / source,), **changes}
        found = join(JoinJob(served=served, out=tmp_path / out, **job), resume=resume, progress=progress)
        return found, tmp_path / out

    return run
