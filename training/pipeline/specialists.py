"""The specialists of a run: the mixture, and the router that selects one.

A router learns from how specialists and generalist do on queries that they did not see. The training queries are dealt
to folds. Without each fold generalist and mixture are fitted anew from nothing, and the held-out queries are ranked by
these. (Going on from the full mixture would leak: the optimum that EM is in was chosen with the held-out queries, and
an MLP remembers more.) The fold's specialists then get the numbers of those of the full mixture whose queries they
share.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import RecipeError
from listwright.ranking.order import rank_by_score
from listwright.ranking.scorers import OnnxScorer
from listwright.ranking.stages import SrmStage
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.relative import widened_part
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.model import NetworkSpec
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.loop import fit_network, predict, query_ndcg
from listwright.training.specialists.router import FittedAnomaly, FittedRouter, JudgedLists, fit_router
from listwright.training.specialists.srm import FittedSrm, fit_srm, lists_of


@dataclass(frozen=True, slots=True)
class FittedSpecialists:
    """The specialists of a bundle, besides its generalist.

    Args:
        srm: Fitted mixture.
        stage: Entry of the manifest.
        router: Fitted router; None if the recipe has none.
    """

    srm: FittedSrm
    stage: SrmStage
    router: FittedRouter | None

    @property
    def facts(self) -> dict[str, object]:
        """Facts for the report."""
        return {
            "kind": "srm",
            "iterations": len(self.srm.steps),
            "converged": self.srm.converged,
            "log_likelihood": self.srm.steps[-1].objective,
            "entropy": self.srm.steps[-1].entropy,
            "starts": self.srm.starts,
            "informative_queries": len(self.srm.informative),
            "specialists": [specialist.model_dump(mode="json") for specialist in self.srm.describe()],
            "router": None if self.router is None else self.router.facts,
        }


def fit_specialists(
    run: RunContext, first: FittedFirstStage, anomaly: FittedAnomaly | None, generalist: NetworkSpec | None
) -> FittedSpecialists | None:
    """Fit the specialists of a recipe; None if it has none.

    Args:
        run: Context of the run.
        first: First stage of the run.
        anomaly: Anomaly score of the run; a router needs one.
        generalist: Model of the recipe as it was fitted; None only where the recipe has no router either.

    Raises:
        RecipeError: if there is nothing numeric for a router to look at.
    """
    spec, router = run.recipe.specialists, None
    if spec is None:
        return None
    task = run.progress.begin("EM", spec.max_iterations, name="srm")
    srm = fit_srm(
        spec, run.splits.train, first.train_scores, seed=run.recipe.seed, checkpoint=run.state / "srm.pt", task=task
    )
    task.end(len(srm.steps), f"{spec.specialists} specialists, log P {srm.steps[-1].objective:.1f}")
    stage = SrmStage(cutoff=spec.cutoff, first_stage_score=spec.first_stage_score, specialists=srm.describe())
    if run.recipe.router is not None:
        assert generalist is not None
        if anomaly is None:
            raise RecipeError("a [router] needs numeric features, and the data have none: leave it out")
        lists = _cross_fit(run, generalist, srm, first, anomaly.graph)
        router = fit_router(run.recipe.router, lists, seed=run.recipe.seed)
    return FittedSpecialists(srm, stage, router)


def _cross_fit(
    run: RunContext, generalist: NetworkSpec, mixture: FittedSrm, first: FittedFirstStage, anomaly: bytes
) -> JudgedLists:
    """Judge every training query by rankers that were not fitted on it."""
    router, train = run.recipe.router, run.splits.train
    assert router is not None
    task = run.progress.begin("Router, by folds", router.folds)
    fold_of = np.random.default_rng([run.recipe.seed, router.folds]).permutation(len(train)) % router.folds
    parts: list[dict[str, np.ndarray]] = []
    for fold in range(router.folds):
        file = run.state / f"router_fold_{fold + 1}.npz"
        if not file.exists():
            inside, outside = (np.flatnonzero(which) for which in (fold_of != fold, fold_of == fold))
            checkpoint = run.state / f"generalist_fold_{fold + 1}.pt"
            part = _judged(run, generalist, mixture, first, anomaly, inside, outside, checkpoint)
            with atomic_file(file) as to:
                np.savez(to, **part)  # type: ignore[arg-type]
        parts.append(dict(np.load(file)))
        task.reach(fold + 1)
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return JudgedLists(together["aggregates"], together["specialists"], together["generalist"])


def _judged(
    run: RunContext,
    generalist: NetworkSpec,
    mixture: FittedSrm,
    first: FittedFirstStage,
    anomaly: bytes,
    inside: Int[np.ndarray, " M"],
    outside: Int[np.ndarray, " S"],
    checkpoint: Path,
) -> dict[str, np.ndarray]:
    """Judge the queries ``outside`` by rankers that were fitted on ``inside``."""
    router, seed, train = run.recipe.router, run.recipe.seed, run.splits.train
    assert router is not None
    train_part, scores = train.select(inside), first.train_scores[train.rows_of(inside)]
    columns = first.relative if generalist.relative else ()
    general = fit_network(
        generalist,
        widened_part(train_part, columns),
        widened_part(run.splits.valid, columns),
        scores,
        first.valid_scores,
        seed=seed,
        score_feature=first.score_feature,
        checkpoint=checkpoint,
        device=run.device,
    )
    special = _numbered_like(mixture, fit_srm(mixture.spec, train_part, scores, seed=seed), inside)
    held_out, held_scores = train.select(outside), first.train_scores[train.rows_of(outside)]
    lists = lists_for(generalist, widened_part(held_out, columns), held_scores)
    part = judge(special, held_out, held_scores, anomaly, router.ndcg_at)
    part["generalist"] = query_ndcg(predict(general.module, lists), lists, held_out, held_scores, router.ndcg_at)
    return part


def _numbered_like(full: FittedSrm, part: FittedSrm, queries: Int[np.ndarray, " M"]) -> FittedSrm:
    """Renumber a fold's mixture so that its specialists have the numbers of the full one's for the same queries."""
    place = {int(query): row for row, query in enumerate(full.informative)}
    rows = [place[int(query)] for query in queries[part.informative]]
    shared = full.shares[rows].T @ part.shares  # (K, K) queries that both give to j and k
    _, order = linear_sum_assignment(-shared)
    return part.renumbered(order)


def judge(
    fitted: FittedSrm, data: Dataset, scores: Float[np.ndarray, " R"], anomaly: bytes, cutoff: int
) -> dict[str, np.ndarray]:
    """Return aggregates of every list, ``(N, A)``, and NDCG of every specialist, ``(N, K)``."""
    count = len(fitted.weights)
    described = Aggregates(data.schema, count)
    forest = OnnxScorer(anomaly, described.numeric, columns=1, name="anomaly score")

    def strangeness(means: Float[np.ndarray, " M"]) -> float:
        return float(forest.score(means[None])[0, 0])

    lists = lists_of(fitted.spec, data, scores)
    aggregates = np.empty((len(data), len(described.names)), dtype=np.float32)
    by_specialists = []
    for n, (features, _) in enumerate(data.lists()):
        first, top = scores[data.slice(n)], lists.candidates(n)
        with torch.inference_mode():
            outputs = fitted.module(torch.from_numpy(lists.inputs(n))).numpy()
        by_first_stage = rank_by_score(first)
        aggregates[n] = described.of(features, first, by_first_stage, strangeness, outputs, top)
        by_specialists.append(outputs)
    values = [
        query_ndcg([outputs[:, k] for outputs in by_specialists], lists, data, scores, cutoff) for k in range(count)
    ]
    return {"aggregates": aggregates, "specialists": np.column_stack(values)}
