"""What ``listwright diagnose`` says of the public tables, and what list-relative columns then gain on the test queries.

Two predictions are judged: by the features alone, and by the quick rankers. The gains on test queries are those of
:mod:`benchmarks.tables.columns`, of LightGBM by the product's own functions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.tables.runs import Key, Row, ignored
from listwright.training.console.progress import SILENT
from listwright.training.evaluation.intervals import verdict_of
from listwright.training.pipeline import diagnosis
from listwright.training.pipeline.choice import WORTHWHILE
from listwright.training.pipeline.diagnosis import MOSTLY, PARTLY
from listwright.training.recipe import config
from listwright.training.recipe.data import TableData


def measure(table: Path, split: int) -> Row:
    """Return what a diagnosis of a table's training and validation queries says.

    Args:
        table: Parquet with ``qid`` and ``label``.
        split: Number of the split, from 1.
    """
    data = TableData(qid="qid", label="label", ignore=ignored(table))
    recipe = config.changed(config.load("table"), {"data": data, "fold": split})
    began = time.process_time()
    diagnosed = diagnosis.diagnose(recipe, [str(table)], device="cpu", progress=SILENT)
    shares = [spread.between for spread in diagnosed.features if spread.between is not None]
    gains = diagnosis.facts_of(diagnosed)
    return {
        "uneven": max((round(category.uneven, 3) for category in diagnosed.categories), default=None),
        "between": max((round(share, 3) for share in shares if share < 1.0 - 1e-6), default=None),
        "relative_columns": gains["relative_columns"],
        "second_stage": gains["second_stage"],
        "advice": diagnosis.advice(diagnosed).key,
        "cpu_s": round(time.process_time() - began, 1),
    }


def judge(rows: Mapping[Key, Row], columns: Iterable[Row]) -> Row:
    """Return predictions beside the gains on test queries, and how many of both kinds are right.

    Args:
        rows: Rows of :func:`measure`, by their keys.
        columns: Rows of :func:`benchmarks.tables.columns.measure`, of five splits of a table.

    Returns:
        Row of each diagnosis. The features predict a gain if the counts of a category are uneven in a tenth of the
        lists, or a feature that varies within lists has half of its variance between them; the quick rankers, if their
        gain is shown. The truth is a gain shown on the test queries of all splits, by a normal mean. Of columns of
        categories alone, uneven counts predict a mean gain that is worthwhile.
    """
    tests, steps = dict[str, list[Row]](), dict[str, list[Row]]()
    for row in columns:
        tests.setdefault(row["table"], []).append(row["test"])
        steps.setdefault(row["table"], []).append(row["steps"]["test"])
    result = []
    for (table, split, _), row in sorted(rows.items()):
        mean = float(np.mean([test["mean"] for test in tests[table]]))
        error = float(np.sqrt(np.sum([test["error"] ** 2 for test in tests[table]]))) / len(tests[table])
        verdict = verdict_of(mean - 1.96 * error, mean + 1.96 * error)
        by_features = (row["uneven"] or 0.0) >= PARTLY or (row["between"] or 0.0) >= MOSTLY
        categories = float(np.mean([step["all"] - step["numbers"] for step in steps[table]]))
        by_rankers = row["relative_columns"] is not None and row["relative_columns"]["verdict"] == "gain"
        result.append(
            {
                "table": table,
                "split": split,
                **{name: row[name] for name in ("uneven", "between", "advice", "relative_columns", "second_stage")},
                "by_features": by_features,
                "by_rankers": by_rankers,
                "test": [round(value, 4) for value in (mean, mean - 1.96 * error, mean + 1.96 * error)],
                "gains": verdict == "gain",
                "categories": round(categories, 4),
                "uneven_is_right": ((row["uneven"] or 0.0) >= PARTLY) == (categories >= WORTHWHILE),
            }
        )
    right = {name: sum(row[name] == row["gains"] for row in result) for name in ("by_features", "by_rankers")}
    right["by_uneven_counts"] = sum(row["uneven_is_right"] for row in result)
    return {"right": right, "of": len(result), "tables": result}
