"""The default fit beside the LightGBM of an afternoon: paired on the test queries of all splits of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from benchmarks.tables.builders import TABLES
from benchmarks.tables.entrants import AFTERNOON, DEFAULT, ENTRANTS
from benchmarks.tables.runs import Row
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright_lab.science.drawing import GREY, page, plain

PICKED = "afternoon"
"""Name of the best ranker of an afternoon by the validation queries of a split."""

STYLES = (
    ("#bf8700", "o", "lambdarank"),
    ("#bf8700", "s", "lambdarank + relative"),
    ("#8957e5", "o", "xendcg"),
    ("#8957e5", "s", "xendcg + relative"),
    ("#2da44e", "^", "xgboost"),
    ("#db61a2", "v", "catboost"),
    ("#768390", "D", "logit"),
    ("#e5534b", "X", "mlp"),
    ("#2f81f7", "P", "default"),
)
"""Colour and marker of each entrant in the figure."""

Values = Float[np.ndarray, " N"]


def compare(rows: Iterable[Row]) -> Row:
    """Return a row for each table, and what they say together.

    Args:
        rows: Results by table, split and entrant; of each table only the splits that all its entrants have count.

    Returns:
        ``tables``, and ``all`` where the default was measured. Gains are means with 95 % bootstrap intervals over the
        test queries of all splits; regret is against the best entrant of a table, in hindsight.
    """
    by_table: dict[str, dict[str, dict[int, Row]]] = {}
    for row in rows:
        by_table.setdefault(row["table"], {}).setdefault(row["entrant"], {})[row["split"]] = row
    tables = [
        _of_table(name, of_entrants, splits)
        for name, of_entrants in sorted(by_table.items())
        if (splits := sorted(set.intersection(*(set(of_splits) for of_splits in of_entrants.values()))))
    ]
    complete = [row for row in tables if DEFAULT in row["entrants"] and PICKED in row["entrants"]]
    if not complete:
        return {"tables": tables}
    gains = [row[f"default_over_{PICKED}"] for row in complete]
    means = [{name: figures["ndcg@10"] for name, figures in row["entrants"].items()} for row in complete]
    regrets = [{name: max(of.values()) - value for name, value in of.items()} for of in means]
    everywhere = [name for name in (*ENTRANTS, PICKED) if all(name in of for of in means)]
    overall = {
        "tables": len(gains),
        "mean_gain": round(float(np.mean([mean for mean, _, _ in gains])), 4),
        "shown_better": sum(low > 0.0 for _, low, _ in gains),
        "shown_worse": sum(high < 0.0 for _, _, high in gains),
        "mean_regret": {name: round(float(np.mean([of[name] for of in regrets])), 4) for name in everywhere},
        "mean_rank": {
            name: round(float(np.mean([_rank(of, name, everywhere) for of in regrets])), 2) for name in everywhere
        },
    }
    return {"tables": tables, "all": overall}


def _of_table(name: str, of_entrants: Mapping[str, Mapping[int, Row]], splits: Sequence[int]) -> Row:
    values = {
        entrant: np.concatenate([of_splits[split]["values"] for split in splits])
        for entrant, of_splits in of_entrants.items()
    }
    figures: dict[str, Row] = {
        entrant: {
            "ndcg@10": round(float(values[entrant].mean()), 4),
            **{s: round(float(np.mean([of_splits[split][s] for split in splits])), 1) for s in ("wall_s", "cpu_s")},
        }
        for entrant, of_splits in of_entrants.items()
    }
    row: Row = {"table": name, "splits": list(splits), "test_queries": len(next(iter(values.values())))}
    if name in TABLES:
        row |= {"source": TABLES[name].source, "licence": TABLES[name].licence}
    if rivals := [entrant for entrant in AFTERNOON if entrant in of_entrants]:
        picks = [max(rivals, key=lambda rival: of_entrants[rival][split]["valid"]) for split in splits]
        pairs = zip(picks, splits, strict=True)
        values[PICKED] = np.concatenate([of_entrants[pick][split]["values"] for pick, split in pairs])
        figures[PICKED] = {"ndcg@10": round(float(values[PICKED].mean()), 4), "picks": picks}
    row["entrants"] = figures
    if DEFAULT in of_entrants:
        row["ships"] = [of_entrants[DEFAULT][split]["ships"] for split in splits]
        for rival in (*rivals, *([PICKED] if rivals else [])):
            row[f"default_over_{rival}"] = gain(values[DEFAULT] - values[rival])
    return row


def _rank(regrets: Mapping[str, float], name: str, among: Sequence[str]) -> float:
    """Return the place of an entrant by its regret, 1 for the best; equal regrets share their places."""
    others = [regrets[other] for other in among]
    return float(1 + sum(other < regrets[name] for other in others) + (others.count(regrets[name]) - 1) / 2)


def draw(result: Row, path: Path) -> Path:
    """Draw the regret of every entrant by table, the tables where the default's is largest on top."""
    rows = [row for row in result["tables"] if DEFAULT in row["entrants"]]
    regrets = [
        {
            name: max(f["ndcg@10"] for f in row["entrants"].values()) - of["ndcg@10"]
            for name, of in row["entrants"].items()
        }
        for row in rows
    ]
    order = sorted(range(len(rows)), key=lambda n: regrets[n][DEFAULT])
    with page(path, 8.0, 0.9 + 0.32 * len(rows), salt="tables") as figure:
        axes = figure.subplots()
        for colour, marker, name in STYLES:
            places = [place for place, n in enumerate(order) if name in regrets[n]]
            losses = [regrets[n][name] for n in order if name in regrets[n]]
            size = 8 if name == DEFAULT else 5
            axes.plot(losses, places, linestyle="none", marker=marker, color=colour, markersize=size, label=name)
        axes.set_yticks(range(len(rows)), [rows[n]["table"] for n in order])
        axes.set_xscale("symlog", linthresh=0.002)
        axes.set(xlabel="NDCG@10 below the best entrant of the table")
        axes.set_xlim(left=-0.0002)
        axes.xaxis.set_major_formatter("{x:g}")
        plain(axes)
        figure.legend(loc="outside lower center", ncols=5, frameon=False, labelcolor=GREY)
    return path


def gain(differences: Values) -> list[float]:
    """Return the mean of paired differences, with its 95 % bootstrap interval."""
    return [round(float(value), 4) for value in (differences.mean(), *bootstrap_interval(differences))]
