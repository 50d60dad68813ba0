"""The default fit beside the LightGBM of an afternoon: paired on the test queries of all splits of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from benchmarks.tables.builders import TABLES
from benchmarks.tables.entrants import AFTERNOON, DEFAULT
from benchmarks.tables.runs import Row
from listwright.training.evaluation.evaluate import bootstrap_interval

PICKED = "afternoon"
"""Of the rankers of an afternoon, that which ranks a split's validation queries best."""

Values = Float[np.ndarray, " N"]


def compare(rows: Iterable[Row]) -> Row:
    """Return a row for each table, and what they say together.

    Args:
        rows: of tables, splits and entrants; a table counts with the splits that all its entrants have.

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
    overall = {
        "tables": len(gains),
        "mean_gain": round(float(np.mean([mean for mean, _, _ in gains])), 4),
        "shown_better": sum(low > 0.0 for _, low, _ in gains),
        "shown_worse": sum(high < 0.0 for _, _, high in gains),
        "mean_regret": {
            name: round(float(np.mean([max(values.values()) - values[name] for values in means])), 4)
            for name in (*AFTERNOON, PICKED, DEFAULT)
            if all(name in values for values in means)
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


def gain(differences: Values) -> list[float]:
    """Return the mean of paired differences, with its 95 % bootstrap interval."""
    return [round(float(value), 4) for value in (differences.mean(), *bootstrap_interval(differences))]
