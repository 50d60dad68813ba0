"""Which part of QILCM gains what, beside other networks, on the public tables.

On each table and split the first stage is fitted once, as a default fit does it, and every network on top of it with
the recipe's settings. Networks are compared on the test queries, paired.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import norm

from benchmarks.tables.comparison import gain
from benchmarks.tables.runs import Row
from listwright.training.choice import better_first_stage
from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.fit import with_and_without
from listwright.training.first_stage.relative import widened_part
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.loop import predict, query_ndcg

FIRST = "first stage"

COMPARED = (
    ("qilcm", FIRST),
    ("qilcm", "mlp"),
    ("qilcm", "qilcm without attention"),
    ("qilcm", "qilcm without normalisation"),
    ("qilcm with confusion loss", "qilcm"),
    ("qilcm2", "qilcm"),
    ("qilcm2", FIRST),
    ("dlcm", "qilcm"),
    ("dcm", "qilcm"),
    ("mlp", FIRST),
)
"""Rankers, and what each is compared with."""


def specs() -> Mapping[str, NetworkSpec]:
    """Return the networks by name: the recipe's QILCM, the paper's ablations of it, and other families."""
    qilcm = config.load("table").model
    assert isinstance(qilcm, QilcmSpec)
    return {
        "qilcm": qilcm,
        "qilcm with confusion loss": qilcm.model_copy(update={"confusion_weight": 0.01}),
        "qilcm without attention": qilcm.model_copy(update={"variant": "V1"}),
        "qilcm without normalisation": qilcm.model_copy(update={"variant": "V3"}),
        "qilcm2": Qilcm2Spec(),
        "dlcm": DlcmSpec(),
        "dcm": DcmSpec(),
        "mlp": MlpSpec(hidden=(64,), learning_rate=qilcm.learning_rate),
    }


def measure(splits: Splits, seed: int = 0) -> Row:
    """Return NDCG of every test query and CPU seconds, by ranker."""
    spec = LambdaMart(trials=1, folds=2)
    with tempfile.TemporaryDirectory() as state:
        plain, relative = with_and_without(spec, splits, seed=seed, state=Path(state))
    first, _, _ = better_first_stage(plain, relative, splits, spec.ndcg_at)
    scores = first.scores_of(splits.test)
    wide = widened_part(splits.test, first.relative)
    values = {FIRST: lambdamart.query_ndcg(splits.test, scores, spec.ndcg_at)}
    seconds = {}
    for name, network in specs().items():
        began = time.process_time()
        fitted = second_stage.fit(network, splits, first, seed=seed)
        assert fitted is not None
        seconds[name] = round(time.process_time() - began, 1)
        data = wide if fitted.spec.relative else splits.test
        lists = lists_for(fitted.spec, data, scores)
        values[name] = query_ndcg(predict(fitted.module, lists), lists, data, scores, spec.ndcg_at)
    return {
        "columns": [column.name for column in first.relative],
        "cpu_s": seconds,
        "values": {name: [round(float(value), 6) for value in ndcg] for name, ndcg in values.items()},
    }


def compare(rows: Iterable[Row]) -> Row:
    """Return for each table the means and the paired gains, with p-values adjusted over all of them (Holm 1979).

    The p-value of a gain is two-sided, by a normal mean over the test queries of all splits.
    """
    by_table: dict[str, list[Row]] = {}
    for row in rows:
        by_table.setdefault(row["table"], []).append(row)
    tables, tests = list[Row](), list[Row]()
    for table, splits in sorted(by_table.items()):
        names = list(splits[0]["values"])
        values = {name: np.concatenate([row["values"][name] for row in splits]) for name in names}
        gains = []
        for ranker, over in COMPARED:
            differences = values[ranker] - values[over]
            error = differences.std(ddof=1) / np.sqrt(len(differences))
            p = float(2.0 * norm.sf(abs(differences.mean()) / error)) if error > 0.0 else 1.0
            gains.append({"ranker": ranker, "over": over, "gain": gain(differences), "p": p})
        tests += gains
        tables.append(
            {
                "table": table,
                "splits": len(splits),
                "test_queries": len(values[FIRST]),
                "ndcg@10": {name: round(float(ndcg.mean()), 4) for name, ndcg in values.items()},
                "cpu_s": {
                    name: round(float(np.mean([row["cpu_s"][name] for row in splits])), 1)
                    for name in splits[0]["cpu_s"]
                },
                "gains": gains,
            }
        )
    adjusted, ordered = 0.0, sorted(tests, key=lambda test: test["p"])
    for place, test in enumerate(ordered):
        adjusted = max(adjusted, min(1.0, (len(ordered) - place) * test["p"]))
        test["p_holm"], test["p"] = float(f"{adjusted:.3g}"), float(f"{test['p']:.3g}")
    return {"tables": tables}
