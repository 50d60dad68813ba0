"""Ask a running service its bundle's golden lists over HTTP and compare the answers; needs nothing but Python.

usage: python tools/image_query.py BUNDLE URL
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

READY_WITHIN_S = 30.0
SCORE_TOLERANCE = 1e-4

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(folder: Path, url: str) -> int:
    """Send every golden list to a service; return 0 if each answer is as the trainer recorded it."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    schema = manifest["feature_schema"]["features"]
    golden = [json.loads(line) for line in (folder / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
    _wait_until_ready(url)
    for number, expected in enumerate(golden, start=1):
        rows = [[_sent(v, f) for v, f in zip(row, schema, strict=True)] for row in expected["features"]]
        settings = {"strategy": expected["strategy"], "specialist": expected["decided"]}
        body = {"features": rows, "raw_scores": True, "finite_scores": False}
        answer = _post(f"{url}/rerank", body | {name: value for name, value in settings.items() if value is not None})
        fault = _difference(expected["scores"], answer)
        if fault is not None:
            print(f"golden list {number} of {len(golden)}: {fault}", file=sys.stderr)
            return 1
    print(f"POST /rerank: {len(golden)} golden lists answered as recorded by {answer['model']}/{answer['version']}")
    return 0


def _sent(value: float | None, feature: dict[str, Any]) -> float | str | None:
    """Convert a stored value to the form that a caller sends: categories by name."""
    if value is None or feature["kind"] == "numeric":
        return value
    return str(feature["categories"][int(value) - 1]) if value else None


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            with _direct.open(f"{url}/readyz", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{url}/readyz: not ready within {READY_WITHIN_S:.0f} s ({error})") from error
            time.sleep(0.2)


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with _direct.open(request, timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code} {error.read().decode()}") from error


def _difference(expected: list[float | None], answer: dict[str, Any]) -> str | None:
    if answer["meta"]["status"] != "ok":
        return f"degraded: {answer['meta']['reason']}"
    if len(answer["scores"]) != len(expected):
        return f"{len(answer['scores'])} scores, expected {len(expected)}"
    for index, (actual, recorded) in enumerate(zip(answer["scores"], expected, strict=True)):
        if not _same(actual, recorded):
            return f"candidate {index} scored {actual}, expected {recorded}"
    ranked = [result["relevance_score"] for result in answer["results"] if result["relevance_score"] is not None]
    if ranked != sorted(ranked, reverse=True):
        return f"results are not sorted by score: {ranked[:10]}"
    return None


def _same(actual: float | None, recorded: float | None) -> bool:
    if actual is None or recorded is None:
        return actual is recorded
    return abs(actual - recorded) <= SCORE_TOLERANCE * max(1.0, abs(recorded))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
