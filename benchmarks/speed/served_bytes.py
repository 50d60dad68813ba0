"""``python -m benchmarks.speed.served_bytes``: time to encode a served record, compiled and by fastavro, in turns."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from statistics import median

import numpy as np

from benchmarks import machine
from listwright.ranking.served.encoding import Block, CompiledBlock, FastavroBlock
from listwright.ranking.served.record import ServedRecord
from listwright.service.served_log.blocks import BLOCK_BYTES

CANDIDATES, FEATURES = (10, 100, 1000), 136
ROUNDS, REPEATS = 21, 200


def record(length: int) -> ServedRecord:
    """A record as the service has it."""
    rng = np.random.default_rng(length)
    scores = rng.normal(size=length)
    return ServedRecord(
        query_id="visit-000123",
        served_at=datetime(2026, 11, 25, 12, 0, 0, 123456, tzinfo=UTC),
        unit="d1f3a0c95be24e7c8a6f2b3c4d5e6f70",
        bundle="shop/7",
        fingerprint="sha256:" + 64 * "a",
        candidate_ids=tuple(f"offer-{number:06}" for number in range(length)),
        features=rng.normal(size=(length, FEATURES)).astype(np.float32),
        first_stage_scores=scores,
        scores=scores,
        order=np.argsort(-scores),
        strategy="qilcm",
        feature_names=tuple(map(str, range(FEATURES))),
        request_id="0123456789abcdef0123456789abcdef",
        timings_ms={"parse": 0.1, "queue": 0.01, "first_stage": 0.4, "second_stage": 0.3, "total": 1.0},
    )


def microseconds(block: Block, one: ServedRecord) -> float:
    """Of one record, in a row of many: blocks of as many as the service writes at a time."""
    began = time.perf_counter()
    for _ in range(REPEATS):
        block.add(one)
        if block.size >= BLOCK_BYTES:
            block.clear()
    return (time.perf_counter() - began) / REPEATS * 1e6


def main() -> int:
    """Writes ``benchmarks/results/served_bytes.json``."""
    table = []
    for length in CANDIDATES:
        one = record(length)
        compiled, library = CompiledBlock(), FastavroBlock()
        for block in (compiled, library):
            block.add(one)
        if compiled.view() != library.view():
            raise SystemExit("the encoders differ")
        both = [(microseconds(compiled, one), microseconds(library, one)) for _ in range(ROUNDS)]
        ours, theirs = (median(values) for values in zip(*both, strict=True))
        table.append(
            {
                "candidates": length,
                "compiled_us": round(ours, 2),
                "fastavro_us": round(theirs, 2),
                "ratio": round(theirs / ours, 2),
            }
        )
    print(json.dumps(table, indent=1))
    print(
        machine.save("served_bytes", "python -m benchmarks.speed.served_bytes", {"features": FEATURES, "table": table})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
