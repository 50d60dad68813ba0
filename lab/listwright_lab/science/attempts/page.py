"""The table of ``docs/attempts.md``, from the committed figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from listwright_lab import machine
from listwright_lab.science.attempts.registry import ATTEMPTS, RIVAL

PAGE = machine.CHECKOUT / "docs" / "attempts.md"
BELIEVED = 0.05
"""Corrected p below which a gain or a loss is in bold."""

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(result: Mapping[str, Any]) -> Path:
    """Put the table between the page's markers."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(result)}{END}{after}", encoding="utf-8")
    return PAGE


def tables(result: Mapping[str, Any]) -> str:
    """Return the table of the attempts that are shown to gain or lose on a set, and the number of the others.

    Args:
        result: Committed figures of every attempt on every set.
    """
    by_set = [{row["attempt"]: row for row in one["attempts"]} for one in result["sets"]]
    attempts = [attempt for attempt in ATTEMPTS if attempt != RIVAL and any(attempt in rows for rows in by_set)]
    conclusive = [attempt for attempt in attempts if any(_is_shown(rows.get(attempt)) for rows in by_set)]
    others = f"Of {len(attempts) - len(conclusive)} other attempts no gain or loss is shown on any set."
    return f"{_table(result['sets'], conclusive)}\n{others}\n"


def _table(sets: Sequence[Mapping[str, Any]], attempts: Sequence[str]) -> str:
    by_set = [{row["attempt"]: row for row in one["attempts"]} for one in sets]
    lines = [
        _line("gain in NDCG@10", *(one["set"] for one in sets)),
        "|---" * (1 + len(sets)) + "|",
        _line("test queries", *(f"{one['test_queries']:,}" for one in sets)),
        _line("NDCG@10 of the baseline", *(f"{rows[RIVAL]['ndcg@10']:.4f}" for rows in by_set)),
    ]
    lines += [_line(ATTEMPTS[attempt].title, *(_gain(rows.get(attempt)) for rows in by_set)) for attempt in attempts]
    return "\n".join(lines) + "\n"


def _is_shown(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["p_holm"] < BELIEVED


def _gain(row: Mapping[str, Any] | None) -> str:
    """Return the gain and half the width of its interval; nothing for an attempt that was not measured."""
    if row is None:
        return ""
    gained, low, high = row["gain"]
    text = f"{gained:+.3f}±{(high - low) / 2:.3f}"
    return f"**{text}**" if _is_shown(row) else text


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
