"""The effect of routing on held-out queries, measured through the sealed bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking import bundle
from listwright.ranking.metrics import QueryNdcg
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.protocol import check_complete, shuffled_lists
from listwright.training.specialists.router import find_best

ABSTAINED = -1


@dataclass(frozen=True, slots=True)
class RoutingEvaluation:
    """Per-query NDCG of N test queries; a query without a relevant candidate counts 0.

    Args:
        generalist: ``(N,)``.
        default: ``(N,)`` what answers where the router abstains.
        specialists: ``(N, K)``.
        routed: ``(N,)`` what ``auto`` answers.
        hard: ``(N,)`` the most probable specialist, always.
        mixture: ``(N,)`` all specialists weighed by the router's probabilities, always.
        probabilities, gains: ``(N, K)`` the router's estimates.
        route: ``(N,)`` specialist of ``routed``; -1 where the router abstained.
        query: ``(N,)`` number of each row's query; rows of one query (several seeds) are resampled together.
        default_is: Name of the ranker of ``default``.
    """

    generalist: Float[np.ndarray, " N"]
    default: Float[np.ndarray, " N"]
    specialists: Float[np.ndarray, "N K"]
    routed: Float[np.ndarray, " N"]
    hard: Float[np.ndarray, " N"]
    mixture: Float[np.ndarray, " N"]
    probabilities: Float[np.ndarray, "N K"]
    gains: Float[np.ndarray, "N K"]
    route: Int[np.ndarray, " N"]
    query: Int[np.ndarray, " N"]
    default_is: Literal["generalist", "first stage"] = "generalist"

    @property
    def coverage(self) -> float:
        """Share of queries that were routed."""
        return float((self.route != ABSTAINED).mean())

    @property
    def top1(self) -> float:
        """Share of queries whose most probable specialist is a best one."""
        return float(self.best[np.arange(len(self.route)), self.probabilities.argmax(axis=1)].mean())

    @property
    def chance(self) -> float:
        """Share of best ones among all specialists: ties make it more than 1 / K."""
        return float(self.best.mean())

    @property
    def best(self) -> Bool[np.ndarray, "N K"]:
        """Which specialists are a query's best."""
        return find_best(self.specialists)

    def gain(self, of: Float[np.ndarray, " N"], over: Float[np.ndarray, " N"]) -> tuple[float, float, float]:
        """Return the mean paired difference with its 95 % interval over queries."""
        low, high = percentile_interval(resample_means(of - over, self.query))
        return float((of - over).mean()), float(low), float(high)

    @property
    def accuracy(self) -> float | None:
        """The classifier on the oracle's axis, ``(top1 - chance) / (1 - chance)``; None where all are always best."""
        return None if self.chance == 1.0 else (self.top1 - self.chance) / (1.0 - self.chance)

    @property
    def value(self) -> float | None:
        """The same in NDCG, ``(hard - mean) / (oracle - mean)``; None where specialists never differ."""
        mean, oracle = self.specialists.mean(), self.specialists.max(axis=1).mean()
        return None if oracle - mean < 1e-12 else float((self.hard.mean() - mean) / (oracle - mean))

    def facts(self) -> dict[str, object]:
        """Return the figures for the report."""

        def gain(of: Float[np.ndarray, " N"], over: Float[np.ndarray, " N"]) -> dict[str, float]:
            return dict(zip(("mean", "low", "high"), self.gain(of, over), strict=True))

        return {
            "queries": len(np.unique(self.query)),
            "specialists": self.specialists.shape[1],
            "coverage": self.coverage,
            "gain_over_generalist": gain(self.routed, self.generalist),
            "abstains_to": self.default_is,
            "gain_over_default": gain(self.routed, self.default),
            "mixture_over_hard_route": gain(self.mixture, self.hard),
            "ndcg": {
                "generalist": float(self.generalist.mean()),
                "routed": float(self.routed.mean()),
                "hard_route": float(self.hard.mean()),
                "mixture": float(self.mixture.mean()),
                "oracle": float(self.specialists.max(axis=1).mean()),
                "mean_specialist": float(self.specialists.mean()),
            },
            "top1": self.top1,
            "chance": self.chance,
            "accuracy_on_the_oracle_axis": self.accuracy,
            "value_on_the_oracle_axis": self.value,
        }


def evaluate_routing(path: Path, test: Dataset, *, ndcg_at: int) -> RoutingEvaluation | None:
    """Rank every test query by every specialist, by the generalist and by every way of routing.

    Args:
        path: Folder of a sealed bundle.
        test: Queries that no part of the bundle was fitted on here.
        ndcg_at: Cutoff of the NDCG.

    Returns:
        None if the bundle has no router.

    Raises:
        ScoringError: if a ranking is degraded.
    """
    served = bundle.load(path)
    manifest = served.manifest
    if manifest.router is None or manifest.srm is None or manifest.second_stage is None:
        return None
    never = manifest.model_copy(update={"router": manifest.router.model_copy(update={"margin": None})})
    abstaining = bundle.open_unsealed(path, never)  # "srm" then answers the mixture for every query
    count = len(manifest.srm.specialists)
    rows = []
    keys = list[np.ndarray]()
    for n, (_, candidates, labels) in enumerate(shuffled_lists(test)):
        auto = served.reranker.rerank(candidates)
        mixed = abstaining.rerank(candidates, strategy="srm")
        by_name = (manifest.second_stage.kind, manifest.strategy)
        answers = [auto, mixed, *(served.reranker.rerank(candidates, strategy=name) for name in by_name)]
        answers += [served.reranker.rerank(candidates, specialist=k) for k in range(count)]
        keys.append(np.array([check_complete(answer, test.qids[n]).sort_keys for answer in answers]))
        specialist = ABSTAINED if auto.route.specialist is None else auto.route.specialist
        rows.append((labels, mixed.route.probabilities, mixed.route.gains, specialist))
    lists = QueryNdcg(np.concatenate([row[0] for row in rows]), test.offsets, cutoff=ndcg_at, gains=test.gains)
    ndcgs = np.column_stack([lists.of(of_answer) for of_answer in np.concatenate(keys, axis=1)])
    probabilities = np.array([row[1] for row in rows])
    return RoutingEvaluation(
        routed=ndcgs[:, 0],
        mixture=ndcgs[:, 1],
        generalist=ndcgs[:, 2],
        default=ndcgs[:, 3],
        specialists=ndcgs[:, 4:],
        hard=ndcgs[np.arange(len(rows)), 4 + probabilities.argmax(axis=1)],
        probabilities=probabilities,
        gains=np.array([row[2] for row in rows]),
        route=np.array([row[3] for row in rows]),
        query=np.arange(len(rows)),
        default_is="first stage" if manifest.strategy == "first_stage" else "generalist",
    )
