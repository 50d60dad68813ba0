"""Which ranker ``auto`` means: the simplest that no second stage beats on queries that none was fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from listwright.ranking import bundle
from listwright.ranking.manifest import Comparison, Manifest
from listwright.ranking.metrics import ndcg
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import NetworkKind
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.evaluate import bootstrap_interval, shuffled_lists, whole
from listwright.training.evaluation.verdicts import FEWEST, choice_verdict_of
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import query_folds
from listwright.training.first_stage.relative import widened
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.run_context import RunContext
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.data_parallel import on_workers
from listwright.training.second_stage.fit import as_fitted
from listwright.training.second_stage.loop import fit_network, predict, query_ndcg

NAMES = {
    "plain": "the first stage without list-relative columns",
    "relative": "the first stage with list-relative columns",
    "first_stage": "the first stage",
}
"""What people call the rankers of a comparison; a network has its title."""

ROUNDING = 1e-12
"""Of a mean: less is no difference."""

Strategy = NetworkKind | Literal["first_stage"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What ``auto`` means in a bundle.

    Args:
        strategy: of the ranker.
        reason: why; None if there was nothing to choose.
        comparisons: that it was chosen by.
    """

    strategy: Strategy
    reason: str | None = None
    comparisons: tuple[Comparison, ...] = ()


def compared(
    ranker: str,
    over: str,
    gains: Float[np.ndarray, " N"],
    metric: str,
    weights: Float[np.ndarray, " N"] | None = None,
    *,
    comparisons: int = 1,
) -> Comparison:
    """The paired gain of one ranker over another.

    Args:
        ranker, over: their names.
        gains: ``(N,)`` difference of the metric for every query.
        metric: its name.
        weights: ``(N,)`` of the queries; None: all alike.
        comparisons: of second stages; their intervals hold together with 95 %.
    """
    low, high = bootstrap_interval(gains, weights, intervals=comparisons)
    mean = float(np.average(gains, weights=weights))
    return Comparison(
        ranker=ranker, over=over, metric=metric, mean=mean, low=low, high=high, n=_that_count(gains, weights)
    )


def _that_count(gains: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None) -> int:
    """How many queries of one weight would tell as much as these: (sum of weights)^2 / sum of squares (Kish, 1965)."""
    if weights is None:
        return len(gains)
    return round(float(weights.sum() ** 2 / (weights**2).sum()))


def pays(comparison: Comparison) -> bool:
    """Whether the gain is beyond doubt: its interval lies above 0, and enough queries count."""
    return choice_verdict_of(comparison.low, comparison.high, comparison.n) == "gain"


def ranks_better(comparison: Comparison) -> bool:
    """Whether the mean gain is above 0, and enough queries count."""
    return comparison.mean > 0.0 and comparison.n >= FEWEST


def compared_networks(recipe: Recipe) -> list[NetworkSpec]:
    """The second stages that a recipe compares, the simplest first; none where it fits one without comparing.

    A router learns what it gains over one second stage, and abstains to that. So with a router nothing is compared.
    """
    if recipe.choice is None or recipe.router is not None or isinstance(recipe.model, FirstStageAlone):
        return []
    others = {kind: recipe.model_named(kind) for kind in recipe.choice.second_stages}
    specs = {**others, recipe.model.kind: recipe.model}  # in the place that the choice gives it
    return [spec for spec in specs.values() if not isinstance(spec, FirstStageAlone)]


def better_first_stage(
    plain: FittedFirstStage, relative: FittedFirstStage, splits: Splits, cutoff: int
) -> tuple[FittedFirstStage, FittedFirstStage | None, tuple[Comparison, ...]]:
    """The one of two first stages that ranks the training queries better out of fold, as settings are chosen.

    Args:
        plain, relative: without and with list-relative columns, which the second may have found no use for.
        splits: of the run.
        cutoff: of the NDCG.

    Returns:
        The first stage; the one without list-relative columns where the other is taken; and the comparison.
    """
    if not relative.relative:
        return plain, None, ()
    gains = out_of_fold(relative, splits, cutoff) - out_of_fold(plain, splits, cutoff)
    weights = splits.train.query_weights
    comparison = compared("relative", "plain", gains, f"ndcg@{cutoff}", weights)
    if ranks_better(comparison):
        return relative, plain, (comparison,)
    return plain, None, (comparison,)


def out_of_fold(first: FittedFirstStage, splits: Splits, cutoff: int) -> Float[np.ndarray, " N"]:
    """``(N,)`` NDCG of every training query by the first stage's out-of-fold scores."""
    return lambdamart.query_ndcg(splits.train, first.train_scores, cutoff)


def reason(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> str:
    """The comparisons in words.

    Args:
        comparisons: in the order in which they were made.
        titles: of the networks.
    """
    names = {**NAMES, **titles}
    said = [
        f"{names[c.ranker]} over {names[c.over]}: {c.metric.replace('ndcg', 'NDCG')} {c.mean:+.4f} "
        f"[{c.low:+.4f}, {c.high:+.4f}], {choice_verdict_of(c.low, c.high, c.n)}"
        for c in comparisons
    ]
    n = comparisons[0].n
    return f"on {n} training queries, each ranked by models of this fit that were not trained on it: {'; '.join(said)}"


def without_worse(folder: Path, manifest: Manifest, valid: Dataset, cutoff: int) -> Manifest:
    """Take from ``auto``, where nothing was compared, what ranks the validation queries worse than the first stage.

    The second stage goes first, so that a router abstains to the first stage. If what the router answers then is worse,
    it always abstains. Both stay in the bundle, for requests that name them. These queries flatter a network, which
    stopped early on them.

    Args:
        folder: with the files of the stages.
        manifest: of the bundle, not sealed yet.
        valid: validation queries.
        cutoff: of the NDCG.

    Returns:
        The manifest, its ``strategy`` and its router's ``margin`` changed where something is worse.
    """
    reranker = bundle.open_unsealed(folder, manifest)
    first = _mean_ndcg(reranker, valid, "first_stage", cutoff)
    if manifest.strategy != "first_stage":
        second = _mean_ndcg(reranker, valid, manifest.strategy, cutoff)
        if second < first - ROUNDING:
            reason = _worse(manifest.strategy, second, first, valid, cutoff)
            manifest = manifest.model_copy(update={"strategy": "first_stage", "default_reason": reason})
            reranker.answer_with("first_stage")
    if manifest.router is not None and manifest.router.margin is not None:
        routed = _mean_ndcg(reranker, valid, "auto", cutoff)
        if routed < first - ROUNDING:
            reasons = (manifest.default_reason, _worse("routing", routed, first, valid, cutoff))
            abstaining = manifest.router.model_copy(update={"margin": None})
            reason = "; ".join(filter(None, reasons))
            manifest = manifest.model_copy(update={"router": abstaining, "default_reason": reason})
    return manifest


def _mean_ndcg(reranker: Reranker, valid: Dataset, strategy: str, cutoff: int) -> float:
    """Over queries, by their weights, through the code that serves."""
    values = [
        ndcg(
            whole(reranker.rerank(candidates, strategy=strategy), valid.qids[n]).sort_keys,
            labels,
            cutoff=cutoff,
            gains=valid.gains,
        )
        for n, (_, candidates, labels) in enumerate(shuffled_lists(valid))
    ]
    return float(np.average(np.nan_to_num(values), weights=valid.query_weights))


def _worse(name: str, value: float, first: float, valid: Dataset, cutoff: int) -> str:
    return (
        f"{name} is worse than the first stage on the {len(valid)} validation queries: NDCG@{cutoff} {value:.4f}, the "
        f"first stage's {first:.4f}"
    )


def cross_fitted(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> Float[np.ndarray, " N"]:
    """NDCG of every training query, reranked by a network that did not see it.

    Networks stop early by the validation queries, as the one on all training queries does.

    Args:
        run: its recipe says by how many folds; those that are finished are not done again.
        spec: of the network.
        first: that it stands on.

    Returns:
        ``(N,)`` at the network's ``ndcg_at``; 0 for a query without a relevant candidate.
    """
    choice, seed = run.recipe.choice, run.recipe.seed
    assert choice is not None
    spec = as_fitted(spec, first)
    seen = widened(run.splits, first.relative) if spec.relative else run.splits
    values = np.empty(len(seen.train))
    parts = query_folds(seen.train, choice.folds, seed + 1)
    task = run.progress.begin(f"Comparing {spec.title}, by folds", len(parts))
    for number, (rest, held_out) in enumerate(parts, start=1):
        file = run.state / f"compared_{spec.kind}_{number}.npy"
        if not file.exists():
            checkpoint = run.state / f"compared_{spec.kind}_{number}.pt"
            train, part = seen.train.select(rest), seen.train.select(held_out)
            fitted = fit_network(
                spec,
                train,
                seen.valid,
                first.train_scores[seen.train.rows_of(rest)],
                first.valid_scores,
                seed=seed,
                score_feature=first.score_feature,
                checkpoint=checkpoint,
                device=run.device,
                elsewhere=on_workers(run.workers),
            )
            scores = first.train_scores[seen.train.rows_of(held_out)]
            lists = lists_for(spec, part, scores)
            found = query_ndcg(predict(fitted.module, lists), lists, part, scores, spec.ndcg_at)
            temporary = file.with_suffix(".tmp.npy")
            np.save(temporary, found)
            temporary.replace(file)
            checkpoint.unlink(missing_ok=True)
        values[held_out] = np.load(file)
        task.reach(number)
    return values
