"""``python -m benchmarks.speed.rules --before COMMIT``: what rules of merchandising cost, in CPU time.

Services side by side are asked the same lists of 100 candidates, in turns of one request for each list: of a commit
without rules, of this tree without rules, with rules in the request, and with the same rules in a file. CPU time is
that of the thread that answers, by the kernel's account; all services are started several times. A ratio is the median
of ratios of turns that follow each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.service import bodies, service
from benchmarks.load.unused import tree_of
from benchmarks.speed.floor import JSON, post
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright_lab import machine

LENGTH, LISTS, TURNS, STARTS = 100, 20, 25, 4
PAUSE_S = 0.005
"""Seconds after a turn in which the work that follows its answers ends, and the core's time is updated."""

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
    with tempfile.TemporaryDirectory() as folder, tree_of(options.before) as before:
        served = build(Path(folder) / "wide" / "1")
        reranker = bundle.load(served).reranker
        feature = reranker.schema.names[0]
        rules = json.loads(json.dumps(FIVE).replace("FEATURE", feature))
        diverse = {"action": "diversify", "by": list(reranker.schema.names[:2])}
        file = Path(folder) / "rules.toml"
        file.write_text("".join(map(_toml, rules)), encoding="utf-8")
        rng = np.random.default_rng(0)
        lists = [json.loads(bodies(reranker, rows(rng, LENGTH))["matrix"]) for _ in range(LISTS)]
        ms: dict[str, list[float]] = {}
        for _ in range(STARTS):
            with service(served) as now, service(served, cwd=before) as old, service(served, rules=file) as ruled:
                trees, both = {"strategy": "first_stage"}, {"strategy": RANKER}
                ways: dict[str, tuple[Any, dict[str, Any]]] = {
                    "before": (old, trees),
                    "without": (now, trees),
                    "five of the request": (now, trees | {"rules": rules}),
                    "five of the file": (ruled, trees),
                    "five and diversity": (now, trees | {"rules": [*rules, diverse]}),
                    "without, by QILCM": (now, both),
                    "five of the request, by QILCM": (now, both | {"rules": rules}),
                }
                sent = {
                    name: [json.dumps(request | more).encode() for request in lists] for name, (_, more) in ways.items()
                }
                for number in range(1 + TURNS):
                    turn = number % len(ways)
                    for name in [*ways][turn:] + [*ways][:turn]:
                        spent = turn_ms(ways[name][0], sent[name])
                        if number:
                            ms.setdefault(name, []).append(spent)
    table = [_row(name, ms) for name in ms]
    facts = {"before": options.before, "candidates": LENGTH, "table": table}
    print(machine.save("rules", f"python -m benchmarks.speed.rules --before {options.before}", facts))
    return 0


def turn_ms(running: Any, sent: list[bytes]) -> float:
    """Send some requests; return the mean CPU time of one, in milliseconds."""
    process, connection, _ = running
    answers = []
    account = Path(f"/proc/{process.pid}/schedstat")
    began = int(account.read_text(encoding="ascii").split()[0])
    for body in sent:
        answers.append(post(connection, body, JSON, {}))
    time.sleep(PAUSE_S)
    spent = int(account.read_text(encoding="ascii").split()[0]) - began
    for body, answer in zip(sent, answers, strict=True):
        assert json.loads(answer)["route"]["strategy"] == json.loads(body)["strategy"]
    return spent / 1e6 / len(sent)


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
    base = np.array(
        ms[{"without": "before", "five of the request, by QILCM": "without, by QILCM"}.get(name, "without")]
    )
    values = np.array(ms[name])
    low, middle, high = np.percentile(values / base, (25, 50, 75))
    row: dict[str, object] = {
        "way": name,
        "cpu_ms": round(float(np.median(values)), 3),
        "times": round(float(middle), 4),
        "times_quartiles": [round(float(low), 4), round(float(high), 4)],
    }
    print(json.dumps(row))
    return row


if __name__ == "__main__":
    sys.exit(main())
