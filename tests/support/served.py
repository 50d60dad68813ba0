"""Served records for tests."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import rank_by_score
from listwright.ranking.served_log.encoding import Block
from listwright.ranking.served_log.record import ServedRecord
from listwright.ranking.stages import LightGbmStage
from listwright.service.served_log.entry import LogEntry
from listwright.service.served_log.writer import LogWriter
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from support.service.bundles import schema

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

NAMES = ("price", "stars", "carrier")


def served_record(number=0, length=4, *, names=NAMES, **changes):
    """A record whose values depend on its number only; ``changes`` replace fields."""
    rng = np.random.default_rng(number)
    first = rng.normal(size=length)
    fields = {
        "query_id": f"query-{number}",
        "served_at": NOON + timedelta(seconds=number),
        "unit": f"unit-{number % 3}",
        "bundle": "shop/1",
        "fingerprint": "sha256:0",
        "candidate_ids": tuple(f"sku-{number}-{place}" for place in range(length)),
        "features": rng.normal(size=(length, len(names))).astype(np.float32),
        "first_stage_scores": first,
        "scores": first,
        "order": np.argsort(-first, kind="stable"),
        "strategy": "first_stage",
        "feature_names": names,
        "request_id": f"request-{number}",
        "timings_ms": {"parse": 0.5, "total": 2.0},
    }
    return ServedRecord(**{**fields, **changes})


def block_of(*records):
    """Records as a block."""
    block = Block()
    for record in records:
        block.add(record)
    return block


def as_bytes(record):
    """A record as the log has it."""
    return block_of(record).encoded()


def log_entry(number=0, length=4, **changes):
    """What the request path hands over of an answered request."""
    columns = schema(categorical=True)
    rng = np.random.default_rng(number)
    first = rng.normal(size=length)
    order = rank_by_score(first)
    manifest = Manifest(
        name="shop",
        version="7",
        created_at=NOON,
        recipe={},
        data="none",
        feature_schema=columns,
        fingerprint=columns.fingerprint,
        first_stage=LightGbmStage(),
        second_stages=(),
        strategy="first_stage",
    )
    fields = {
        "query_id": f"query-{number}",
        "request_id": f"request-{number}",
        "unit": f"unit-{number % 3}",
        "top_n": None,
        "candidates": CandidateList(rng.normal(size=(length, len(columns))).astype(np.float32)),
        "ranking": Ranking(order, first, first, first, "first_stage", Route("first_stage", "bundle")),
        "manifest": manifest,
        "milliseconds": {"total": 2.0},
        "at": NOON.timestamp() + number,
    }
    return LogEntry(**{**fields, **changes})


@contextmanager
def logging_to(folder, **settings):
    """A writer over a folder, its telemetry beside it; closed at the end."""
    telemetry = Telemetry()
    settings = Settings(**{"bundle": folder, "served_log": folder, "served_flush_s": 0.01, **settings})
    writer = LogWriter(settings, telemetry)
    try:
        yield writer, telemetry
    finally:
        writer.close()


def counted(telemetry, name, **labels):
    """A counter's value; 0 where nothing was counted."""
    return telemetry.registry.get_sample_value(f"listwright_served_{name}_total", labels) or 0.0
