"""Served records for tests."""

from datetime import UTC, datetime, timedelta

import numpy as np

from listwright.ranking.served.record import ServedRecord

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
