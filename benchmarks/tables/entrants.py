"""What ranks the public tables: the LightGBM of an afternoon, in four ways, and a default fit."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from jaxtyping import Float

from benchmarks.tables.runs import Row, read_split
from listwright.ranking import bundle
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.evaluate import evaluate
from listwright.training.first_stage.lambdamart import mean_ndcg, query_ndcg

CUTOFF = 10

DEFAULT = "default"
"""Name of the product's default fit."""

Ranker = Callable[[Dataset], Float[np.ndarray, " R"]]

Objective = str | Callable[..., tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]]
"""Loss: LightGBM's name of it, or its gradient and Hessian."""
"""Scores of all rows; higher is better."""


def fit_lightgbm(
    train: Dataset, valid: Dataset, *, objective: Objective = "lambdarank", relative: bool = False
) -> Ranker:
    """Fit LightGBM as most people would.

    Args:
        train, valid: under one schema; the second stops the fit.
        objective: loss.
        relative: whether it also sees each number's z-score and rank within its list.
    """
    names = train.schema.names
    numbers = [name for n, name in enumerate(names) if n not in train.schema.categorical]
    others = [name for name in names if name not in numbers]

    def table(data: Dataset) -> pd.DataFrame:
        frame = pd.DataFrame(np.asarray(data.features), columns=list(names))
        frame[others] = frame[others].astype("int32").astype("category")
        if not relative:
            return frame
        lists = frame[numbers].groupby(np.repeat(np.arange(len(data)), data.lengths))
        z = (frame[numbers] - lists.transform("mean")) / lists.transform("std").clip(lower=1e-6)
        return pd.concat([frame, z.add_suffix(" z"), lists.rank(pct=True).add_suffix(" rank")], axis=1)

    more: dict[str, Any] = {"random_state": 0, "verbosity": -1, "n_jobs": 1}
    model = lightgbm.LGBMRanker(objective=objective, n_estimators=1000, learning_rate=0.05, **more)
    model.fit(
        table(train),
        train.labels,
        group=train.lengths,
        eval_X=table(valid),
        eval_y=valid.labels,
        eval_group=[valid.lengths],
        eval_at=[CUTOFF],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    return lambda data: np.asarray(model.predict(table(data)), dtype=np.float64)


AFTERNOON: Mapping[str, Callable[[Dataset, Dataset], Ranker]] = {
    "lambdarank": fit_lightgbm,
    "lambdarank + relative": partial(fit_lightgbm, relative=True),
    "xendcg": partial(fit_lightgbm, objective="rank_xendcg"),
    "xendcg + relative": partial(fit_lightgbm, objective="rank_xendcg", relative=True),
}
"""Rankers of an afternoon, by name: fitted on training queries, stopped by validation queries."""

ENTRANTS = (*AFTERNOON, DEFAULT)


def measure(table: Path, split: int, entrant: str) -> Row:
    """Return NDCG of every test query of a split, mean NDCG of the validation queries, and seconds.

    Args:
        table: Parquet with ``qid`` and ``label``.
        split: number from 1.
        entrant: one of :data:`ENTRANTS`.
    """
    if entrant == DEFAULT:
        return _measure_default(table, split)
    splits = read_split(table, split)
    began, worked = time.perf_counter(), time.process_time()
    rank = AFTERNOON[entrant](splits.train, splits.valid)
    seconds = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - worked}
    valid = mean_ndcg(splits.valid, rank(splits.valid), CUTOFF)
    return {"valid": valid, **_rounded(query_ndcg(splits.test, rank(splits.test), CUTOFF), seconds)}


def _measure_default(table: Path, split: int) -> Row:
    """Return the same of ``listwright fit``, without a figure of validation queries, and what it ships."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / table.stem / "1"
        words = ["fit", "--data", str(table), "--qid", "qid", "--label", "label", "--fold", str(split)]
        began, worked = time.perf_counter(), _seconds_of_children()
        command = [sys.executable, "-m", "listwright", *words, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"listwright {' '.join(words)}: {done.stdout}{done.stderr}")
        seconds = {"wall_s": time.perf_counter() - began, "cpu_s": _seconds_of_children() - worked}
        loaded = bundle.load(out)
    manifest = loaded.manifest
    kind = "LightGBM" if manifest.strategy == "first_stage" else manifest.strategy
    evaluation = evaluate(loaded.reranker, read_split(table, split).test)
    values = np.nan_to_num(evaluation.values[manifest.strategy][f"ndcg@{CUTOFF}"])
    ships = kind + (" + relative" if manifest.relative else "")
    return {"ships": ships, "reason": manifest.default_reason, **_rounded(values, seconds)}


def _seconds_of_children() -> float:
    """Return the CPU seconds of all subprocesses that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _rounded(values: Float[np.ndarray, " N"], seconds: Mapping[str, float]) -> Row:
    return {**{name: round(s, 1) for name, s in seconds.items()}, "values": [round(float(v), 6) for v in values]}
