"""Records and blocks as bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np

from listwright.ranking.served.framing import long_bytes
from listwright.ranking.served.record import Columns, Intervention, ServedRecord, ShadowRanking
from listwright.ranking.served.schema import CATEGORIES_KEY, FEATURES_KEY, SCHEMA, SCHEMA_VERSION, VERSION_KEY

_FLOATS, _DOUBLES = np.dtype("<f4"), np.dtype("<f8")

PARSED: Any = fastavro.parse_schema(SCHEMA)


class Block:
    """Records of one schema, one behind the other; it may be filled again and again."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self.size = 0
        """Bytes of all records."""

    @property
    def records(self) -> int:
        """How many."""
        return len(self._records)

    def add(self, record: ServedRecord) -> None:
        """Encode a record behind the others, or nothing of it.

        Raises:
            UnicodeEncodeError: if a text has a lone surrogate.
            TypeError, ValueError: if a text is none.
        """
        file = io.BytesIO()
        fastavro.schemaless_writer(file, PARSED, _fields(record), disable_tuple_notation=True)
        self._records.append(file.getvalue())
        self.size += len(self._records[-1])

    def last(self) -> bytes:
        """The bytes of the last record; there must be one."""
        return self._records[-1]

    def encoded(self) -> bytes:
        """The bytes of all records."""
        return b"".join(self._records)

    def clear(self) -> None:
        """Forget all records."""
        self._records.clear()
        self.size = 0


def _fields(record: ServedRecord) -> dict[str, Any]:
    return {
        "query_id": record.query_id,
        "served_at": record.served_at,
        "unit": record.unit,
        "bundle": record.bundle,
        "fingerprint": record.fingerprint,
        "candidate_ids": record.candidate_ids,
        "features": np.asarray(record.features, _FLOATS).tobytes(),
        "first_stage_scores": np.asarray(record.first_stage_scores, _DOUBLES).tobytes(),
        "scores": np.asarray(record.scores, _DOUBLES).tobytes(),
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


def framed(records: int, encoded: bytes, sync: bytes) -> list[bytes]:
    """A block as a file has it, in parts.

    Args:
        records: at least one.
        encoded: their bytes.
        sync: of the file's header.
    """
    return [long_bytes(records) + long_bytes(len(encoded)), encoded, sync]
