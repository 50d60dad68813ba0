"""Which ranker ``auto`` means: the simplest that no second stage beats on queries that neither was fitted on.

Where there are :data:`ENOUGH` validation queries, rankers are compared on these: where the data are split by time, they
are later than the training queries, as the queries to come are. Each network is then fitted once. Where there are
fewer, rankers are compared on the training queries, by folds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking import bundle
from listwright.ranking.manifest import Comparison, Manifest
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import NetworkKind
from listwright.training.budget import network_plan
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.evaluate import bootstrap_interval, rank_rows
from listwright.training.evaluation.intervals import FEWEST, SAME, choice_verdict_of
from listwright.training.evaluation.intervals import Sequence as ConfidenceSequence
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import query_folds
from listwright.training.first_stage.relative import widened
from listwright.training.progress import Task
from listwright.training.recipe.config import Recipe
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.fit import as_fitted
from listwright.training.second_stage.loop import (
    FittedNetwork,
    epoch_seconds,
    fit_network,
    has_ended,
    predict,
    query_ndcg,
)
from listwright.training.workspace import RunContext

NAMES = {
    "plain": "the first stage without list-relative columns",
    "relative": "the first stage with list-relative columns",
    "first_stage": "the first stage",
}
"""Display names of the rankers in a comparison; a network has its title."""

ENOUGH = 2_000
"""Validation queries with two different labels from which rankers are compared on them; see :func:`count_alike`."""

USUAL_SPREAD = 0.2
"""Assumed standard deviation of a query's gain in NDCG, for which intervals valid at every look are narrowest."""

ROUNDING = 1e-12
"""Difference of means below which they count as equal."""

Strategy = NetworkKind | Literal["first_stage"]

Values = Float[np.ndarray, " N"]


@dataclass(frozen=True, slots=True)
class DefaultChoice:
    """What ``auto`` means in a bundle.

    Args:
        strategy: of the ranker.
        reason: why; None if there was nothing to choose.
        comparisons: that it was chosen by.
        networks: that were fitted on all training queries for the comparison, by kind.
    """

    strategy: Strategy
    reason: str | None = None
    comparisons: tuple[Comparison, ...] = ()
    networks: Mapping[NetworkKind, FittedNetwork] = field(default_factory=dict)


def compared(
    ranker: str,
    over: str,
    gains: Float[np.ndarray, " N"],
    metric: str,
    weights: Float[np.ndarray, " N"] | None = None,
    *,
    comparisons: int = 1,
    of: int | None = None,
) -> Comparison:
    """Return the paired gain of one ranker over another.

    Args:
        ranker, over: their names.
        gains: ``(N,)`` difference of the metric for every query.
        metric: its name.
        weights: ``(N,)`` of the queries; None: all alike.
        comparisons: of second stages; their intervals hold together with 95 %.
        of: queries that all planned looks together see, for an interval that holds at all of them; None for one look.
    """
    mean = float(np.average(gains, weights=weights))
    if of is None:
        low, high = bootstrap_interval(gains, weights, intervals=comparisons)
    else:
        share = np.full(len(gains), 1 / len(gains)) if weights is None else weights / weights.sum()
        variance = float(np.sum((share * (gains - mean)) ** 2)) * len(gains) / max(1, len(gains) - 1)
        sequence = ConfidenceSequence(2.0 * USUAL_SPREAD / math.sqrt(of), 0.05 / comparisons)
        half = sequence.half_width(variance) if variance > 0.0 else 0.0
        low, high = max(-1.0, mean - half), min(1.0, mean + half)
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
    """Return whether the mean gain is above :data:`SAME`, or significant, and there are enough queries."""
    return pays(comparison) or (comparison.mean > SAME and comparison.n >= FEWEST)


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
        plain, relative: without and with list-relative columns, which the second may have found no use for.
        splits: of the run.
        cutoff: of the NDCG.

    Returns:
        The first stage; the one without list-relative columns where the other is taken; and the comparison.
    """
    if not relative.relative:
        return plain, None, ()
    gains = first_stage_ndcg(relative, splits, cutoff) - first_stage_ndcg(plain, splits, cutoff)
    weights = compared_queries(splits).query_weights
    comparison = compared("relative", "plain", gains, f"ndcg@{cutoff}", weights)
    if ranks_better(comparison):
        return relative, plain, (comparison,)
    return plain, None, (comparison,)


def on_validation(splits: Splits) -> bool:
    """Return whether rankers are compared on the validation queries."""
    mixed = np.array([labels.min() < labels.max() for labels in splits.valid.label_lists()], dtype=np.float64)
    weights = splits.valid.query_weights
    return count_alike(len(mixed), mixed if weights is None else mixed * weights) >= ENOUGH


def compared_queries(splits: Splits) -> Dataset:
    """Return the N queries that rankers are compared on."""
    return splits.valid if on_validation(splits) else splits.train


def first_stage_ndcg(first: FittedFirstStage, splits: Splits, cutoff: int) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` NDCG of the first stage on the comparison queries; on training queries by out-of-fold scores."""
    scores = first.valid_scores if on_validation(splits) else first.train_scores
    return lambdamart.query_ndcg(compared_queries(splits), scores, cutoff)


def reason(
    comparisons: Sequence[Comparison],
    titles: Mapping[str, str],
    undecided: Collection[str] = (),
    *,
    validation: bool = False,
) -> str:
    """Describe the comparisons in words.

    Args:
        comparisons: in the order in which they were made.
        titles: of the networks.
        undecided: rankers whose comparison the clock ended.
        validation: whether they were made on the validation queries.
    """
    names = {**NAMES, **titles}
    texts = [
        f"{names[c.ranker]} over {names[c.over]}: {c.metric.replace('ndcg', 'NDCG')} {gain_text(c)}, "
        f"{choice_verdict_of(c.low, c.high, c.n, in_time=c.ranker not in undecided)}"
        for c in comparisons
    ]
    n = queries_text([one.n for one in comparisons])
    if not validation:
        how = "each ranked by models of this fit that were not trained on it"
        return f"on {n} training queries, {how}: {'; '.join(texts)}"
    networks = any(c.ranker in titles for c in comparisons)
    halves = ", half of which choose a network's epoch for the other half" if networks else ""
    return f"on {n} validation queries{halves}: {'; '.join(texts)}"


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
        values: ``(N,)`` its NDCG of every query; NaN for those that were not looked at.
        comparison: over the queries that were.
        in_time: whether the comparison was not cut short; False makes "no difference shown" "not enough time".
        seconds: that as many epochs on all training queries take about; 0 where they are done.
    """

    values: Float[np.ndarray, " N"]
    comparison: Comparison
    in_time: bool
    seconds: float


def compare_fitted(
    run: RunContext, spec: NetworkSpec, network: FittedNetwork, current: tuple[str, Values]
) -> NetworkComparison:
    """Compare a network on the validation queries that stopped its fit.

    Half of them choose the epoch by which the other half is ranked, and the other way round: no query is ranked by an
    epoch that it was chosen by. The first stage has no such care taken of it: its settings and trees were chosen on all
    of them, which favours it.

    Args:
        run: of the fit.
        spec: of the network, as the recipe has it.
        network: fitted on all training queries.
        current: name of the ranker to beat, and its ``(N,)`` values.
    """
    valid, values = run.splits.valid, np.empty(len(run.splits.valid))
    weights = valid.query_weights
    for rest, held_out in query_folds(valid, 2, run.recipe.seed):
        means = np.average(network.valid_values[:, rest], axis=1, weights=None if weights is None else weights[rest])
        values[held_out] = network.valid_values[np.argmax(means), held_out]
    others = len(compared_networks(run.recipe))
    metric = f"ndcg@{spec.ndcg_at}"
    comparison = compared(spec.kind, current[0], values - current[1], metric, weights, comparisons=others)
    in_time = not run.budget.bounded or has_ended(network.history, network.best_epoch, spec)
    return NetworkComparison(values, comparison, in_time, 0.0)


def compare(
    run: RunContext, spec: NetworkSpec, first: FittedFirstStage, current: tuple[str, Values]
) -> NetworkComparison | None:
    """Rank training queries by networks that did not see them, and compare.

    Without a bound on the time, every query is looked at. With one, a comparison ends as soon as its interval lies
    above 0, below 0, or within :data:`SAME` of it.

    Args:
        run: its recipe has the number of folds; finished ones are not repeated.
        spec: of the network.
        first: that it stands on.
        current: name of the ranker to beat, and its ``(N,)`` values; NaN where it was not looked at.

    Returns:
        None if there is no time for it.
    """
    recipe, budget = run.recipe, run.budget
    assert recipe.choice is not None
    others = len(compared_networks(recipe))
    parts, epochs = recipe.choice.folds, spec.max_epochs
    looks = parts
    if budget.bounded:
        epochs, looks = time_for(run, spec, first)
        if epochs == 0:
            return None
    values = np.full(len(run.splits.train), np.nan)
    weights = run.splits.train.query_weights
    task = run.progress.begin(f"Comparing {spec.title}, by folds", looks, name=spec.kind)
    to_the_end, seconds, comparison = True, 0.0, None
    held_out = _held_out(run, spec, first, (epochs, looks), np.isfinite(current[1]), task)
    for number, part in enumerate(held_out, start=1):
        values[part.queries] = part.values
        to_the_end, seconds = to_the_end and part.ended, max(seconds, part.seconds)
        gains = values - current[1]
        known = np.isfinite(gains)
        comparison = compared(
            spec.kind,
            current[0],
            gains[known],
            f"ndcg@{spec.ndcg_at}",
            None if weights is None else weights[known],
            comparisons=others,
            of=len(values) if budget.bounded and looks > 1 else None,
        )
        task.reach(number, gain_text(comparison))
        mean = np.average(part.values, weights=None if weights is None else weights[part.queries])
        task.measure(number, {"ndcg_by_part": float(mean), "gain_so_far": comparison.mean})
        if budget.bounded and is_settled(comparison):
            break
    assert comparison is not None
    whole = bool(np.isfinite(values).all())
    in_time = not budget.bounded or (to_the_end and (whole or is_settled(comparison)))
    return NetworkComparison(values, comparison, in_time, seconds)


def is_settled(comparison: Comparison) -> bool:
    """Return whether more queries would change nothing: the interval excludes 0, or lies within :data:`SAME` of it."""
    if comparison.n < FEWEST:
        return False
    low, high = comparison.low, comparison.high
    return low > 0.0 or high < 0.0 or (low > -SAME and high < SAME)


def gain_text(comparison: Comparison) -> str:
    """Format mean and interval."""
    return f"{comparison.mean:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"


def time_for(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> tuple[int, int]:
    """Return the epochs and comparison parts that a bounded fit has time for, leaving as much to each later network.

    No parts where the network on all training queries is the one that is compared.
    """
    assert run.recipe.choice is not None
    kinds = [one.kind for one in compared_networks(run.recipe)]
    waiting = len(kinds) - kinds.index(spec.kind)
    looks, epochs = network_plan(
        run.budget,
        spec.title,
        seconds=run.budget.unspent() / waiting,
        epoch=cache(lambda: epoch_of(run, spec, first)),
        epochs=spec.max_epochs,
        steps=len(run.splits.train) / spec.batch_size,
        parts=run.recipe.choice.folds,
        looks=0 if on_validation(run.splits) else run.recipe.choice.folds,
    )
    return epochs, looks


def epoch_of(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> float:
    """Return the seconds of an epoch on all training queries."""
    spec = as_fitted(spec, first)
    train = widened(run.splits, first.relative).train if spec.relative else run.splits.train
    seconds = epoch_seconds(spec, train, first.train_scores, score_feature=first.score_feature, device=run.device)
    return seconds / (1 if run.workers is None else run.workers.size)


@dataclass(frozen=True, slots=True)
class _Part:
    """The NDCG of a held-out part of the training queries, by a network that did not see it."""

    queries: Int[np.ndarray, " M"]
    values: Float[np.ndarray, " M"]
    ended: bool
    seconds: float


def _held_out(
    run: RunContext,
    spec: NetworkSpec,
    first: FittedFirstStage,
    most: tuple[int, int],
    known: Bool[np.ndarray, " N"],
    task: Task,
) -> Iterator[_Part]:
    """Yield the parts one after the other, for those where the ranker to beat is ``known``; ``most`` are epochs and
    parts.

    Networks stop early by the validation queries, as the one on all training queries does. The clock ends one where
    there is no time left to fit as many epochs on all training queries.
    """
    choice, seed, budget = run.recipe.choice, run.recipe.seed, run.budget
    assert choice is not None
    share = (choice.folds - 1) / choice.folds
    spec = as_fitted(spec, first)
    splits = widened(run.splits, first.relative) if spec.relative else run.splits
    took = 0.0
    for number, (rest, held_out) in enumerate(query_folds(splits.train, choice.folds, seed + 1)[: most[1]], start=1):
        if not known[held_out].any():
            return
        if number > 1 and not budget.goes_on(f"parts of {spec.title}", number - 1, took * (1.0 + share)):
            return
        file = run.state / f"compared_{spec.kind}_{number}.npz"
        if not file.exists():
            checkpoint = run.state / f"compared_{spec.kind}_{number}.pt"
            train, part = splits.train.select(rest), splits.train.select(held_out)
            name, began = f"epochs of {spec.title}, part {number}", budget.spent

            def goes_on(done: int, pace: float, name: str = name) -> bool:
                return budget.goes_on(name, done, pace + (done + 1) * pace / share)

            fitted = fit_network(
                spec.model_copy(update={"max_epochs": most[0]}),
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
                goes_on=goes_on,
            )
            scores = first.train_scores[splits.train.rows_of(held_out)]
            lists = lists_for(spec, part, scores)
            values = query_ndcg(predict(fitted.module, lists), lists, part, scores, spec.ndcg_at)
            ended = has_ended(fitted.history, fitted.best_epoch, spec)
            temporary = file.with_suffix(".tmp.npz")
            np.savez(temporary, values=values, ended=ended, seconds=(budget.spent - began) / share)
            temporary.replace(file)
            checkpoint.unlink(missing_ok=True)
        with np.load(file) as done:
            took = float(done["seconds"])
            yield _Part(held_out, done["values"], bool(done["ended"]), took)


@dataclass(frozen=True, slots=True)
class _Epochs:
    """Progress of one part's epochs, reported as a note of the whole comparison."""

    whole: Task
    part: int

    def reach(self, done: int, note: str | None = None) -> None:
        """Report the number of completed epochs; see :meth:`listwright.training.progress.Task.reach`."""
        self.note(f"epoch {done}{'' if note is None else f', {note}'}")

    def note(self, text: str) -> None:
        """Show a note with the number of the part; see :meth:`listwright.training.progress.Task.note`."""
        self.whole.note(f"part {self.part}, {text}")

    def measure(self, step: int, values: Mapping[str, float]) -> None:
        """Report values under the number of the part; see :meth:`listwright.training.progress.Task.measure`."""
        self.whole.measure(step, {f"{name}_part_{self.part}": value for name, value in values.items()})

    def end(self, done: int, note: str | None = None) -> None:
        """Finish the part; see :meth:`listwright.training.progress.Task.end`."""
        self.reach(done, note)
