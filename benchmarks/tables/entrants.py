"""What ranks the public tables: the LightGBM of an afternoon in four ways, other rankers, and a default fit.

To enter a ranker, add a function ``fit(train, valid) -> Ranker`` to :data:`RANKERS`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.tables.runs import Row, ignored, read_split
from listwright.ranking import bundle
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.protocol import evaluate
from listwright.training.first_stage.lambdamart import mean_ndcg, query_ndcg
from listwright_lab.science.plain_lightgbm import CUTOFF, Ranker, fit_lightgbm, frame_of

DEFAULT = "default"
"""Name of the product's default fit."""


def fit_xgboost(train: Dataset, valid: Dataset) -> Ranker:
    """Fit XGBoost by ``rank:ndcg``, its categories as they are, stopped by the validation queries."""
    more: dict[str, Any] = {
        "early_stopping_rounds": 50,
        "eval_metric": f"ndcg@{CUTOFF}",
        "random_state": 0,
        "n_jobs": 1,
    }
    model = import_module("xgboost").XGBRanker(
        objective="rank:ndcg", n_estimators=1000, learning_rate=0.05, enable_categorical=True, **more
    )
    frames = frame_of(train, schema=train), frame_of(valid, schema=train)
    groups = {"group": train.lengths, "eval_group": [valid.lengths]}
    model.fit(frames[0], train.labels, eval_set=[(frames[1], valid.labels)], verbose=False, **groups)
    return lambda data: np.asarray(model.predict(frame_of(data, schema=train)), dtype=np.float64)


def fit_catboost(train: Dataset, valid: Dataset) -> Ranker:
    """Fit CatBoost by YetiRank, stopped by the validation queries."""
    catboost = import_module("catboost")
    more: dict[str, Any] = {"random_seed": 0, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = catboost.CatBoostRanker(
        loss_function="YetiRank", eval_metric=f"NDCG:top={CUTOFF}", iterations=1000, learning_rate=0.05, **more
    )
    categorical = list(train.schema.categorical)

    def pool(data: Dataset) -> Any:
        query = np.repeat(np.arange(len(data)), data.lengths)
        return catboost.Pool(frame_of(data), data.labels, group_id=query, cat_features=categorical)

    model.fit(pool(train), eval_set=pool(valid), early_stopping_rounds=50)
    return lambda data: np.asarray(model.predict(pool(data)), dtype=np.float64)


def fit_logit(train: Dataset, valid: Dataset) -> Ranker:
    """Fit a conditional logit (McFadden 1974) over lists of any length; validation queries choose its penalty.

    A graded list's target is the share of each candidate in the list's gains.
    """
    inputs = _inputs(train)
    x, starts = inputs.fit_transform(frame_of(train)), train.offsets[:-1]
    query = np.repeat(np.arange(len(train)), train.lengths)
    gains = 2.0**train.labels - 1.0
    totals = np.add.reduceat(gains, starts)
    target = gains / np.where(totals > 0.0, totals, 1.0)[query]

    def loss(weights: Float[np.ndarray, " W"], penalty: float) -> tuple[float, Float[np.ndarray, " W"]]:
        scores = x @ weights
        normaliser = np.array([logsumexp(part) for part in np.split(scores, starts[1:])])
        shares = np.exp(scores - normaliser[query]) * (totals > 0.0)[query]
        value = ((totals > 0.0) * normaliser).sum() - target @ scores + penalty * weights @ weights
        return float(value), x.T @ (shares - target) + 2.0 * penalty * weights

    def ranker(penalty: float) -> Ranker:
        solution = minimize(
            loss, np.zeros(x.shape[1]), (penalty,), jac=True, method="L-BFGS-B", options={"maxiter": 200}
        )
        return lambda data: np.asarray(inputs.transform(frame_of(data)) @ solution.x, dtype=np.float64)

    rankers = [ranker(penalty) for penalty in (0.1, 1.0, 10.0)]
    return max(rankers, key=lambda rank: mean_ndcg(valid, rank(valid), CUTOFF))


def fit_mlp(train: Dataset, _valid: Dataset) -> Ranker:
    """Fit a network that scores each candidate alone: scikit-learn's, on gains, stopped by a tenth of the rows."""
    inputs = _inputs(train)
    model = MLPRegressor(hidden_layer_sizes=(64, 64), early_stopping=True, max_iter=1000, random_state=0)
    model.fit(inputs.fit_transform(frame_of(train)), 2.0**train.labels - 1.0)
    return lambda data: np.asarray(model.predict(inputs.transform(frame_of(data))), dtype=np.float64)


def _inputs(train: Dataset) -> ColumnTransformer:
    """Return the usual inputs of a linear model: standardised numbers and one column for each category."""
    categorical = [train.schema.names[place] for place in train.schema.categorical]
    numeric = [name for name in train.schema.names if name not in categorical]
    scaled = make_pipeline(SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler())
    by_category = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", scaled, numeric), ("categories", by_category, categorical)])


AFTERNOON: Mapping[str, Callable[[Dataset, Dataset], Ranker]] = {
    "lambdarank": fit_lightgbm,
    "lambdarank + relative": partial(fit_lightgbm, relative=True),
    "xendcg": partial(fit_lightgbm, objective="rank_xendcg"),
    "xendcg + relative": partial(fit_lightgbm, objective="rank_xendcg", relative=True),
}
"""Rankers of an afternoon, by name: fitted on training queries, stopped by validation queries."""

RANKERS: Mapping[str, Callable[[Dataset, Dataset], Ranker]] = {
    **AFTERNOON,
    "xgboost": fit_xgboost,
    "catboost": fit_catboost,
    "logit": fit_logit,
    "mlp": fit_mlp,
}
"""All rankers that are fitted in this process, by name."""

FITS: Mapping[str, tuple[str, ...]] = {DEFAULT: (), "ten minutes": ("--minutes", "10")}
"""Options of ``listwright fit`` by the name of the entrant."""

ENTRANTS = (*RANKERS, *FITS)


def measure(table: Path, split: int, entrant: str) -> Row:
    """Return NDCG of every test query of a split, mean NDCG of the validation queries, and seconds.

    Args:
        table: Parquet with ``qid`` and ``label``.
        split: Number of the split, from 1.
        entrant: One of :data:`ENTRANTS`.
    """
    if entrant in FITS:
        return _measure_fit(table, split, FITS[entrant])
    splits = read_split(table, split)
    began, worked = time.perf_counter(), time.process_time()
    rank = RANKERS[entrant](splits.train, splits.valid)
    seconds = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - worked}
    valid = mean_ndcg(splits.valid, rank(splits.valid), CUTOFF)
    return {"valid": valid, **_rounded(query_ndcg(splits.test, rank(splits.test), CUTOFF), seconds)}


def _measure_fit(table: Path, split: int, options: Sequence[str]) -> Row:
    """Return the same of ``listwright fit``, without a figure of validation queries, and what it ships."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / table.stem / "1"
        arguments = ["fit", "--data", str(table), "--qid", "qid", "--label", "label", "--fold", str(split), *options]
        arguments += [argument for column in ignored(table) for argument in ("--ignore", column)]
        began, worked = time.perf_counter(), _seconds_of_children()
        command = [sys.executable, "-m", "listwright", *arguments, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"listwright {' '.join(arguments)}: {done.stdout}{done.stderr}")
        seconds = {"wall_s": time.perf_counter() - began, "cpu_s": _seconds_of_children() - worked}
        fitted = bundle.load(out)
    manifest = fitted.manifest
    kind = "LightGBM" if manifest.strategy == "first_stage" else manifest.strategy
    evaluation = evaluate(fitted.reranker, read_split(table, split).test)
    values = np.nan_to_num(evaluation.values[manifest.strategy][f"ndcg@{CUTOFF}"])
    ships = kind + (" + relative" if manifest.relative else "")
    return {"ships": ships, "reason": manifest.default_reason, **_rounded(values, seconds)}


def _seconds_of_children() -> float:
    """Return the CPU seconds of all subprocesses that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _rounded(values: Float[np.ndarray, " N"], seconds: Mapping[str, float]) -> Row:
    return {**{name: round(s, 1) for name, s in seconds.items()}, "values": [round(float(v), 6) for v in values]}
