"""The choice of the default: the simplest ranker, unless the gain of a second stage is statistically significant.

Rankers are compared on the validation queries: each network is fitted once, and what wins is the network that is
shipped. Where these are fewer than :data:`ENOUGH` and leave a worthwhile gain possible, the training queries are added,
by folds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.manifest import Comparison, Manifest
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import NetworkKind
from listwright.training.console.progress import Task
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.bootstrap import bootstrap_interval
from listwright.training.evaluation.intervals import FEWEST, choice_verdict_of
from listwright.training.evaluation.protocol import rank_rows
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import query_folds
from listwright.training.first_stage.relative import widened
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.fit import as_fitted
from listwright.training.second_stage.loop import (
    VALIDATED,
    FittedNetwork,
    epoch_seconds,
    fit_network,
    has_ended,
    predict,
    query_ndcg,
)

NAMES = {
    "plain": "the first stage without list-relative columns",
    "relative": "the first stage with list-relative columns",
    "first_stage": "the first stage",
}
"""Display names of the rankers in a comparison; a network has its title."""

FEW, ENOUGH = 300, 2_000
"""Validation queries with two different labels below which training queries are always added, as the first stage was
tuned on the few, and from which they never are; see :func:`count_alike`.
"""

WORTHWHILE = 0.01
"""Gain in NDCG that justifies more fits, where an interval does not exclude it."""

MOST_TIMED = 1_000
"""Training queries by which the time of an epoch is estimated."""

ROUNDING = 1e-12
"""Difference of means below which they count as equal."""

NO_TIME = "there was no time to compare a second stage with it"
"""Reason for the first stage where the clock ended every comparison."""

Strategy = NetworkKind | Literal["first_stage"]

Values = Float[np.ndarray, " N"]


@dataclass(frozen=True, slots=True)
class DefaultChoice:
    """Ranker that ``auto`` means in a bundle, and the reason.

    Args:
        strategy: Name of the ranker.
        reason: Reason for it; None if there was nothing to choose.
        comparisons: Comparisons that decided.
        networks: Networks that were fitted on all training queries for the comparison, by kind.
    """

    strategy: Strategy
    reason: str | None = None
    comparisons: tuple[Comparison, ...] = ()
    networks: Mapping[NetworkKind, FittedNetwork] = field(default_factory=dict)


def _measure_gain(
    ranker: str,
    over: str,
    gains: Float[np.ndarray, " N"],
    metric: str,
    weights: Float[np.ndarray, " N"] | None = None,
    *,
    comparisons: int = 1,
) -> Comparison:
    """Measure the paired gain of one ranker over another; the intervals of all ``comparisons`` hold together."""
    mean = float(np.average(gains, weights=weights))
    low, high = bootstrap_interval(gains, weights, intervals=comparisons)
    return Comparison(
        ranker=ranker, over=over, metric=metric, mean=mean, low=low, high=high, n=count_alike(len(gains), weights)
    )


def count_alike(queries: int, weights: Float[np.ndarray, " N"] | None) -> int:
    """Return the effective sample size of weighted queries: (sum of weights)^2 / sum of squares (Kish, 1965)."""
    if weights is None:
        return queries
    return round(float(weights.sum() ** 2 / max((weights**2).sum(), np.finfo(np.float64).tiny)))


def pays(comparison: Comparison) -> bool:
    """Return whether the gain is significant: its interval lies above 0, and there are enough queries."""
    return choice_verdict_of(comparison.low, comparison.high, comparison.n) == "gain"


def ranks_better(comparison: Comparison) -> bool:
    """Return whether the mean gain is above 0, and there are enough queries."""
    return comparison.mean > 0.0 and comparison.n >= FEWEST


def compared_networks(recipe: Recipe) -> list[NetworkSpec]:
    """Return the second stages that a recipe compares, the simplest first; none where it fits one without comparing.

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
    """Return the first stage of two that ranks the comparison queries better.

    Args:
        plain, relative: First stage without and with list-relative columns, which the second may have found no use for.
        splits: Splits of the run.
        cutoff: Cutoff of the NDCG.

    Returns:
        The first stage; the one without list-relative columns where the other is taken; and the comparison.
    """
    if not relative.relative:
        return plain, None, ()
    gains = first_stage_ndcg(relative, splits, cutoff) - first_stage_ndcg(plain, splits, cutoff)
    weights = comparison_weights(splits)
    comparison = _measure_gain("relative", "plain", gains, f"ndcg@{cutoff}", weights)
    if ranks_better(comparison):
        return relative, plain, (comparison,)
    return plain, None, (comparison,)


def count_informative(data: Dataset) -> int:
    """Return the effective number of queries with two different labels; see :func:`count_alike`."""
    mixed = np.array([labels.min() < labels.max() for labels in data.label_lists()], dtype=np.float64)
    weights = data.query_weights
    return count_alike(len(mixed), mixed if weights is None else mixed * weights)


def comparison_weights(splits: Splits) -> Float[np.ndarray, " N"] | None:
    """Return the weights of the N queries that rankers are compared on: the validation queries, then the training
    queries; None if all are alike.
    """
    parts = (splits.valid, splits.train)
    weights = [part.query_weights for part in parts]
    if all(own is None for own in weights):
        return None
    return np.concatenate(
        [np.ones(len(part)) if own is None else own for part, own in zip(parts, weights, strict=True)]
    )


def first_stage_ndcg(first: FittedFirstStage, splits: Splits, cutoff: int) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` NDCG of the first stage on the comparison queries; on training queries by out-of-fold scores."""
    parts = ((splits.valid, first.valid_scores), (splits.train, first.train_scores))
    return np.concatenate([lambdamart.query_ndcg(data, scores, cutoff) for data, scores in parts])


def reason(comparisons: Sequence[Comparison], titles: Mapping[str, str], undecided: Collection[str] = ()) -> str:
    """Describe the comparisons in words.

    Args:
        comparisons: Comparisons, in the order in which they were made.
        titles: Titles of the networks.
        undecided: Rankers whose comparison the clock ended.
    """
    names = {**NAMES, **titles}
    texts = [
        f"{names[c.ranker]} over {names[c.over]}: {c.metric.replace('ndcg', 'NDCG')} {gain_text(c)}, "
        f"{choice_verdict_of(c.low, c.high, c.n, in_time=c.ranker not in undecided)}"
        for c in comparisons
    ]
    n = queries_text([comparison.n for comparison in comparisons])
    return f"on {n} held-out queries, each ranked by models that were not fitted on it: {'; '.join(texts)}"


def queries_text(queries: Sequence[int]) -> str:
    """Format how many queries the comparisons used: ``900``, or ``5298 to 21189``."""
    low, high = min(queries), max(queries)
    return f"{low}" if low == high else f"{low} to {high}"


def without_worse(folder: Path, manifest: Manifest, valid: Dataset, cutoff: int) -> Manifest:
    """Remove from ``auto``, where nothing was compared, stages that rank the validation queries worse than the first
    stage.

    The second stage goes first, so that a router abstains to the first stage. If what the router answers then is worse,
    it always abstains. Both stay in the bundle, for requests that name them. These queries flatter a network, which
    stopped early on them.

    Args:
        folder: Folder with the files of the stages.
        manifest: Manifest of the bundle, not sealed yet.
        valid: Validation queries.
        cutoff: Cutoff of the NDCG.

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
    """Return the weighted mean NDCG over the validation queries, ranked by the serving code."""
    ranked = rank_rows(reranker, valid, [strategy])
    lists = QueryNdcg(valid.labels[ranked.order], valid.offsets, cutoff=cutoff, gains=valid.gains)
    return float(np.average(lists.of(ranked.sort_keys(strategy)), weights=valid.query_weights))


def _worse(name: str, value: float, first: float, valid: Dataset, cutoff: int) -> str:
    return (
        f"{name} is worse than the first stage on the {len(valid)} validation queries: NDCG@{cutoff} {value:.4f}, the "
        f"first stage's {first:.4f}"
    )


@dataclass(frozen=True, slots=True)
class NetworkComparison:
    """The result of comparing a network with the ranker selected before it.

    Args:
        values: ``(N,)`` NDCG of the network on the comparison queries; NaN for those that were not looked at.
        comparison: Comparison over the other queries.
        in_time: Whether the comparison was not cut short; False makes "no difference shown" "not enough time".
    """

    values: Float[np.ndarray, " N"]
    comparison: Comparison
    in_time: bool


def compare(
    run: RunContext, spec: NetworkSpec, network: FittedNetwork, first: FittedFirstStage, current: tuple[str, Values]
) -> NetworkComparison | None:
    """Compare a network with the ranker to beat, on queries that neither was fitted on.

    Training queries are ranked by networks that are fitted without them. They are left alone where the validation
    queries exclude a worthwhile gain: that can only keep a network out.

    Args:
        run: Context of the fit, whose recipe has the number of folds; finished ones are not repeated.
        spec: Network as the recipe has it.
        network: Network as fitted on all training queries.
        first: First stage that it stands on.
        current: Name of the ranker to beat, and its ``(N,)`` values; NaN where it was not looked at.

    Returns:
        None if there are too few validation queries, and no time for training queries.
    """
    valid, values, complete = run.splits.valid, np.full(len(current[1]), np.nan), True
    informative, of_valid = count_informative(valid), len(valid)
    if informative >= FEWEST:
        values[:of_valid] = values_by_halves(network, valid, run.recipe.seed)
    comparison = None if informative < FEWEST else _compare_values(run, spec, values, current)
    if comparison is None or informative < FEW or (informative < ENOUGH and not _is_excluded(comparison)):
        assert run.recipe.choice is not None
        task = run.progress.begin(f"Comparing {spec.title}, by folds", run.recipe.choice.folds, name=spec.kind)
        parts = _held_out(run, spec, network, first, np.isfinite(current[1][of_valid:]), task)
        for number, part in enumerate(parts, start=1):
            values[of_valid + part.queries] = part.values
            comparison = _compare_values(run, spec, values, current)
            task.reach(number, gain_text(comparison))
            weights = run.splits.train.query_weights
            mean = np.average(part.values, weights=None if weights is None else weights[part.queries])
            task.measure(number, {"ndcg_by_part": float(mean), "gain_so_far": comparison.mean})
        complete = not np.isnan(values[of_valid:][np.isfinite(current[1][of_valid:])]).any()
    if comparison is None:
        return None
    ended = has_ended(network.history, network.best_epoch, spec)
    return NetworkComparison(values, comparison, not run.budget.bounded or (ended and complete))


def _is_excluded(comparison: Comparison) -> bool:
    """Return whether a network is out: no gain is shown, and none that is worthwhile is possible."""
    return comparison.low <= 0.0 and comparison.high <= WORTHWHILE


def values_by_halves(network: FittedNetwork, valid: Dataset, seed: int) -> Values:
    """Return the NDCG of every validation query by an epoch that it did not choose.

    Half of the queries choose the epoch by which the other half is ranked, and the other way round. The first stage has
    no such care taken of it: its settings and trees were chosen on all of them, which favours it.
    """
    values, weights = np.empty(len(valid)), valid.query_weights
    for rest, held_out in query_folds(valid, 2, seed):
        means = np.average(network.valid_values[:, rest], axis=1, weights=None if weights is None else weights[rest])
        values[held_out] = network.valid_values[np.argmax(means), held_out]
    return values


def _compare_values(run: RunContext, spec: NetworkSpec, values: Values, current: tuple[str, Values]) -> Comparison:
    """Return the paired gain over the queries where both are known."""
    gains, weights = values - current[1], comparison_weights(run.splits)
    known = np.isfinite(gains)
    return _measure_gain(
        spec.kind,
        current[0],
        gains[known],
        f"ndcg@{spec.ndcg_at}",
        None if weights is None else weights[known],
        comparisons=len(compared_networks(run.recipe)),
    )


def gain_text(comparison: Comparison) -> str:
    """Format mean and interval."""
    return f"{comparison.mean:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"


def estimate_epoch(run: RunContext, spec: NetworkSpec) -> float:
    """Estimate the seconds of an epoch on all training queries, by some of them."""
    train, rng = run.splits.train, np.random.default_rng(run.recipe.seed)
    part = train.select(np.sort(rng.permutation(len(train))[:MOST_TIMED]))
    seconds = epoch_seconds(spec, part, np.zeros(part.rows), device=run.device)
    return seconds * len(train) / len(part) / (1 if run.workers is None else run.workers.size)


@dataclass(frozen=True, slots=True)
class _Part:
    """The NDCG of a held-out part of the training queries, by a network that did not see it."""

    queries: Int[np.ndarray, " M"]
    values: Float[np.ndarray, " M"]


def _held_out(
    run: RunContext,
    spec: NetworkSpec,
    network: FittedNetwork,
    first: FittedFirstStage,
    known: Bool[np.ndarray, " N"],
    task: Task,
) -> Iterator[_Part]:
    """Yield parts of the training queries, for those where the ranker to beat is known; not one that the clock ends."""
    choice, seed, budget = run.recipe.choice, run.recipe.seed, run.budget
    assert choice is not None
    share = (choice.folds - 1) / choice.folds
    seconds = VALIDATED * sum(epoch.seconds for epoch in network.history) * share
    spec = as_fitted(spec, first)  # it stops early by the validation queries, as the one on all training queries does
    splits = widened(run.splits, first.relative) if spec.relative else run.splits
    for number, (rest, held_out) in enumerate(query_folds(splits.train, choice.folds, seed + 1), start=1):
        if not known[held_out].any() or not budget.goes_on(f"parts of {spec.title}", number - 1, seconds):
            return
        file = run.state / f"compared_{spec.kind}_{number}.npz"
        if not file.exists():
            checkpoint = run.state / f"compared_{spec.kind}_{number}.pt"
            train, part = splits.train.select(rest), splits.train.select(held_out)
            fitted = fit_network(
                spec,
                train,
                splits.valid,
                first.train_scores[splits.train.rows_of(rest)],
                first.valid_scores,
                seed=seed,
                score_feature=first.score_feature,
                checkpoint=checkpoint,
                device=run.device,
                task=_Epochs(task, number),
                workers=run.workers,
                goes_on=partial(budget.goes_on, f"epochs of {spec.title}, part {number}"),
            )
            if not has_ended(fitted.history, fitted.best_epoch, spec):
                return
            scores = first.train_scores[splits.train.rows_of(held_out)]
            lists = lists_for(spec, part, scores)
            values = query_ndcg(predict(fitted.module, lists), lists, part, scores, spec.ndcg_at)
            with atomic_file(file) as to:
                np.savez(to, values=values)
            checkpoint.unlink(missing_ok=True)
        with np.load(file) as done:
            yield _Part(held_out, done["values"])


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Progress of one part's epochs, reported as a note of the whole comparison."""

    whole: Task
    part: int

    def reach(self, done: int, note: str | None = None) -> None:
        """Report the number of completed epochs; see :meth:`listwright.training.console.progress.Task.reach`."""
        self.note(f"epoch {done}{'' if note is None else f', {note}'}")

    def note(self, text: str) -> None:
        """Show a note with the number of the part; see :meth:`listwright.training.console.progress.Task.note`."""
        self.whole.note(f"part {self.part}, {text}")

    def measure(self, step: int, values: Mapping[str, float]) -> None:
        """Report values under the number of the part; see :meth:`listwright.training.console.progress.Task.measure`."""
        self.whole.measure(step, {f"{name}_part_{self.part}": value for name, value in values.items()})

    def end(self, done: int, note: str | None = None) -> None:
        """Finish the part; see :meth:`listwright.training.console.progress.Task.end`."""
        self.reach(done, note)
