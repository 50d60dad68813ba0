"""Everything that the report's page shows beyond the metrics, as plain values for ``report.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from torch import nn

from listwright.ranking.manifest import Manifest
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.evaluate import Evaluation
from listwright.training.reporting.measures import behaviour
from listwright.training.reporting.measures.attention import attention
from listwright.training.reporting.measures.coverage import coverage

MOST_EPOCHS = 200


@runtime_checkable
class EpochFigures(Protocol):
    """What a training loop remembers of an epoch."""

    @property
    def number(self) -> int:
        """Counted from 1."""

    @property
    def rank_loss(self) -> float:
        """Mean over batches."""

    @property
    def confusion_loss(self) -> float:
        """The same, before weighting; 0 where it is not used."""

    @property
    def valid_ndcg(self) -> float:
        """Of the validation queries after the epoch."""


def details(
    reranker: Reranker,
    splits: Splits,
    evaluation: Evaluation,
    module: nn.Module,
    history: Sequence[EpochFigures],
    metric: str,
) -> dict[str, object]:
    """What the sealed bundle does to the test split, seen from all sides; the same values at every run.

    Args:
        reranker: of the sealed bundle.
        splits: of the run.
        evaluation: of all test queries.
        module, history: the fitted second stage, and how it went.
        metric: what a query gains is measured by.
    """
    by_ranker, ranker = evaluation.values, evaluation.generalist
    filled = {name: np.nan_to_num(by_ranker[name][metric], nan=0.0) for name in (ranker, "first_stage")}
    picked = behaviour.spread(len(splits.test), behaviour.MOST_QUERIES)
    seen = behaviour.look(reranker, splits.test, picked, ranker)
    counted = [evaluation.protocol.apply(by_ranker[name][metric]) for name in (ranker, "first_stage")]
    return {
        "learning": _learning(history),
        "gains": [
            {
                "metric": name,
                **dict(zip(("mean", "low", "high"), evaluation.gain(name, ranker, "first_stage"), strict=True)),
            }
            for name in by_ranker[ranker]
        ],
        "wins": {"metric": metric, **behaviour.wins(counted[0] - counted[1])},
        "looked_at": len(seen),
        "movement": behaviour.movement(seen),
        "scores": behaviour.scores(seen),
        "attention": _attention(module, reranker, seen),
        "anomaly": behaviour.anomaly(reranker, seen, (filled[ranker] - filled["first_stage"])[picked]),
        "features": coverage(splits.train, splits.test),
    }


def _attention(module: nn.Module, reranker: Reranker, seen: Sequence[behaviour.Seen]) -> dict[str, object] | None:
    stage = reranker.manifest.second_stage
    if stage is None:
        return None
    return attention(module, stage.first_stage_score, seen, reranker.relative if stage.relative else None)


def alone(splits: Splits) -> dict[str, object]:
    """The same of a bundle whose first stage stands alone: there is nothing to compare it with."""
    return {"features": coverage(splits.train, splits.test)}


def default_of(manifest: Manifest) -> dict[str, object]:
    """What ``auto`` means where no router decides, why, and the comparisons that chose it: none for a forced model."""
    found: dict[str, object] = {"strategy": manifest.strategy, "reason": manifest.default_reason}
    recipe = manifest.recipe
    compared = recipe.get("choice") is not None and recipe.get("router") is None
    chosen = compared or recipe["model"]["kind"] == "first_stage"
    return found | ({"compared": [one.model_dump() for one in manifest.choice]} if chosen and manifest.choice else {})


def repeat(manifest: Manifest, command: str, data_fingerprint: str) -> dict[str, object]:
    """What was run, and how to run it again."""
    return {
        "bundle": f"{manifest.name}/{manifest.version}",
        "command": command,
        "seed": manifest.recipe["seed"],
        "data_fingerprint": f"sha256:{data_fingerprint}",
        "schema_fingerprint": manifest.fingerprint,
        "made_with": manifest.made_with,
    }


def _learning(history: Sequence[EpochFigures]) -> dict[str, object]:
    """The epochs, thinned out where there are very many; the best one stays."""
    if not history:
        return {"columns": [], "epochs": []}
    best = int(np.argmax([epoch.valid_ndcg for epoch in history]))
    kept = sorted({*behaviour.spread(len(history), MOST_EPOCHS).tolist(), best})
    columns = ("number", "rank_loss", "confusion_loss", "valid_ndcg")
    return {
        "columns": list(columns),
        "epochs": [
            [history[n].number, *behaviour.rounded([getattr(history[n], name) for name in columns[1:]])] for n in kept
        ],
    }
