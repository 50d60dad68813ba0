"""The tables of ``docs/attempts.md``, from the committed figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.science.attempts.problem import PLANTED
from benchmarks.science.attempts.registry import ATTEMPTS, RIVAL

PAGE = Path(__file__).parents[3] / "docs" / "attempts.md"
BELIEVED = 0.05
"""Corrected p below which a gain is in bold."""

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(result: Mapping[str, Any]) -> Path:
    """Put the tables between the page's markers."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(result)}{END}{after}", encoding="utf-8")
    return PAGE


def tables(result: Mapping[str, Any]) -> str:
    """Return one table for each set."""
    return "\n".join(_table(figures) for figures in result["sets"])


def _table(figures: Mapping[str, Any]) -> str:
    folds = "fold 1, each seed draws new data" if figures["set"] in PLANTED else f"{len(figures['folds'])} folds"
    fits = figures["attempts"][0]["fits"]
    lines = [
        f"### {figures['set']}: {figures['test_queries']:,} test queries, {folds}, {fits} fits of each attempt",
        "",
        "| attempt | NDCG@10 | gain [95 % interval] | p (Holm) | seconds of a fit |",
        "|---|---|---|---|---|",
    ]
    for row in figures["attempts"]:
        gained, low, high = row["gain"]
        gain = "" if row["attempt"] == RIVAL else f"{gained:+.4f} [{low:+.4f}, {high:+.4f}]"
        if gain and low > 0 and row["p_holm"] < BELIEVED:
            gain = f"**{gain}**"
        title = ATTEMPTS[row["attempt"]].title
        if "kept" in row:
            title += f" (kept in {row['kept']} of {row['fits']} fits)"
        p = f"{row['p_holm']:g}" if gain else ""
        lines.append(f"| {title} | {row['ndcg@10']:.4f} | {gain} | {p} | {row['seconds']:g} |")
    return "\n".join(lines) + "\n"
