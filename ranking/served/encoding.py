"""Records and blocks as bytes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

import fastavro
import numpy as np

from listwright.ranking import extensions
from listwright.ranking.served.framing import long_bytes
from listwright.ranking.served.record import Columns, Intervention, ServedRecord, ShadowRanking
from listwright.ranking.served.schema import CATEGORIES_KEY, FEATURES_KEY, SCHEMA, SCHEMA_VERSION, VERSION_KEY

Part = bytes | memoryview

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOATS, _DOUBLES = np.dtype("<f4"), np.dtype("<f8")

PARSED: Any = fastavro.parse_schema(SCHEMA)


@runtime_checkable
class Block(Protocol):
    """Records of one schema, one behind the other; it may be filled again and again."""

    @property
    def records(self) -> int:
        """How many."""
        ...

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        ...

    def add(self, record: ServedRecord) -> None:
        """Encode a record behind the others, or nothing of it.

        Raises:
            UnicodeEncodeError: if a text has a lone surrogate.
            TypeError, ValueError: if a text is none.
        """
        ...

    def last(self) -> bytes:
        """The bytes of the last record; there must be one."""
        ...

    def view(self) -> Part:
        """The bytes, until :meth:`clear`; no record may be added while someone holds them."""
        ...

    def clear(self) -> None:
        """Forget all records."""
        ...


def new_block() -> Block:
    """An empty one; compiled where there was a compiler."""
    return FastavroBlock() if extensions.served_record is None else CompiledBlock()


class CompiledBlock:
    """Records encoded by the compiled module, in room that is used again: see :class:`Block`."""

    def __init__(self) -> None:
        self._block = extensions.served_record.Block()

    @property
    def records(self) -> int:
        """How many."""
        return int(self._block.records)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return int(self._block.size)

    def add(self, record: ServedRecord) -> None:
        """Encode a record behind the others, or nothing of it."""
        since = record.served_at - _EPOCH
        self._block.add(
            record,
            (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
            np.ascontiguousarray(record.features, _FLOATS),
            np.ascontiguousarray(record.first_stage_scores, _DOUBLES),
            np.ascontiguousarray(record.scores, _DOUBLES),
            record.order,
        )

    def last(self) -> bytes:
        """The bytes of the last record."""
        return bytes(self._block.last())

    def view(self) -> Part:
        """The bytes, until :meth:`clear`."""
        view: memoryview = self._block.view()
        return view

    def clear(self) -> None:
        """Forget all records."""
        self._block.clear()


class FastavroBlock:
    """The same bytes, from the library: see :class:`Block`."""

    def __init__(self) -> None:
        self._encoded: list[bytes] = []
        self._size = 0

    @property
    def records(self) -> int:
        """How many."""
        return len(self._encoded)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self._size

    def add(self, record: ServedRecord) -> None:
        """Encode a record behind the others, or nothing of it."""
        file = io.BytesIO()
        fields = {**_facts(record), "features": np.asarray(record.features, _FLOATS).tobytes()}
        fastavro.schemaless_writer(file, PARSED, fields, disable_tuple_notation=True)
        self._encoded.append(file.getvalue())
        self._size += len(self._encoded[-1])

    def last(self) -> bytes:
        """The bytes of the last record."""
        return self._encoded[-1]

    def view(self) -> Part:
        """The bytes."""
        return b"".join(self._encoded)

    def clear(self) -> None:
        """Forget all records."""
        self._encoded.clear()
        self._size = 0


def _facts(record: ServedRecord) -> dict[str, Any]:
    return {
        "query_id": record.query_id,
        "served_at": record.served_at,
        "unit": record.unit,
        "bundle": record.bundle,
        "fingerprint": record.fingerprint,
        "candidate_ids": record.candidate_ids,
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


def framed(records: int, encoded: Part, sync: bytes) -> list[Part]:
    """A block as a file has it, in parts.

    Args:
        records: at least one.
        encoded: their bytes.
        sync: of the file's header.
    """
    return [long_bytes(records) + long_bytes(len(encoded)), encoded, sync]
