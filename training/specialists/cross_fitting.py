"""How specialists and generalist do on queries that they did not see: what a router learns from.

The training queries are dealt to folds. Without each fold generalist and mixture are fitted anew from nothing, and the
held-out queries are ranked by these. (Going on from the full mixture would leak: the optimum that EM is in was chosen
with the held-out queries, and an MLP remembers more.) The fold's specialists then get the numbers of those of the full
mixture whose queries they share.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.order import rank_by_score
from listwright.ranking.scorers import OnnxScorer
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.relative import widened_part
from listwright.training.recipe.model import NetworkSpec
from listwright.training.router.fit import JudgedLists
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.loop import fit_network, predict, query_ndcg
from listwright.training.specialists.srm import FittedSrm, fit_srm, lists_of
from listwright.training.workspace import RunContext


def cross_fit(
    run: RunContext, generalist: NetworkSpec, mixture: FittedSrm, first: FittedFirstStage, anomaly: bytes
) -> JudgedLists:
    """Judge every training query by rankers that did not see it.

    Args:
        run: its recipe has a router; folds that are finished are not done again.
        generalist: as it was fitted; it stops early by the validation queries, as the full one did.
        mixture: fitted on all training queries.
        first: of the run.
        anomaly: graph of the anomaly score.
    """
    router, train = run.recipe.router, run.splits.train
    assert router is not None
    task = run.progress.begin("Router, by folds", router.folds)
    fold_of = np.random.default_rng([run.recipe.seed, router.folds]).permutation(len(train)) % router.folds
    parts: list[dict[str, np.ndarray]] = []
    for fold in range(router.folds):
        file = run.state / f"router_fold_{fold + 1}.npz"
        if not file.exists():
            kept, left = (np.flatnonzero(which) for which in (fold_of != fold, fold_of == fold))
            checkpoint = run.state / f"generalist_fold_{fold + 1}.pt"
            part = _judged(run, generalist, mixture, first, anomaly, kept, left, checkpoint)
            temporary = file.with_suffix(".tmp.npz")
            np.savez(temporary, **part)  # type: ignore[arg-type]
            temporary.replace(file)
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
    kept: Int[np.ndarray, " M"],
    left: Int[np.ndarray, " S"],
    checkpoint: Path,
) -> dict[str, np.ndarray]:
    """The queries ``left``, judged by rankers that were fitted on ``kept``."""
    router, seed, train = run.recipe.router, run.recipe.seed, run.splits.train
    assert router is not None
    seen, scores = train.select(kept), first.train_scores[train.rows_of(kept)]
    columns = first.relative if generalist.relative else ()
    general = fit_network(
        generalist,
        widened_part(seen, columns),
        widened_part(run.splits.valid, columns),
        scores,
        first.valid_scores,
        seed=seed,
        score_feature=first.score_feature,
        checkpoint=checkpoint,
        device=run.device,
    )
    special = numbered_like(mixture, fit_srm(mixture.spec, seen, scores, seed=seed), kept)
    held_out, held_scores = train.select(left), first.train_scores[train.rows_of(left)]
    lists = lists_for(generalist, widened_part(held_out, columns), held_scores)
    part = judge(special, held_out, held_scores, anomaly, router.ndcg_at)
    part["generalist"] = query_ndcg(predict(general.module, lists), lists, held_out, held_scores, router.ndcg_at)
    return part


def numbered_like(full: FittedSrm, part: FittedSrm, kept: Int[np.ndarray, " M"]) -> FittedSrm:
    """A fold's mixture, its specialists numbered as those of the full one that answer for the same queries.

    Args:
        full: fitted on all training queries.
        part: fitted on some.
        kept: which queries these are.
    """
    place = {int(query): row for row, query in enumerate(full.informative)}
    rows = [place[int(query)] for query in kept[part.informative]]
    shared = full.shares[rows].T @ part.shares  # (K, K) queries that both give to j and k
    _, order = linear_sum_assignment(-shared)
    return part.renumbered(order)


def judge(
    fitted: FittedSrm, data: Dataset, scores: Float[np.ndarray, " R"], anomaly: bytes, cutoff: int
) -> dict[str, np.ndarray]:
    """Aggregates of every list, ``(N, A)``, and NDCG of every specialist, ``(N, K)``."""
    count = len(fitted.weights)
    seen = Aggregates(data.schema, count)
    forest = OnnxScorer(anomaly, seen.numeric, columns=1, name="anomaly score")

    def strangeness(means: Float[np.ndarray, " M"]) -> float:
        return float(forest.score(means[None])[0, 0])

    lists = lists_of(fitted.spec, data, scores)
    aggregates = np.empty((len(data), len(seen.names)), dtype=np.float32)
    by_specialists = []
    for n, (features, _) in enumerate(data.lists()):
        first, kept = scores[data.slice(n)], lists.kept(n)
        with torch.inference_mode():
            found = fitted.module(torch.from_numpy(lists.inputs(n))).numpy()
        by_first_stage = rank_by_score(first)
        aggregates[n] = seen.of(features, first, by_first_stage, strangeness, found, kept)
        by_specialists.append(found)
    values = [query_ndcg([found[:, k] for found in by_specialists], lists, data, scores, cutoff) for k in range(count)]
    return {"aggregates": aggregates, "specialists": np.column_stack(values)}
