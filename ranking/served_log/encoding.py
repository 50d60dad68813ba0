"""The Avro schema of a served record, and records, blocks and headers as bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np

from listwright.ranking.served_log.record import Columns, Intervention, RuleEffect, ServedRecord, ShadowRanking

SCHEMA_VERSION = 1
"""Version of :data:`SCHEMA`, in the metadata of each file under :data:`VERSION_KEY`.

To change the schema:

1. Add a field at the end, with a default: readers give the default for files that lack the field. Then the version
   stays, and readers of the old schema ignore the field.
2. Any other change (a field that goes, another type, another meaning) raises the version by one. The reader of
   :mod:`listwright.ranking.served_log.files` must then read both versions; ``tests/golden/served`` keeps a file of
   each.
3. Readers refuse a file of a newer version than theirs, and name the remedy.
"""

VERSION_KEY = "listwright.schema_version"
FEATURES_KEY = "listwright.features"
"""Metadata of a file: JSON list of the names of the columns of ``features``."""

CATEGORIES_KEY = "listwright.categories"
"""Metadata of a file: JSON object, the categories of each categorical column. Code 1 is the first of them; 0 is an
unknown or missing one."""


def _optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]}


_INTS = {"type": "array", "items": "int"}
_INTERVENTION = _record("Intervention", kind="string", places=_INTS, propensity="double")
_SHADOW = _record("Shadow", bundle="string", order=_INTS, status="string")
_RULE = _record("Rule", name="string", action="string", candidates=_INTS)

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "ServedRecord",
    "namespace": "listwright",
    "doc": "One answered request, as it was answered",
    "fields": [
        {"name": "query_id", "type": "string"},
        {"name": "served_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "unit", **_optional("string")},
        {"name": "bundle", "type": "string", "doc": "name/version"},
        {"name": "fingerprint", "type": "string"},
        {"name": "candidate_ids", "type": {"type": "array", "items": "string"}},
        {"name": "features", "type": "bytes", "doc": "float32, little-endian, row-major, (L, D)"},
        {"name": "first_stage_scores", "type": "bytes", "doc": "float64, little-endian, (L,); NaN: not scored"},
        {"name": "scores", "type": "bytes", "doc": "float64, little-endian, (L,); NaN: not scored"},
        {"name": "order", "type": _INTS, "doc": "candidate at each shown place, from 0"},
        {"name": "top_n", **_optional("int")},
        {"name": "strategy", "type": "string"},
        {"name": "route", **_optional("string"), "doc": "JSON"},
        {"name": "degraded", **_optional("string"), "doc": "reason"},
        {"name": "experiment", **_optional("string")},
        {"name": "arm", **_optional("string")},
        {"name": "teams", **_optional({"type": "array", "items": "string"})},
        {"name": "intervention", **_optional(_INTERVENTION)},
        {"name": "shadow", **_optional(_SHADOW)},
        {"name": "timings_ms", "type": {"type": "map", "values": "double"}},
        {"name": "request_id", "type": "string"},
        {"name": "rules", **_optional({"type": "array", "items": _RULE})},
        {"name": "probabilities", **_optional("bytes"), "doc": "float64, little-endian, (L,)"},
        {"name": "weights", **_optional({"type": "map", "values": "double"}), "doc": "by goal"},
    ],
}
"""Of one record. The order of the fields is that of their bytes."""

_NAMES = [field["name"] for field in SCHEMA["fields"]]

SYNC_BYTES = 16
"""Of the mark behind the header and behind each block of a file."""

_FLOATS, _DOUBLES = np.dtype("<f4"), np.dtype("<f8")

PARSED: Any = fastavro.parse_schema(SCHEMA)


class Block:
    """Encoded records of one schema, one behind the other; it can be cleared and filled again."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self.size = 0
        """Bytes of all records."""

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self._records)

    def add(self, record: ServedRecord) -> None:
        """Encode a record and append it; a record that fails leaves nothing.

        Raises:
            UnicodeEncodeError: if a text has a lone surrogate.
            TypeError, ValueError: if a text is none.
        """
        file = io.BytesIO()
        fastavro.schemaless_writer(file, PARSED, _fields(record), disable_tuple_notation=True)
        self._records.append(file.getvalue())
        self.size += len(self._records[-1])

    def last(self) -> bytes:
        """Return the bytes of the last record; there must be one."""
        return self._records[-1]

    def encoded(self) -> bytes:
        """Return the bytes of all records."""
        return b"".join(self._records)

    def clear(self) -> None:
        """Remove all records."""
        self._records.clear()
        self.size = 0


def _fields(record: ServedRecord) -> dict[str, Any]:
    converted = {
        "features": np.asarray(record.features, _FLOATS).tobytes(),
        "first_stage_scores": np.asarray(record.first_stage_scores, _DOUBLES).tobytes(),
        "scores": np.asarray(record.scores, _DOUBLES).tobytes(),
        "order": record.order.tolist(),
        "intervention": _parts(record.intervention),
        "shadow": _parts(record.shadow),
        "rules": [_parts(rule) for rule in record.rules] or None,
        "probabilities": None if (p := record.probabilities) is None else np.asarray(p, _DOUBLES).tobytes(),
    }
    return {name: converted[name] if name in converted else getattr(record, name) for name in _NAMES}


def _parts(value: Intervention | ShadowRanking | RuleEffect | None) -> dict[str, Any] | None:
    return None if value is None else {name: getattr(value, name) for name in value.__slots__}


def header(columns: Columns, sync: bytes) -> bytes:
    """Encode the beginning of a file.

    Args:
        columns: Columns of all records of the file.
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


def frame_block(records: int, encoded: bytes, sync: bytes) -> list[bytes]:
    """Return a block as it stands in a file, in parts.

    Args:
        records: Number of records, at least one.
        encoded: Bytes of these records.
        sync: Random bytes of the file's header.
    """
    return [long_bytes(records) + long_bytes(len(encoded)), encoded, sync]


def long_bytes(value: int) -> bytes:
    """Encode a whole number that is not negative, as Avro writes it."""
    coded, out = value << 1, bytearray()
    while coded >= 0x80:
        out.append((coded & 0x7F) | 0x80)
        coded >>= 7
    out.append(coded)
    return bytes(out)
