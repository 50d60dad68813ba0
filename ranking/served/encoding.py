"""Records and blocks as bytes.

A record is in three pieces: the bytes of ``features``, nine in ten of all, and what stands before and behind them. A
block is a list of pieces, which :func:`os.writev` writes as they are.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import fastavro
import numpy as np

from listwright.ranking import extensions
from listwright.ranking.served.framing import long_bytes
from listwright.ranking.served.record import Columns, Intervention, ServedRecord, ShadowRanking
from listwright.ranking.served.schema import CATEGORIES_KEY, FEATURES_KEY, SCHEMA, SCHEMA_VERSION, VERSION_KEY

Part = bytes | memoryview

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PARSED: Any = fastavro.parse_schema(SCHEMA)
_PLACE = next(place for place, field in enumerate(SCHEMA["fields"]) if field["name"] == "features")
_HEAD: Any = fastavro.parse_schema({**SCHEMA, "name": "Head", "fields": SCHEMA["fields"][:_PLACE]})
_TAIL: Any = fastavro.parse_schema({**SCHEMA, "name": "Tail", "fields": SCHEMA["fields"][_PLACE + 1 :]})
"""A record's bytes are its fields', one after the other: so it may be encoded in parts."""


class Encoded(NamedTuple):
    """A record as bytes.

    Args:
        parts: one after the other.
        size: bytes of all of them.
    """

    parts: tuple[Part, ...]
    size: int


def encode(record: ServedRecord) -> Encoded:
    """The bytes of one record, which hold no array; by the compiled module where it is built and knows the record."""
    compiled = extensions.served_record
    if compiled is None or record.intervention is not None or record.shadow is not None:
        return encode_by_fastavro(record)
    since = record.served_at - _EPOCH
    parts = compiled.encoded(
        (record.query_id,),
        (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
        record.unit,
        (record.bundle, record.fingerprint),
        record.candidate_ids,
        np.ascontiguousarray(record.features, dtype="<f4"),
        np.ascontiguousarray(record.first_stage_scores, dtype="<f8"),
        np.ascontiguousarray(record.scores, dtype="<f8"),
        record.order,
        record.top_n,
        (record.strategy, record.route, record.degraded, record.experiment, record.arm),
        record.teams,
        record.timings_ms,
        record.request_id,
    )
    return Encoded(parts, sum(map(len, parts)))


def encode_by_fastavro(record: ServedRecord) -> Encoded:
    """The same bytes, from the library; four times as slow."""
    features = np.ascontiguousarray(record.features, dtype="<f4").tobytes()
    file = io.BytesIO()
    head = {
        "query_id": record.query_id,
        "served_at": record.served_at,
        "unit": record.unit,
        "bundle": record.bundle,
        "fingerprint": record.fingerprint,
        "candidate_ids": record.candidate_ids,
    }
    fastavro.schemaless_writer(file, _HEAD, head, disable_tuple_notation=True)
    file.write(long_bytes(len(features)))
    before, file = file.getvalue(), io.BytesIO()
    fastavro.schemaless_writer(file, _TAIL, _tail(record), disable_tuple_notation=True)
    after = file.getvalue()
    return Encoded((before, features, after), len(before) + len(features) + len(after))


def _tail(record: ServedRecord) -> dict[str, Any]:
    return {
        "first_stage_scores": np.asarray(record.first_stage_scores, dtype="<f8").tobytes(),
        "scores": np.asarray(record.scores, dtype="<f8").tobytes(),
        "order": record.order.tolist(),
        "top_n": record.top_n,
        "strategy": record.strategy,
        "route": record.route,
        "degraded": record.degraded,
        "experiment": record.experiment,
        "arm": record.arm,
        "teams": record.teams,
        "intervention": _intervention(record.intervention),
        "shadow": _shadow(record.shadow),
        "timings_ms": record.timings_ms,
        "request_id": record.request_id,
    }


def _intervention(done: Intervention | None) -> dict[str, Any] | None:
    return None if done is None else {"kind": done.kind, "places": done.places, "propensity": done.propensity}


def _shadow(seen: ShadowRanking | None) -> dict[str, Any] | None:
    return None if seen is None else {"bundle": seen.bundle, "order": seen.order, "status": seen.status}


def header(columns: Columns, sync: bytes) -> bytes:
    """The beginning of a file.

    Args:
        columns: of all its records.
        sync: 16 random bytes, which stand behind each block.
    """
    file = io.BytesIO()
    metadata = {
        VERSION_KEY: str(SCHEMA_VERSION),
        FEATURES_KEY: json.dumps(columns.names, ensure_ascii=False),
        CATEGORIES_KEY: json.dumps(dict(columns.categories), ensure_ascii=False),
    }
    fastavro.writer(file, PARSED, [], metadata=metadata, sync_marker=sync)
    return file.getvalue()


def block(records: Sequence[Encoded], sync: bytes) -> list[Part]:
    """The bytes of one block, in parts.

    Args:
        records: at least one.
        sync: of the file's header.
    """
    size = sum(record.size for record in records)
    parts: list[Part] = [long_bytes(len(records)) + long_bytes(size)]
    for record in records:
        parts += record.parts
    parts.append(sync)
    return parts


def joined(parts: Iterable[Part]) -> bytes:
    """Parts as one."""
    return b"".join(parts)
