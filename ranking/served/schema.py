"""The Avro schema of a served record, and its version."""

from __future__ import annotations

from typing import Any

SCHEMA_VERSION = 1
"""Version of :data:`SCHEMA`, in the metadata of each file under :data:`VERSION_KEY`.

To change the schema:

1. Add a field at the end, with a default: readers give the default for files that lack the field. Then the version
   stays, and readers of the old schema ignore the field.
2. Any other change (a field that goes, another type, another meaning) raises the version by one. The reader of
   :mod:`listwright.ranking.served.files` must then read both versions; ``tests/golden/served`` keeps a file of each.
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


_INTERVENTION = {
    "type": "record",
    "name": "Intervention",
    "fields": [
        {"name": "kind", "type": "string"},
        {"name": "places", "type": {"type": "array", "items": "int"}},
        {"name": "propensity", "type": "double"},
    ],
}

_SHADOW = {
    "type": "record",
    "name": "Shadow",
    "fields": [
        {"name": "bundle", "type": "string"},
        {"name": "order", "type": {"type": "array", "items": "int"}},
        {"name": "status", "type": "string"},
    ],
}

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
        {"name": "order", "type": {"type": "array", "items": "int"}, "doc": "candidate at each shown place, from 0"},
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
    ],
}
"""Of one record. The order of the fields is that of their bytes."""
