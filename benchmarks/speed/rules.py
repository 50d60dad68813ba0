"""``python -m benchmarks.speed.rules --before COMMIT``: what rules of merchandising cost, in CPU time.

Services run side by side and are asked the same lists of 100 candidates in turns, one request at a time: of a commit
without rules, of this tree without rules in the request, with rules in the request, and with the same rules in a file.
CPU time is that of the thread that answers, by the kernel's account. A ratio is a median of ratios of the same list.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.load.service import bodies, service
from benchmarks.load.unused import tree_of
from benchmarks.speed.floor import JSON, post
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle

LENGTH, LISTS, ROUNDS, WARM_UP = 100, 20, 600, 40

FIVE = [
    {"action": "pin", "id": "sku-70", "place": 3},
    {"action": "exclude", "ids": ["sku-5", "sku-6"]},
    {"action": "boost", "where": {"FEATURE": {"min": 0.5}}, "factor": 2},
    {"action": "bury", "where": {"FEATURE": {"max": -0.5}}, "factor": 2},
    {"action": "cap", "by": "FEATURE", "most": 2, "first": 10},
]
"""Typical rules; a sixth one diversifies."""


def main() -> int:
    """Run the command line; write ``benchmarks/results/rules.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.rules", description=__doc__)
    parser.add_argument("--before", required=True, metavar="COMMIT", help="without rules")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tree_of(options.before) as before, ExitStack() as running:
        served = build(Path(folder) / "wide" / "1")
        reranker = bundle.load(served).reranker
        feature = reranker.schema.names[0]
        rules = json.loads(json.dumps(FIVE).replace("FEATURE", feature))
        diverse = {"action": "diversify", "by": list(reranker.schema.names[:2])}
        file = Path(folder) / "rules.toml"
        file.write_text("".join(map(_toml, rules)), encoding="utf-8")
        now = running.enter_context(service(served))
        ways = {
            "before": (running.enter_context(service(served, cwd=before)), None),
            "without": (now, None),
            "five of the request": (now, rules),
            "five of the file": (running.enter_context(service(served, rules=file)), None),
            "five and diversity": (now, [*rules, diverse]),
        }
        rng = np.random.default_rng(0)
        lists = [json.loads(bodies(reranker, rows(rng, LENGTH))["matrix"]) for _ in range(LISTS)]
        ms: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(WARM_UP + ROUNDS):
            names = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for name in names:
                (process, connection, _), more = ways[name]
                body = json.dumps(lists[number % LISTS] | ({"rules": more} if more else {})).encode()
                account = Path(f"/proc/{process.pid}/schedstat")
                began = int(account.read_text(encoding="ascii").split()[0])
                post(connection, body, JSON, {})
                spent = (int(account.read_text(encoding="ascii").split()[0]) - began) / 1e6
                if number >= WARM_UP:
                    ms[name].append(spent)
    table = [_row(name, ms) for name in ms]
    facts = {"before": options.before, "candidates": LENGTH, "table": table}
    print(machine.save("rules", f"python -m benchmarks.speed.rules --before {options.before}", facts))
    return 0


def _toml(rule: dict[str, object]) -> str:
    """Return a rule as the file has it."""
    where = rule.get("where")
    values = {name: json.dumps(value) for name, value in rule.items() if name != "where"}
    if isinstance(where, dict):
        ((feature, ends),) = where.items()
        ((end, value),) = ends.items()
        values["where"] = f"{{{json.dumps(feature)} = {{{end} = {value}}}}}"
    return "\n".join(["[[wide]]", *(f"{name} = {value}" for name, value in values.items()), ""])


def _row(name: str, ms: dict[str, list[float]]) -> dict[str, object]:
    base = np.array(ms["before" if name == "without" else "without"])
    values = np.array(ms[name])
    low, middle, high = np.percentile(values / base, (25, 50, 75))
    row: dict[str, object] = {
        "way": name,
        "cpu_ms": round(float(np.median(values)), 3),
        "cpu_p99_ms": round(float(np.percentile(values, 99)), 3),
        "times": round(float(middle), 4),
        "times_quartiles": [round(float(low), 4), round(float(high), 4)],
    }
    print(json.dumps(row))
    return row


if __name__ == "__main__":
    sys.exit(main())
