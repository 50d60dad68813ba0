"""An answered request as a served record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

from listwright.ranking.candidates import Route
from listwright.ranking.manifest import Manifest
from listwright.ranking.served.record import Columns, ServedRecord, hashed
from listwright.service.served_log.taken import Taken

MOST_SCHEMAS = 64

LARGEST_INT = 2**31 - 1
"""Of Avro's ``int``; a request may ask for more."""

_known: dict[str, Columns] = {}
"""By fingerprint, for the thread that writes alone."""


def to_served(taken: Taken, salt: bytes | None) -> ServedRecord:
    """The record of a request that was answered.

    Args:
        taken: from the request path.
        salt: that units are hashed with; None keeps them as they were sent.
    """
    ranking, manifest, ids, part = taken.ranking, taken.manifest, taken.candidates.ids, taken.part
    columns = columns_of(manifest)
    unit = taken.unit
    return ServedRecord(
        query_id=taken.query_id,
        served_at=datetime.fromtimestamp(taken.at, UTC),
        unit=unit if unit is None or salt is None else hashed(unit, salt),
        bundle=f"{manifest.name}/{manifest.version}",
        fingerprint=manifest.fingerprint,
        candidate_ids=_numbers(len(taken.candidates)) if ids is None else ids,
        features=taken.candidates.features,
        first_stage_scores=np.asarray(ranking.first_stage_scores, dtype=np.float64),
        scores=np.asarray(ranking.scores, dtype=np.float64),
        order=ranking.order[: taken.top_n],
        strategy=ranking.route.strategy,
        feature_names=columns.names,
        request_id=taken.request_id,
        top_n=None if taken.top_n is None else min(taken.top_n, LARGEST_INT),
        route=_told(ranking.route),
        degraded=ranking.reason,
        experiment=None if part is None else part.experiment,
        arm=None if part is None else part.arm,
        teams=None if part is None else part.teams,
        intervention=None if part is None else part.intervention,
        shadow=None if part is None else part.shadow,
        timings_ms=taken.milliseconds,
        categories=columns.categories,
    )


def columns_of(manifest: Manifest) -> Columns:
    """What the columns of a bundle's lists are; made once for each schema."""
    found = _known.get(manifest.fingerprint)
    if found is None:
        if len(_known) == MOST_SCHEMAS:
            _known.pop(next(iter(_known)))
        schema = manifest.feature_schema
        found = Columns(schema.names, {f.name: f.categories for f in schema.features if f.kind == "categorical"})
        _known[manifest.fingerprint] = found
    return found


@lru_cache(64)
def _numbers(length: int) -> tuple[str, ...]:
    """Ids of candidates that have none."""
    return tuple(map(str, range(length)))


def _told(route: Route) -> str | None:
    """JSON of who chose the ranker; None where nobody was asked."""
    if route.decided_by == "bundle" and not route.faults:
        return None
    told = {
        "decided_by": route.decided_by,
        "specialist": route.specialist,
        "confidence": route.confidence,
        "probabilities": None if route.probabilities is None else route.probabilities.tolist(),
        "gains": None if route.gains is None else route.gains.tolist(),
        "faults": [fault.kind for fault in route.faults],
    }
    return json.dumps({name: value for name, value in told.items() if value not in (None, [])})
