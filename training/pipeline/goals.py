"""Goals besides the label: a LambdaMART for each, the front of their weights, and the default weights.

The first stage and the second stages rank for the label alone, and so the default ranker is chosen by the label alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import RecipeError
from listwright.ranking.metrics import JudgedLists, gains_of
from listwright.ranking.order import log_odds, relevance
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import FrontPoint, GoalsStage, GoalStage
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.intervals import ALPHA, FEWEST
from listwright.training.evaluation.protocol import HEADLINE, goal_lists, rank_rows, weighted_mean
from listwright.training.first_stage.boosting import Grower
from listwright.training.first_stage.data_parallel import ParallelGrower
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import scores_of, tune
from listwright.training.first_stage.relative import widened, widened_part
from listwright.training.pipeline.choice import count_alike
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.config import Goals, LambdaMart, LambdaMartSettings, Recipe
from listwright.training.recipe.data import LABEL

MOST_GRADES = 31
"""Largest grade of a value: positive values are put into so many bins of equal numbers, for LambdaMART's pairs."""

STEPS = {2: 20, 3: 10, 4: 5, 5: 4}
"""Steps of a goal's share of the weights from 0 to 1 on the front, by number of goals."""

FINE = 100
"""Steps of a goal's share, among which its default weight is looked for."""

_BOUND = NormalDist().inv_cdf(1.0 - ALPHA / 2.0)


@dataclass(frozen=True, slots=True)
class FittedGoal:
    """The ranker for a goal besides the label: the name of its file, and LightGBM's text."""

    name: str
    file: str
    model: str


def fit_goals(run: RunContext, first: FittedFirstStage) -> tuple[FittedGoal, ...]:
    """Fit a LambdaMART for each goal besides the label, over the columns of the first stage and with its settings.

    Args:
        run: Context of the run; finished goals in its state are not repeated.
        first: First stage; of another kind than LambdaMART, the settings are the default ones.
    """
    own, goals = run.recipe.first_stage, run.splits.train.goals
    spec = own if isinstance(own, LambdaMart) else LambdaMart()
    params = first.facts.get("params", spec.settings.model_dump())
    settings = LambdaMartSettings.model_validate({**params, "objective": "lambdarank"})  # type: ignore[dict-item]
    spec = spec.model_copy(update={"trials": 1, "select_on": "valid", "settings": settings})
    wide = widened(run.splits, first.relative)
    grower = None if run.workers is None else ParallelGrower(run.workers)
    task = run.progress.begin("LightGBM for further goals", len(goals), name="goals")
    fitted = []
    for number, name in enumerate(goals, start=1):
        file = run.state / f"goal_{number}.txt"
        if not file.exists():
            atomic_write(file, _fit(spec, wide, name, run.recipe.seed, grower))
        if _orders_alike(run.splits.train, name):
            label = getattr(run.recipe.data, "label", None) or LABEL
            run.progress.remark(f"{name} is in proportion to the gain of {label} in every list: no weight changes NDCG")
        fitted.append(FittedGoal(name, file.name, file.read_text(encoding="utf-8")))
        task.reach(number)
    return tuple(fitted)


def _orders_alike(data: Dataset, goal: str) -> bool:
    """Return whether NDCG by a goal is that by the label, whatever the order."""
    parts = (gains_of(data.labels, data.gains), data.goals[goal])
    totals = (np.repeat(np.add.reduceat(part, data.offsets[:-1]), data.lengths) for part in parts)
    own, other = (part / np.where(total == 0.0, 1.0, total) for part, total in zip(parts, totals, strict=True))
    return np.allclose(own, other)


def _fit(spec: LambdaMart, splits: Splits, goal: str, seed: int, grower: Grower | None) -> str:
    edges, gains = grade(splits.train.goals[goal])
    train, valid = (
        replace(part, labels=np.searchsorted(edges, part.goals[goal], side="right").astype(np.int32), gains=gains)
        for part in (splits.train, splits.valid)
    )
    return tune(train, valid, spec, seed=seed, grower=grower).model


def grade(values: Float[np.ndarray, " R"]) -> tuple[Float[np.ndarray, " grades"], tuple[float, ...]]:
    """Return the grades of values from 0.

    Args:
        values: ``(R,)`` values, one of them above 0.

    Returns:
        Lower end of grade 1, 2 and so on, and the gain of grade 0, 1 and so on: the mean value of its rows as a
        share of that of the last. Of at most :data:`MOST_GRADES` different values above 0 each has a grade.
    """
    positive = values[values > 0.0]
    edges = np.unique(positive)
    if len(edges) > MOST_GRADES:
        edges = np.unique(np.quantile(positive, np.arange(MOST_GRADES) / MOST_GRADES))
    places = np.searchsorted(edges, positive, side="right") - 1
    means = np.bincount(places, positive) / np.bincount(places)
    return edges, (0.0, *(means / means[-1]).tolist())


@dataclass(frozen=True)
class ScoredGoals:
    """N lists of R candidates, scored for G goals, the label first.

    Args:
        alone: ``(R,)`` numbers that order each list for the label alone.
        shares: ``(R, G)`` shares of the list by each goal.
        lists: Gains of each goal.
        weights: ``(N,)`` weights of the lists; None: all alike.
    """

    alone: Float[np.ndarray, " R"]
    shares: Float[np.ndarray, "R G"]
    lists: Sequence[JudgedLists]
    weights: Float[np.ndarray, " N"] | None

    def ndcg(self, weights: Sequence[float]) -> list[Float[np.ndarray, " N"]]:
        """Return ``(N,)`` NDCG by each goal of lists in the order of the weighted sum of their shares."""
        keys = self.shares @ np.asarray(weights) if any(weights[1:]) else self.alone
        return [_ndcg(of_goal, keys) for of_goal in self.lists]

    def means(self, weights: Sequence[float]) -> tuple[float, ...]:
        """Return the mean NDCG by each goal; see :meth:`ndcg`."""
        return tuple(weighted_mean(values, self.weights) for values in self.ndcg(weights))


def _ndcg(lists: JudgedLists, keys: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
    values: Float[np.ndarray, " N"] = np.nan_to_num(lists.measure((HEADLINE,), keys)[HEADLINE])
    return values


def goals_stage(
    reranker: Reranker, recipe: Recipe, splits: Splits, first: FittedFirstStage, fitted: Sequence[FittedGoal]
) -> GoalsStage:
    """Return the entry of the manifest: spreads, the front, and the default weights.

    Args:
        reranker: Reranker for the label alone.
        recipe, splits, first, fitted: Parts of the run: recipe, splits, first stage, and rankers for the other goals.

    Raises:
        RecipeError: if no weight of a goal reaches its least ratio.
        ScoringError: if a ranking is degraded.
    """
    valid = splits.valid
    ranked = rank_rows(reranker, valid, reranker.manifest.strategies)
    spreads = {strategy: _spread(scores, valid) for strategy, scores in ranked.scores.items()}
    wide = widened_part(valid, first.relative)
    others = [
        GoalStage(name=goal.name, file=goal.file, spread=_spread(scores_of(goal.model, wide), valid), weight=0.0)
        for goal in fitted
    ]
    label = getattr(recipe.data, "label", None) or LABEL
    stage = GoalsStage(label=label, spreads=spreads, others=tuple(others), relative=bool(first.relative))
    held_out, test = (score_goals(reranker, stage, part, first, fitted) for part in (valid, splits.test))
    weights = default_weights(held_out, stage.names, recipe.goals)
    others = [goal.model_copy(update={"weight": weight}) for goal, weight in zip(others, weights[1:], strict=True)]
    return stage.model_copy(update={"others": tuple(others), "front": tuple(front(held_out, test, weights))})


def _spread(scores: Float[np.ndarray, " R"], data: Dataset) -> float:
    """Return the mean standard deviation within a list; 1 where all scores of a list are equal."""
    spreads = [np.nanstd(scores[data.slice(n)]) for n in range(len(data))]
    return float(np.mean(spreads)) or 1.0


def score_goals(
    reranker: Reranker, stage: GoalsStage, data: Dataset, first: FittedFirstStage, fitted: Sequence[FittedGoal]
) -> ScoredGoals:
    """Return lists as the service scores them for every goal.

    Args:
        reranker: Reranker for the label alone.
        stage: Names and spreads of the goals.
        data, first, fitted: Lists, first stage, and rankers for the goals besides the label.
    """
    strategy = reranker.manifest.strategy
    ranked, wide = rank_rows(reranker, data, [strategy]), widened_part(data, first.relative)
    own, spread = ranked.scores[strategy], (stage.spreads[strategy], stage.spreads["first_stage"])
    others = [
        (scores_of(goal.model, wide)[ranked.order], entry.spread)
        for goal, entry in zip(fitted, stage.others, strict=True)
    ]
    shares = np.empty((data.rows, len(stage.names)))
    for part in (data.slice(n) for n in range(len(data))):
        shares[part, 0] = relevance(log_odds(own[part], ranked.first_scores[part], *spread))
        for number, (scores, of_goal) in enumerate(others, start=1):
            shares[part, number] = relevance(scores[part], of_goal)
    labels = JudgedLists(data.labels[ranked.order], data.offsets, gains=data.gains)
    lists = [labels, *(goal_lists(data.goals[goal.name][ranked.order], data.offsets) for goal in fitted)]
    return ScoredGoals(ranked.sort_keys(strategy), shares, lists, data.query_weights)


def default_weights(lists: ScoredGoals, names: Sequence[str], options: Goals) -> list[float]:
    """Return the weight of each goal where a request has none; that of the label, the first, is 1.

    Weights that are given stand. Then goals with a cost get theirs, then those with a least ratio: one goal after
    another, in the order of the names, with the weights found before it. A goal with a cost whose model is not shown to
    rank better than chance has no weight.

    Args:
        lists: Validation lists.
        names: Names of the goals, the label first.
        options: Weights, least ratios, and the cost.

    Raises:
        RecipeError: if no weight of a goal reaches its least ratio.
    """
    given, ratios = dict(options.weights), dict(options.ratios)
    weights = [1.0, *(given.get(name, 0.0) for name in names[1:])]
    alone = lists.means([1.0, *(0.0 for _ in names[1:])])
    for number, name in enumerate(names[1:], start=1):
        if name not in given and name not in ratios and _is_learned(lists, number):
            weights[number] = _within_cost(lists, weights, number, options.cost)
    numbers = {name: number for number, name in enumerate(names) if name in ratios}
    for name, number in numbers.items():
        weights = _reaching(lists, weights, number, ratios[name] * alone[number])
    reached = lists.means(weights)
    for name, number in numbers.items():
        if reached[number] < ratios[name] * alone[number]:
            fault = f"no weight of {name!r} reaches that on the validation queries"
            if any(weight for other, weight in enumerate(weights) if other not in (0, number)):
                fault += " beside the other goals' weights"
            closest = f"the closest ratio is {reached[number] / alone[number]:.4f}: lower it, or name a weight"
            raise RecipeError(f"--goal {name}>={ratios[name]:g}: {fault}; {closest}")
    return weights


def _tried(weights: Sequence[float], number: int) -> Iterator[list[float]]:
    """Yield the weights with more and more of one goal, which has none so far."""
    for step in range(FINE):
        weight = round(sum(weights) * step / (FINE - step), 4)
        yield [*weights[:number], weight, *weights[number + 1 :]]


def _is_learned(lists: ScoredGoals, number: int) -> bool:
    """Return whether a goal's own model is shown to rank better by it than chance."""
    own, chance = (_ndcg(lists.lists[number], keys) for keys in (lists.shares[:, number], np.zeros(len(lists.shares))))
    return _costs_at_most(0.0, own - chance, lists.weights)


def _within_cost(lists: ScoredGoals, weights: Sequence[float], number: int, cost: float) -> float:
    """Return the weight of a goal with the largest gain, among those up to the first that may cost too much."""
    before, best, most = lists.ndcg(weights), 0.0, 0.0
    # tested in this order, a weight that costs too much is taken with the probability of one test at most
    for tried in _tried(weights, number):
        after = lists.ndcg(tried)
        if not _costs_at_most(cost, after[0] - before[0], lists.weights):
            break
        gain = weighted_mean(after[number] - before[number], lists.weights)
        if gain > most:
            best, most = tried[number], gain
    return best


def _costs_at_most(cost: float, gains: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None) -> bool:
    """Return whether the lower end of the 95 % interval of the mean gain is at least minus the cost."""
    shares = np.full(len(gains), 1.0 / len(gains)) if weights is None else weights / weights.sum()
    mean = float(shares @ gains)
    error = math.sqrt(float(shares**2 @ (gains - mean) ** 2))
    return count_alike(len(gains), weights) >= FEWEST and mean - _BOUND * error >= -cost


def _reaching(lists: ScoredGoals, weights: list[float], number: int, least: float) -> list[float]:
    """Return the weights with the smallest of a goal that reaches so much NDCG by it; without one, that with most."""
    best, most = weights, 0.0
    for tried in _tried(weights, number):
        ndcg = lists.means(tried)[number]
        if ndcg > most:
            best, most = tried, ndcg
        if ndcg >= least:
            break
    return best


def front(valid: ScoredGoals, test: ScoredGoals, default: Sequence[float]) -> list[FrontPoint]:
    """Return the points of the front, from the label alone to the last goal alone.

    Points that another one beats on the validation lists are left out, but for single goals and the default weights.

    Args:
        valid, test: Validation and test lists.
        default: Default weights.
    """
    steps = STEPS[len(default)]
    grid = [shares for shares in product(range(steps + 1), repeat=len(default)) if sum(shares) == steps]
    points = dict.fromkeys([tuple(default), *(tuple(share / steps for share in shares) for shares in grid)])
    means = np.array([valid.means(weights) for weights in points])
    points_kept = []
    for weights, own in zip(points, means, strict=True):
        is_beaten = ((means >= own).all(axis=1) & (means > own).any(axis=1)).any()
        if not is_beaten or weights == tuple(default) or np.count_nonzero(weights) == 1:
            points_kept.append(FrontPoint(weights=weights, valid=tuple(own.tolist()), test=test.means(weights)))
    return sorted(points_kept, key=lambda point: [-weight / sum(point.weights) for weight in point.weights])
