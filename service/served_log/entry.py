"""Entries of the served log: an answered request as it is queued and as a record, and counts of dropped ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from prometheus_client import Counter

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.manifest import Manifest
from listwright.ranking.served_log.record import Columns, RuleEffect, ServedRecord, hashed
from listwright.service.participation import Participation
from listwright.service.telemetry.logs import Repeats

MOST_SCHEMAS = 64

LARGEST_INT = 2**31 - 1
"""Largest ``int`` of Avro; a request may ask for more."""

WARN_S = 30.0
"""Seconds between two log lines about one reason."""

_known: dict[str, Columns] = {}
"""Columns by fingerprint; only the writer's thread uses it."""

_log = logging.getLogger("listwright.served")


class LogEntry(NamedTuple):
    """An answered request, as it is queued; nothing of it is copied or changed.

    Args:
        query_id: Id that the query's events have.
        request_id: Id of the HTTP request.
        unit: Unit that the caller sent.
        top_n: Number of results in the answer; None: all.
        candidates: Candidates that were ranked.
        ranking: Ranking that was answered.
        manifest: Manifest of the bundle.
        milliseconds: Milliseconds by step.
        at: Time of the answer, in seconds since 1970.
        part: Part of the request in an experiment; None: in none.
    """

    query_id: str
    request_id: str
    unit: str | None
    top_n: int | None
    candidates: CandidateList
    ranking: Ranking
    manifest: Manifest
    milliseconds: Mapping[str, float]
    at: float
    part: Participation | None = None


def to_record(entry: LogEntry, salt: bytes | None) -> ServedRecord:
    """Convert an answered request to a record.

    Args:
        entry: Request that was answered.
        salt: Salt that units are hashed with; None keeps them as they were sent.
    """
    ranking, manifest, ids, part = entry.ranking, entry.manifest, entry.candidates.ids, entry.part
    columns = columns_of(manifest)
    unit = entry.unit
    return ServedRecord(
        query_id=entry.query_id,
        served_at=datetime.fromtimestamp(entry.at, UTC),
        unit=unit if unit is None or salt is None else hashed(unit, salt),
        bundle=f"{manifest.name}/{manifest.version}",
        fingerprint=manifest.fingerprint,
        candidate_ids=_place_ids(len(entry.candidates)) if ids is None else ids,
        features=entry.candidates.features,
        first_stage_scores=np.asarray(ranking.first_stage_scores, dtype=np.float64),
        scores=np.asarray(ranking.scores, dtype=np.float64),
        order=ranking.results[: entry.top_n],
        strategy=ranking.route.strategy,
        feature_names=columns.names,
        request_id=entry.request_id,
        top_n=None if entry.top_n is None else min(entry.top_n, LARGEST_INT),
        route=_route_json(ranking.route),
        degraded=ranking.reason,
        experiment=None if part is None else part.experiment,
        arm=None if part is None else part.arm,
        teams=None if part is None else part.teams,
        intervention=None if part is None else part.intervention,
        shadow=None if part is None else part.shadow,
        timings_ms=entry.milliseconds,
        rules=tuple(
            RuleEffect(rule.name, rule.action, rule.candidates) for rule in ranking.rules if rule.reason is None
        ),
        probabilities=ranking.probability,
        weights=ranking.weights,
        categories=columns.categories,
    )


def columns_of(manifest: Manifest) -> Columns:
    """Return the columns of a bundle's lists; made once for each schema."""
    columns = _known.get(manifest.fingerprint)
    if columns is None:
        if len(_known) == MOST_SCHEMAS:
            _known.pop(next(iter(_known)))
        schema = manifest.feature_schema
        columns = Columns(schema.names, {f.name: f.categories for f in schema.features if f.kind == "categorical"})
        _known[manifest.fingerprint] = columns
    return columns


@lru_cache(64)
def _place_ids(length: int) -> tuple[str, ...]:
    """Return ids for candidates that have none: their positions."""
    return tuple(map(str, range(length)))


def _route_json(route: Route) -> str | None:
    """Return JSON of how the ranker was chosen; None for the bundle's default."""
    if route.decided_by == "bundle" and not route.faults:
        return None
    facts = {
        "decided_by": route.decided_by,
        "specialist": route.specialist,
        "confidence": route.confidence,
        "probabilities": None if route.probabilities is None else route.probabilities.tolist(),
        "gains": None if route.gains is None else route.gains.tolist(),
        "faults": [fault.kind for fault in route.faults],
    }
    return json.dumps({name: value for name, value in facts.items() if value not in (None, [])})


class Drops:
    """Counts of dropped records, by reason. For several threads.

    Args:
        counter: Counter of dropped records, with a label for the reason.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter, self._repeats = counter, Repeats(WARN_S)

    def note(self, reason: str, count: int, why: str) -> None:
        """Count dropped records, and log them with those since the last line, at most once in :data:`WARN_S`.

        Args:
            reason: Stable and short name of the reason, to count by.
            count: Number of records; 0 counts nothing.
            why: Reason for people, with the remedy.
        """
        if not count:
            return
        self._counter.labels(reason).inc(count)
        if total := self._repeats.note(reason, count):
            facts = {"reason": reason, "records": total}
            _log.warning("served records were dropped: %s", why, extra={"facts": facts})
