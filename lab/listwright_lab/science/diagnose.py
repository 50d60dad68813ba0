"""``python -m listwright_lab.science.diagnose --data PATH``: what ``listwright diagnose`` costs and says of each set.

The cost is processor time, all threads together, of the whole command on generated tables of 100,000 rows: it does not
depend on who else uses the machine, as the time on the wall does. What it says becomes a table of
``docs/when-a-second-stage-pays.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from listwright.training.data.synthetic import planted
from listwright.training.recipe.data import SyntheticData
from listwright_lab import machine

LISTS, LENGTH = 2000, 50
"""100,000 rows."""

WIDTHS = (20, 136)
"""Numeric features of the tables."""

PLANTED, REAL = ("shifted", "context", "demo"), ("airline", "ohsumed", "mq2008")

PAGE = machine.CHECKOUT / "docs" / "when-a-second-stage-pays.md"

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(path: Path, numeric: int) -> None:
    """Write a table of :data:`LISTS` lists, each of which shifts and scales its features."""
    spec = SyntheticData(
        queries=LISTS, min_length=LENGTH, max_length=LENGTH, numeric=numeric, categorical=2, groups=1, shift=0.5
    )
    dataset, _ = planted.generate(spec, np.random.default_rng(0))
    columns: dict[str, Any] = {
        "search": np.repeat(np.arange(len(dataset)), dataset.lengths),
        "clicked": dataset.labels,
    }
    for place, feature in enumerate(dataset.schema.features):
        values = dataset.features[:, place]
        if feature.kind == "categorical":
            columns[feature.name] = [("?", *feature.categories)[int(code)] for code in values]
        else:
            columns[feature.name] = values
    pl.DataFrame(columns).fill_nan(None).write_csv(path)


def diagnosed(arguments: list[str]) -> tuple[dict[str, Any], dict[str, float]]:
    """Run one command; return its numbers and its cost."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "listwright", "diagnose", *arguments, "--json", str(out)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        cost = {"cpu_seconds": round(spent, 1), "seconds": round(time.perf_counter() - started, 1)}
        diagnosis: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        del diagnosis["fit"]  # it has this machine's paths
        return diagnosis, cost


def costs() -> list[dict[str, Any]]:
    """Measure the costs at every width."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            path = Path(folder) / f"{width}.csv"
            write(path, width)
            diagnosis, cost = diagnosed(["--data", str(path), "--qid", "search", "--label", "clicked"])
            sizes = {"queries": diagnosis["queries"], "compared_rows": diagnosis["rows"]}
            rows.append({"rows": LISTS * LENGTH, "numeric": width, "categorical": 2, **sizes, **cost})
    return rows


def figures(sets: dict[str, Any]) -> str:
    """Return the page's table of the planted sets."""
    lines = [
        "| data | training queries | features ≥ 0.5 between lists | LightGBM | relative columns gain "
        "| a second stage adds |",
        "|---|---|---|---|---|---|",
    ]
    for name in PLANTED:
        diagnosis = sets[name]
        shares = [spread["between"] for spread in diagnosis["features"] if spread["between"] is not None]
        mostly = f"{sum(share >= 0.5 for share in shares)} of {len(shares)}"
        columns, network = diagnosis["relative_columns"], diagnosis["second_stage"]
        gains = " | ".join(_interval(gain) for gain in (columns, network))
        lines.append(f"| `{name}` | {diagnosis['queries']} | {mostly} | {columns['before']:.3f} | {gains} |")
    return "\n".join(lines)


def _interval(gain: dict[str, Any]) -> str:
    return f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"


def written(page: str, block: str) -> str:
    """Return the page with another block between its last marks."""
    head, _, rest = page.rpartition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{block}\n{END}{tail}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with those of airline, ohsumed and mq2008")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    tables = costs()
    sets = {name: diagnosed([name])[0] for name in PLANTED}
    sets |= {name: diagnosed([name, "--data", str(options.data / name)])[0] for name in REAL}
    result = {"tables": tables, "load_average_after": round(os.getloadavg()[0], 2), "sets": sets}
    path = machine.save("diagnose", "python -m listwright_lab.science.diagnose --data PATH", result)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), figures(sets)), encoding="utf-8")
    print(f"written to {path} and {PAGE}")


if __name__ == "__main__":
    main()
