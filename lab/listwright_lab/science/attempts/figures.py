"""Figures of the attempts from their stored results, and the table of ``docs/attempts.md`` from the figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright_lab import machine
from listwright_lab.science.attempts.problem import PLANTED
from listwright_lab.science.attempts.registry import ATTEMPTS, RIVAL
from listwright_lab.suites.listwise.results import holm, paired_p

Figures = dict[str, object]

PAGE = machine.CHECKOUT / "docs" / "attempts.md"
BELIEVED = 0.05
"""Corrected p below which a gain or a loss is in bold."""

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

FEWEST_SEEDS = 5
"""Seeds of an attempt that is shown: with fewer, chance decides."""


def of_set(work: Path, name: str) -> Figures:
    """Compute the figures of one set from its stored results.

    Returns:
        Row of every attempt that has all seeds in every fold: seeds, fits, mean NDCG@10 of it and the rival, the gain
        with its 95 % interval, p of a t-test over queries, each with its mean over seeds, corrected by Holm over the
        attempts of the set, and median seconds. Queries are resampled; a query's seeds are drawn together.

    Attempts that the folder lacks keep their rows of ``attempts.json``. Where such a row has a corrected p alone, the
    largest p that Holm may have corrected so stands for its own: the new correction is then too large, never too small.
    """
    runs = {attempt: _read_runs(work / name, attempt) for attempt in ATTEMPTS}
    rival = runs[RIVAL]
    folds = sorted({fold for fold, _ in rival})
    rows: list[dict[str, Any]] = []
    for attempt, own in runs.items():
        common = sorted(own.keys() & rival.keys())
        if len(common) < FEWEST_SEEDS * len(folds):
            continue
        gain, query = _paired(name, common, {key: own[key][0] - rival[key][0] for key in common})
        low, high = percentile_interval(resample_means(gain, query))
        p = None if attempt == RIVAL else paired_p(np.bincount(query, gain) / np.bincount(query))
        rows.append(
            {
                "attempt": attempt,
                "seeds": len({seed for _, seed in common}),
                "fits": len(common),
                "ndcg@10": round(float(np.concatenate([own[key][0] for key in common]).mean()), 4),
                "rival": round(float(np.concatenate([rival[key][0] for key in common]).mean()), 4),
                "gain": [round(float(value), 4) for value in (gain.mean(), low, high)],
                "seconds": round(float(np.median([own[key][1] for key in common])), 1),
                **_facts(own),
                **({} if p is None else {"p": p}),
            }
        )
    measured = {row["attempt"] for row in rows}
    rows += [row for row in _read_rows(name) if row["attempt"] not in measured]
    rows.sort(key=lambda row: list(ATTEMPTS).index(row["attempt"]))
    comparisons = [row for row in rows if row["attempt"] != RIVAL]
    for row, corrected in zip(comparisons, holm([row["p"] for row in comparisons]), strict=True):
        row["p"], row["p_holm"] = (float(f"{value:.3g}") for value in (row["p"], corrected))
    queries = sum(len(values) for (_, seed), (values, _, _) in rival.items() if name in PLANTED or seed == 0)
    return {"set": name, "folds": folds, "test_queries": queries, "attempts": rows}


def _read_rows(name: str) -> list[dict[str, Any]]:
    """Read the rows of ``attempts.json``; each but the rival's has a ``p``, or the largest that it may have been."""
    sets = json.loads((machine.RESULTS / "attempts.json").read_text(encoding="utf-8"))["sets"]
    rows: list[dict[str, Any]] = next((each["attempts"] for each in sets if each["set"] == name), [])
    comparisons = [row for row in rows if row["attempt"] != RIVAL]
    for row in comparisons:
        p = row["p_holm"]
        factor = sum(other["p_holm"] > p for other in comparisons) + 1  # of the last that Holm corrected to this p
        row.setdefault("p", 1.0 if p == 1.0 else p / factor)
    return rows


Runs = dict[tuple[int, int], tuple[Float[np.ndarray, " N"], float, Mapping[str, list[float]]]]


def _read_runs(folder: Path, attempt: str) -> Runs:
    """Read NDCG by query, seconds and facts of an attempt by fold and seed."""
    runs: Runs = {}
    for file in sorted(folder.glob(f"*/{attempt}.npz")):
        _, fold, _, seed = file.parent.name.split("-")
        with np.load(file) as arrays:
            facts = {key.removeprefix("fact "): arrays[key].tolist() for key in arrays if key.startswith("fact ")}
            runs[int(fold), int(seed)] = arrays["ndcg"], float(arrays["seconds"]), facts
    return runs


def _paired(
    name: str, keys: Iterable[tuple[int, int]], values: Mapping[tuple[int, int], Float[np.ndarray, " N"]]
) -> tuple[Float[np.ndarray, " M"], Int[np.ndarray, " M"]]:
    """Return all values, and the number of each value's query.

    Seeds of a planted set have queries of their own.
    """
    gains, queries, indices = [], [], dict[tuple[int, int], int]()
    for fold, seed in keys:
        own = seed if name in PLANTED else 0
        gains.append(values[fold, seed])
        queries += [indices.setdefault((1000 * own + fold, n), len(indices)) for n in range(len(values[fold, seed]))]
    return np.concatenate(gains), np.array(queries)


def _facts(runs: Runs) -> Figures:
    """Count the fits whose second stage was chosen, and the share of them in which no epoch beat the first stage."""
    second_stages = [facts["kept"][0] for _, _, facts in runs.values() if "kept" in facts]
    epochs = [epoch for _, _, facts in runs.values() for epoch in facts.get("epochs", [])]
    facts: Figures = {}
    if second_stages:
        facts["kept"] = int(sum(second_stages))
    if epochs:
        facts["stayed_at_start"] = round(sum(epoch == 0 for epoch in epochs) / len(epochs), 2)
    return facts


def write_page(result: Mapping[str, Any]) -> Path:
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
    by_set = [{row["attempt"]: row for row in each["attempts"]} for each in result["sets"]]
    attempts = [attempt for attempt in ATTEMPTS if attempt != RIVAL and any(attempt in rows for rows in by_set)]
    conclusive = [attempt for attempt in attempts if any(_is_shown(rows.get(attempt)) for rows in by_set)]
    lines = [
        _line("gain in NDCG@10", *(each["set"] for each in result["sets"])),
        "|---" * (1 + len(by_set)) + "|",
        _line("test queries", *(f"{each['test_queries']:,}" for each in result["sets"])),
        _line("NDCG@10 of the baseline", *(f"{rows[RIVAL]['ndcg@10']:.4f}" for rows in by_set)),
        *(_line(ATTEMPTS[attempt].title, *(_gain(rows.get(attempt)) for rows in by_set)) for attempt in conclusive),
        "",
        f"Of {len(attempts) - len(conclusive)} other attempts no gain or loss is shown on any set.",
    ]
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
