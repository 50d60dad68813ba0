"""What the report's page shows beyond the metrics, as plain values for ``report.json``.

Among it is where QILCM and QILCM2 look, by the first stage's rank; how far the test rows lie within what training saw;
and, as a fact of this machine at this moment and not of the run, how long the bundle takes by list length.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import nn

from listwright.ranking.candidates import CandidateList
from listwright.ranking.features import UNKNOWN_CODE, Feature
from listwright.ranking.manifest import Manifest
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.reranker import Reranker
from listwright.ranking.threads import cores, threads
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.shards.rows import columns
from listwright.training.evaluation.protocol import Evaluation
from listwright.training.networks.qilcm import Qilcm2Network, QilcmNetwork
from listwright.training.networks.ranker import Preprocess
from listwright.training.reporting.measures import behaviour
from listwright.training.reporting.measures.behaviour import RankedQuery, mean_and_half
from listwright.training.second_stage.loop import FittedNetwork

MOST_EPOCHS = 200

MOST_RANKS = 40
"""First-stage ranks shown; beyond them attention differs little."""

MOST_FEATURES = 40
"""Features listed, the most striking first; those without a difference are left out."""

MUCH = 0.01
"""Share of the rows from which a difference to training counts."""

LATENCY_LENGTHS = (1, 10, 25, 50, 100, 200)

LATENCY_REPEATS = 50

LATENCY_WARM_UP = 2


def details(
    reranker: Reranker,
    splits: Splits,
    evaluation: Evaluation,
    network: FittedNetwork,
    metric: str,
) -> dict[str, object]:
    """Measure all details of the sealed bundle on the test split; the same values at every run.

    Args:
        reranker: of the sealed bundle.
        splits: of the run.
        evaluation: of all test queries.
        network: the second stage, and how its fit went.
        metric: what a query gains is measured by.
    """
    by_ranker, ranker = evaluation.values, evaluation.generalist
    names = tuple(by_ranker[ranker])
    filled = {name: np.nan_to_num(by_ranker[name][metric], nan=0.0) for name in (ranker, "first_stage")}
    picked = behaviour.spread(len(splits.test), behaviour.MOST_QUERIES)
    assert evaluation.ranked is not None
    queries = behaviour.look(evaluation.ranked, splits.test, picked, ranker)
    counted = [evaluation.protocol.apply(by_ranker[name][metric]) for name in (ranker, "first_stage")]
    return {
        "learning": _learning(network),
        "gains": [
            {"metric": name, **dict(zip(("mean", "low", "high"), gain, strict=True))}
            for name, gain in zip(names, evaluation.gains(names, ranker, "first_stage"), strict=True)
        ],
        "wins": {"metric": metric, **behaviour.wins(counted[0] - counted[1])},
        "looked_at": len(queries),
        "movement": behaviour.movement(queries),
        "scores": behaviour.scores(queries),
        "attention": _attention(network.module, reranker, queries),
        "anomaly": behaviour.anomaly(reranker, queries, (filled[ranker] - filled["first_stage"])[picked]),
        "features": coverage(splits.train, splits.test),
    }


def _attention(module: nn.Module, reranker: Reranker, queries: Sequence[RankedQuery]) -> dict[str, object] | None:
    stage = reranker.manifest.second_stage
    if stage is None:
        return None
    return attention(module, stage.first_stage_score, queries, reranker.relative if stage.relative else None)


def short_details(splits: Splits) -> dict[str, object]:
    """Return the details of a bundle whose first stage stands alone: there is nothing to compare it with."""
    return {"features": coverage(splits.train, splits.test)}


def default_of(manifest: Manifest) -> dict[str, object]:
    """Describe what ``auto`` means without a router, why, and by which comparisons: none for a forced model."""
    facts: dict[str, object] = {"strategy": manifest.strategy, "reason": manifest.default_reason}
    recipe = manifest.recipe
    compared = recipe.get("choice") is not None and recipe.get("router") is None
    chosen = compared or recipe["model"]["kind"] == "first_stage"
    return facts | ({"compared": [one.model_dump() for one in manifest.choice]} if chosen and manifest.choice else {})


def repeat(manifest: Manifest, command: str, data_fingerprint: str) -> dict[str, object]:
    """Return what was run, and how to run it again."""
    return {
        "bundle": f"{manifest.name}/{manifest.version}",
        "command": command,
        "seed": manifest.recipe["seed"],
        "data_fingerprint": f"sha256:{data_fingerprint}",
        "schema_fingerprint": manifest.fingerprint,
        "made_with": manifest.made_with,
    }


def _learning(network: FittedNetwork) -> dict[str, object]:
    """Return the epochs, thinned out where there are very many; the best one stays."""
    history = network.history
    if not history:
        return {"columns": [], "epochs": []}
    best = int(np.argmax([epoch.valid_ndcg for epoch in history]))
    numbers = sorted({*behaviour.spread(len(history), MOST_EPOCHS).tolist(), best})
    columns = ("number", "rank_loss", "confusion_loss", "valid_ndcg")
    return {
        "columns": list(columns),
        "epochs": [
            [history[n].number, *behaviour.rounded([getattr(history[n], name) for name in columns[1:]])]
            for n in numbers
        ],
    }


def attention(
    module: nn.Module, first_stage_score: bool, queries: Sequence[RankedQuery], relative: RelativeColumns | None = None
) -> dict[str, object] | None:
    """Return attention times list length by first-stage rank: 1 is each candidate's share of an even split.

    Args:
        module: the fitted model.
        first_stage_score: whether that is its last input column.
        queries: queries; lists of one candidate have no choice and are left out.
        relative: list-relative columns that stand behind its features; None for none.

    Returns:
        Per rank: how many lists reach it, mean, quartiles. None for a model without attention, or without such lists.
    """
    preprocess, network = getattr(module, "preprocess", None), getattr(module, "network", None)
    if not isinstance(network, QilcmNetwork | Qilcm2Network) or not isinstance(preprocess, Preprocess):
        return None
    by_rank: list[list[float]] = [[] for _ in range(MOST_RANKS)]
    for query in queries:
        if query.reranked.sum() < 2:
            continue
        weights = _attention_weights(preprocess, network, first_stage_score, relative, query)
        ranks = query.first_ranks[query.reranked]
        for rank, weight in zip(ranks, weights * len(weights), strict=True):
            if rank <= MOST_RANKS:
                by_rank[rank - 1].append(float(weight))
    rows = [[len(weights_at_rank), *mean_and_half(weights_at_rank)] for weights_at_rank in by_rank if weights_at_rank]
    return {"columns": ["lists", "mean", "low", "high"], "by_rank": rows} if rows else None


def _attention_weights(
    preprocess: Preprocess,
    network: QilcmNetwork | Qilcm2Network,
    first_stage_score: bool,
    relative: RelativeColumns | None,
    query: RankedQuery,
) -> Float[np.ndarray, " C"]:
    features = query.features if relative is None else relative.widened(query.features)
    rows = features[query.reranked]
    if first_stage_score:
        rows = np.column_stack([rows, query.first_scores[query.reranked].astype(np.float32)])
    with torch.inference_mode():
        inputs = preprocess(torch.from_numpy(rows))[None]
        attention = (
            network.represent(inputs).attention if isinstance(network, QilcmNetwork) else network.attention(inputs)
        )[0]
    weights: Float[np.ndarray, " C"] = attention.double().numpy()
    return weights


def coverage(train: Dataset, test: Dataset) -> dict[str, object]:
    """Return shares of rows per feature: missing in training and in test, beyond the training quantiles, unknown.

    Beyond means below the lowest or above the highest quantile kept in the schema, of the values that are there: the
    networks clip such a value. A missing category counts as unknown. ``missing`` is the number of features that
    miss values more often than in training.
    """
    schema = train.schema
    by_column = zip(schema.features, columns(train.features), columns(test.features), strict=True)
    shares = [_coverage_of(feature, trained, now) for feature, trained, now in by_column]
    shares.sort(key=lambda row: -row.strangeness)
    listed = [row for row in shares if any(row[1:])]
    return {
        "columns": ["feature", "missing_in_training", "missing", "beyond_training_quantiles", "unknown"],
        "features": len(shares),
        "listed": len(listed),
        "missing": sum((row.missing or 0.0) > (row.missing_in_training or 0.0) + MUCH for row in shares),
        "clipped_often": sum((row.beyond or 0.0) > MUCH for row in shares),
        "unknown": sum(bool(row.unknown) for row in shares),
        "rows": [list(row) for row in listed[:MOST_FEATURES]],
    }


class _FeatureCoverage(NamedTuple):
    """Shares of a feature's rows; None for what its kind does not have."""

    name: str
    missing_in_training: float | None = None
    missing: float | None = None
    beyond: float | None = None
    unknown: float | None = None

    @property
    def strangeness(self) -> float:
        """How much a reader should see the row: what is new in the test rows counts, what training had too does not."""
        return abs((self.missing or 0.0) - (self.missing_in_training or 0.0)) + (self.beyond or self.unknown or 0.0)


def _coverage_of(feature: Feature, trained: Float[np.ndarray, " R"], now: Float[np.ndarray, " S"]) -> _FeatureCoverage:
    if feature.kind == "categorical":
        return _FeatureCoverage(feature.name, unknown=_share(now == UNKNOWN_CODE))
    there = now[~np.isnan(now)]
    ends = feature.quantiles or (-np.inf, np.inf)
    beyond = _share((there < np.float32(ends[0])) | (there > np.float32(ends[-1])))
    return _FeatureCoverage(feature.name, _share(np.isnan(trained)), _share(np.isnan(now)), beyond)


def _share(chosen: Bool[np.ndarray, " S"]) -> float:
    return round(float(chosen.mean()), 6) if len(chosen) else 0.0


def measured_here(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """Return the figures that another run of the same recipe does not repeat: day, machine, latency."""
    return {
        "created_at": str(reranker.manifest.created_at),
        "machine": machine(),
        "latency": latency(reranker, test, strategy),
    }


def latency(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """Measure median and 95th percentile of ``Reranker.rerank`` in milliseconds, on lists of random test rows."""
    rng = np.random.default_rng(0)
    rows = []
    for length in LATENCY_LENGTHS:
        milliseconds = []
        for _ in range(LATENCY_WARM_UP + LATENCY_REPEATS):
            candidates = CandidateList(test.features[rng.integers(0, test.rows, length)])
            started = time.perf_counter()
            reranker.rerank(candidates, strategy=strategy)
            milliseconds.append((time.perf_counter() - started) * 1000.0)
        rows.append([length, *(round(float(q), 3) for q in np.quantile(milliseconds[LATENCY_WARM_UP:], (0.5, 0.95)))])
    return {"columns": ["length", "median_ms", "p95_ms"], "repeats": LATENCY_REPEATS, "rows": rows}


def machine() -> str:
    """Describe the machine in one line: processor, usable cores, threads, system, Python."""
    return (
        f"{_processor()}, usable cores: {cores()}, threads: {threads()}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
