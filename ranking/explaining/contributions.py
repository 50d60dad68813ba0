"""Contributions of features to the score of each stage: tree SHAP, a column itself, or sampled Shapley values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import factorial
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import CandidateList, FirstPass, Ranking, Route, lightgbm_input
from listwright.ranking.deadline import NO_DEADLINE, Deadline
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.explanation import (
    FeatureContribution,
    GoalContributions,
    GoalShare,
    StageContributions,
    value_of,
)
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.ranking.first_stage import model_columns, read_booster
from listwright.ranking.order import relevance
from listwright.ranking.plain_file import to_text
from listwright.ranking.reranker import Reranker

SAME_SUM = 1e-6
"""Largest difference of a sum of tree contributions from its score (absolute, and relative above 1)."""

SAME_SCORE = 1e-4
"""Largest difference of a score that still counts as the same computation (absolute, and relative above 1)."""

SAMPLING_SHARE = 0.6
"""Of the time left that sampling may take where there is a deadline: what comes after it is short."""

EXHAUSTIVE = 1024
"""Coalitions that are all tried; with more of them, permutations are drawn."""

TOLERANCE = 0.02
"""Of the largest value: sampling ends when the largest standard error is below it."""

FEWEST_PAIRS = 8
"""Of permutations, before their spread is trusted to say how well the mean is known; a smaller budget ends earlier."""

Payoff = Callable[[Bool[np.ndarray, "M players"]], Float[np.ndarray, " M"]]
"""Returns the payoff of each coalition: one row each, True for the players that take part."""

_LINEAR = b"\nis_linear=1\n"

_CANDIDATES_A_LOOK, _COALITIONS_A_LOOK = 50, 64
"""Between two looks at the clock."""

_About = tuple[str, str, float]
"""Stage in words, ranker, and the score of the answer."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A deadline that is checked between pieces of work, and whether the caller still waits.

    Args:
        deadline: Deadline of the whole explanation.
        at: Time by which this part of it must end, in seconds on the clock of ``time.perf_counter``.
    """

    deadline: Deadline
    at: float

    @classmethod
    def until(cls, deadline: Deadline = NO_DEADLINE) -> Clock:
        """Return a clock that ends with the deadline."""
        return cls(deadline, deadline.at)

    def over(self) -> bool:
        """Return whether the time is up.

        Raises:
            AbandonedError: if nobody waits for the answer any more.
        """
        self.deadline.check_awaited()
        return perf_counter() >= self.at

    def share(self, part: float) -> Clock:
        """Return a clock for a part of what is left."""
        now = perf_counter()
        return Clock(self.deadline, now + part * (self.at - now))


class Stages(NamedTuple):
    """Explanations of a stage's scores.

    Args:
        explanations: Explanation of each candidate; None where the clock left too few samples.
        cut_short: Whether the clock ended any sampling before its standard errors were small enough.
    """

    explanations: list[StageContributions | None]
    cut_short: bool = False


def explain_first_stage(
    reranker: Reranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> Stages:
    """Explain why the first stage gave its scores, for each of some candidates.

    A forest: exact tree SHAP of every column that it sees, as difference to the mean over the list. A column: itself,
    likewise. Anything else, an ONNX graph or linear trees: Shapley values over the features, as
    :func:`explain_second_stage` has them.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        ranking: Ranking that was answered, with first-stage scores.
        explained: Indices of the candidates to explain.
        budget: Most evaluations for each of them, where they are sampled.
        seed: Seed of the sampling.
        clock: Clock that ends the computing of trees; sampling takes :data:`SAMPLING_SHARE` of what is left, a part for
            each.

    Raises:
        ScoringError, BundleError: if the first stage cannot be run or read again.
    """
    entry, scores = reranker.manifest.first_stage, ranking.first_stage_scores
    if entry.kind == "column":
        schema = reranker.manifest.feature_schema
        own = np.zeros(candidates.features.shape)
        own[:, schema.index[entry.feature]] = scores
        parts = [_relative_to_mean("column", own, candidates.features, schema, scores, index) for index in explained]
        return Stages([*parts])
    relative = entry.kind == "lightgbm" and entry.relative
    trees = tree_contributions(reranker, entry.file, relative=relative) if entry.kind == "lightgbm" else None
    if trees is not None:
        features = visible_features(reranker, candidates, relative=relative)
        explanations = _explain_trees(trees, features, scores, explained, clock)
        return Stages(explanations, cut_short=explanations[0] is None)

    def sample(stream: int, share: Clock) -> StageContributions | None:
        candidate = explained[stream]
        versions, rng = FirstStageVersions(reranker, candidates, candidate), np.random.default_rng((seed, 1, stream))
        about: _About = "first stage", entry.kind, float(scores[candidate])
        schema = reranker.manifest.feature_schema
        return _sample(about, versions, candidates, candidate, schema, budget=budget, rng=rng, clock=share)

    return _sample_each(sample, len(explained), clock)


def explain_second_stage(
    reranker: Reranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> Stages:
    """Explain why the second stage gave its scores: Shapley values over the features of the schema.

    A feature that is left out has the list's median or most frequent category. The whole serving path is run for each
    coalition: list-relative columns, first stage, second stage. So a feature's contribution holds what it does through
    the first-stage score. The other candidates, those that reach the second stage, and the route stay the answer's.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        ranking: Ranking that was answered, by a second stage.
        explained: Indices of the candidates to explain, which that stage scored.
        budget: Most evaluations for each of them.
        seed: Seed of the sampling.
        clock: Clock of the explanation; sampling takes :data:`SAMPLING_SHARE` of what is left, a part for each.

    Raises:
        ScoringError: if a stage fails, or its score cannot be computed again.
    """

    def sample(stream: int, share: Clock) -> StageContributions | None:
        candidate = explained[stream]
        versions = FinalVersions(reranker, candidates, candidate, ranking)
        rng = np.random.default_rng((seed, 2, stream))
        about: _About = "second stage", _ranker(ranking.route), float(ranking.scores[candidate])
        schema = reranker.manifest.feature_schema
        return _sample(about, versions, candidates, candidate, schema, budget=budget, rng=rng, clock=share)

    return _sample_each(sample, len(explained), clock)


def explain_goals(
    reranker: Reranker,
    candidates: CandidateList,
    ranking: Ranking,
    label: Ranking,
    explained: Sequence[int],
    *,
    own: Sequence[StageContributions | None],
    clock: Clock,
) -> list[GoalContributions | None]:
    """Explain the shares of the list by all goals together, for each of some candidates.

    The share by a goal is compared with the share under the reference score of that goal's ranker, all other candidates
    as they are. The contributions to the score are scaled to this difference.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        ranking: Ranking that was answered, by several goals.
        label: Ranking by the label alone.
        explained: Indices of the candidates to explain.
        own: Explanation of the last score that each of these has for the label.
        clock: Clock that ends the computing of trees.

    Returns:
        The explanations; None where the label's is, or where the time was up.

    Raises:
        ScoringError, BundleError: if a goal's model cannot be run or read again, or its trees are linear.
    """
    goals, weights = reranker.goals, ranking.weights
    assert goals is not None
    assert weights is not None
    stage, features = goals.stage, visible_features(reranker, candidates, relative=goals.stage.relative)
    strategy = label.route.strategy if label.stage_reached == "second_stage" else "first_stage"
    by_goal = goals.log_odds(features, label.scores, label.first_stage_scores, strategy, weights)
    parts: dict[str, Sequence[StageContributions | None]] = {stage.label: own}
    for goal in stage.others:
        if goal.name in by_goal:
            trees = tree_contributions(reranker, goal.file, relative=stage.relative)
            if trees is None:
                raise ScoringError(f"the model of {goal.name!r} has linear trees, which cannot be explained")
            parts[goal.name] = _explain_trees(trees, features, goal.spread * by_goal[goal.name], explained, clock)

    def explain_one(place: int, index: int) -> GoalContributions | None:
        counted, shares = list[StageContributions](), dict.fromkeys(weights, 0.0)
        columns = dict[str, FeatureContribution]()
        spreads = {goal.name: goal.spread for goal in stage.others}
        spreads[stage.label] = stage.spreads["first_stage" if np.isnan(label.scores[index]) else strategy]
        for goal, odds in by_goal.items():
            if (part := parts[goal][place]) is None:
                return None
            counted.append(part)
            difference = part.score - part.reference_score
            factor = weights[goal] / sum(weights.values()) * _slope(odds, index, difference, spreads[goal])
            shares[goal] = factor * difference
            for column in part.contributions:
                before = columns.get(column.feature, replace(column, reference=None, contribution=0.0))
                error = before.standard_error if column.standard_error is None else factor * column.standard_error
                added_up = before.contribution + factor * column.contribution
                columns[column.feature] = replace(before, contribution=added_up, standard_error=error)
        share = float(ranking.relevance[index])
        return GoalContributions(
            ranker="goals",
            score=share,
            reference_score=share - sum(shares.values()),
            exact=all(part.exact for part in counted),
            evaluations=sum(part.evaluations for part in counted),
            budget_spent=any(part.budget_spent for part in counted),
            contributions=by_size(columns.values()),
            goals=tuple(GoalShare(goal, weight, shares[goal]) for goal, weight in weights.items()),
        )

    return [explain_one(place, index) for place, index in enumerate(explained)]


def _slope(odds: Float[np.ndarray, " L"], candidate: int, difference: float, spread: float) -> float:
    """Return what a candidate's share gains for each unit of its score, on the way from a score that differs."""
    share = float(relevance(odds)[candidate])
    if abs(difference) < SAME_SUM * spread:
        return share * (1.0 - share) / spread
    before = odds.copy()
    before[candidate] -= difference / spread
    return (share - float(relevance(before)[candidate])) / difference


def _sample_each(sample: Callable[[int, Clock], StageContributions | None], count: int, clock: Clock) -> Stages:
    """Sample each candidate in turn, in an equal part of the sampling time that is left."""
    until, explanations, cut_short = clock.share(SAMPLING_SHARE), list[StageContributions | None](), False
    for stream in range(count):
        share = until.share(1.0 / (count - stream))
        explanation = sample(stream, share)
        explanations.append(explanation)
        cut_short |= explanation is None or (explanation.budget_spent and share.over())
    return Stages(explanations, cut_short)


def _ranker(route: Route) -> str:
    return route.strategy if route.specialist is None else f"{route.strategy} {route.specialist}"


def _check_sums(contributions: Float[np.ndarray, "L W"], scores: Float[np.ndarray, " L"]) -> None:
    """Raise unless contributions and scores differ by one number that is the same for all candidates."""
    left = scores - contributions.sum(axis=1)
    if np.ptp(left) > SAME_SUM * max(1.0, float(np.abs(scores).max())):
        raise ScoringError(f"tree contributions miss the scores by up to {np.ptp(left):.2g}")


def visible_features(reranker: Reranker, candidates: CandidateList, *, relative: bool) -> Float[np.ndarray, "L W"]:
    """Return the features, with list-relative columns where a model sees them."""
    if reranker.relative is None or not relative:
        return candidates.features
    return reranker.relative.widened(candidates.features)


def _explain_trees(
    trees: TreeContributions,
    features: Float[np.ndarray, "L W"],
    scores: Float[np.ndarray, " L"],
    explained: Sequence[int],
    clock: Clock,
) -> list[StageContributions | None]:
    """Return exact explanations of a forest's scores, each as difference to the list's mean; None if the time is up."""
    shares = trees.of(features, clock)
    if shares is None:
        return [None] * len(explained)
    _check_sums(shares, scores)
    return [_relative_to_mean("lightgbm", shares, features, trees.schema, scores, index) for index in explained]


def _relative_to_mean(
    ranker: str,
    contributions: Float[np.ndarray, "L W"],
    features: Float[np.ndarray, "L W"],
    schema: FeatureSchema,
    scores: Float[np.ndarray, " L"],
    candidate: int,
) -> StageContributions:
    differences = contributions[candidate] - contributions.mean(axis=0)
    parts = (
        FeatureContribution(feature.name, value_of(feature, float(value)), None, float(difference), None)
        for feature, value, difference in zip(schema.features, features[candidate], differences, strict=True)
    )
    score, mean = float(scores[candidate]), float(scores.mean())
    return StageContributions(
        ranker, score, mean, exact=True, evaluations=0, budget_spent=False, contributions=by_size(parts)
    )


def _sample(
    about: _About,
    versions: FirstStageVersions | FinalVersions,
    candidates: CandidateList,
    candidate: int,
    schema: FeatureSchema,
    *,
    budget: int,
    rng: np.random.Generator,
    clock: Clock,
) -> StageContributions | None:
    stage, ranker, score = about
    row, absent = candidates.features[candidate], references(candidates.features, schema)
    players = np.flatnonzero(differing(row, absent))

    def payoff(present: Bool[np.ndarray, "M players"]) -> Float[np.ndarray, " M"]:
        rows = np.tile(absent, (len(present), 1))
        rows[:, players] = np.where(present, row[players], absent[players])
        return versions.score(rows)

    shares = shapley_values(payoff, len(players), budget=budget, rng=rng, clock=clock)
    if shares is None:
        return None
    _check_same(shares.full, score, stage)
    values = np.zeros(len(row))
    values[players] = shares.values
    errors = None
    if shares.standard_errors is not None:
        errors = np.zeros(len(row))
        errors[players] = shares.standard_errors
    parts = (
        FeatureContribution(
            feature.name,
            value_of(feature, float(row[d])),
            value_of(feature, float(absent[d])),
            float(values[d]),
            None if errors is None else float(errors[d]),
        )
        for d, feature in enumerate(schema.features)
    )
    return StageContributions(
        ranker, shares.full, shares.empty, errors is None, shares.evaluations, shares.budget_spent, by_size(parts)
    )


def by_size(contributions: Iterable[FeatureContribution]) -> tuple[FeatureContribution, ...]:
    """Sort contributions: the largest in size first, those of equal size in the order of the schema."""
    return tuple(sorted(contributions, key=lambda contribution: -abs(contribution.contribution)))


def references(features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Float[np.ndarray, " D"]:
    """Return ``(D,)`` the list's median of every numeric feature, and its most frequent category.

    Convention: of two middle values the lower one, so that it is a value that occurs; missing values do not count, and
    where all are missing the reference is. Of categories that are equally frequent, the first in the schema.
    """
    length, width = features.shape
    ordered = np.sort(features, axis=0)  # NaN last
    present = length - np.isnan(features).sum(axis=0)
    typical: Float[np.ndarray, " D"] = ordered[np.maximum(present - 1, 0) // 2, np.arange(width)]
    for d in schema.categorical:
        codes = np.nan_to_num(features[:, d], nan=UNKNOWN_CODE)
        kinds, counts = np.unique(codes, return_counts=True)
        typical[d] = kinds[np.argmax(counts)]
    return typical


def differing(row: Float[np.ndarray, " D"], other: Float[np.ndarray, " D"]) -> Bool[np.ndarray, " D"]:
    """Return which features have another value; two missing ones are the same."""
    differ: Bool[np.ndarray, " D"] = (row != other) & ~(np.isnan(row) & np.isnan(other))
    return differ


class TreeContributions:
    """Shapley values of a forest's score, path-dependent: a feature that is absent goes both ways at a node, in the
    proportion of the training rows that did (Lundberg et al., 2018; LightGBM's ``pred_contrib``).

    Args:
        model: Model in LightGBM's text format.
        schema: Schema of the matrices that are explained, list-relative columns included where the model sees them.

    Raises:
        SchemaMismatchError, ScoringError: as :class:`listwright.ranking.first_stage.LightGbmFirstStage`.
    """

    def __init__(self, model: str, schema: FeatureSchema) -> None:
        from lightgbm.basic import LightGBMError  # noqa: PLC0415 - as in read_booster

        self._booster, self._error = read_booster(model), LightGBMError
        self.schema = schema
        columns = model_columns(self._booster, schema)
        self._columns = np.arange(len(schema)) if columns is None else np.array(columns)

    def of(self, features: Float[np.ndarray, "L W"], clock: Clock) -> Float[np.ndarray, "L W"] | None:
        """Return ``(L, W)`` what each column adds to each candidate's score, beside the forest's expected score.

        Returns:
            None if the time was up before the last candidate.

        Raises:
            ScoringError: if LightGBM fails.
        """
        matrix = lightgbm_input(features, self.schema)[:, self._columns]
        contributions = np.zeros(features.shape)
        for begin in range(0, len(matrix), _CANDIDATES_A_LOOK):
            if clock.over():
                return None
            rows = slice(begin, begin + _CANDIDATES_A_LOOK)
            try:
                shares = self._booster.predict(matrix[rows], pred_contrib=True, num_threads=1)
            except self._error as error:
                raise ScoringError(f"the trees could not be explained: {error}") from error
            np.add.at(contributions[rows].T, self._columns, np.asarray(shares, dtype=np.float64)[:, :-1].T)
        return contributions


_contributions_cache: WeakKeyDictionary[Reranker, dict[str, TreeContributions]] = WeakKeyDictionary()
"""By reranker, as long as it lives, and by the model's file."""


def tree_contributions(reranker: Reranker, file: str, *, relative: bool) -> TreeContributions | None:
    """Return the tree contributions of a LightGBM model; None if its trees are linear, or it cannot be read again.

    They are read from the bundle at the first use.

    Args:
        reranker: Reranker that serves the bundle.
        file: Name of the model's file.
        relative: Whether the model sees list-relative columns.

    Raises:
        BundleError: if the bundle's file is gone, or another one.
    """
    if reranker.read_file is None:
        return None
    cached = _contributions_cache.setdefault(reranker, {})
    if file not in cached:
        model = reranker.read_file(file)
        if _LINEAR in model:
            return None
        widened = reranker.relative if relative else None
        cached[file] = TreeContributions(to_text(model), reranker.schema if widened is None else widened.schema)
    return cached[file]


class FirstStageVersions:
    """Scores of the first stage, which computes the list-relative columns anew for each version.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        candidate: Index of the candidate that has versions.
    """

    def __init__(self, reranker: Reranker, candidates: CandidateList, candidate: int) -> None:
        self._reranker, self._candidate = reranker, candidate
        self._features = candidates.features.copy()
        entry = reranker.manifest.first_stage
        self.sees_relative = entry.kind == "lightgbm" and entry.relative
        self.one_by_one = entry.kind != "onnx" and not self.sees_relative
        """Whether a candidate's score depends on no other candidate."""

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """Return ``(M,)`` the candidate's score with each row in its place; raise ScoringError if a stage fails."""
        if self.one_by_one:
            return self._reranker.first_stage.score(versions)
        return np.array([self.whole(version)[1][self._candidate] for version in versions])

    def whole(
        self, version: Float[np.ndarray, " D"]
    ) -> tuple[CandidateList, Float[np.ndarray, " L"], Float[np.ndarray, "L W"]]:
        """Return the list with a version in it, its first-stage scores, and its widened features."""
        self._features[self._candidate] = version
        candidates = CandidateList(self._features)
        relative = self._reranker.relative
        widened = candidates.features if relative is None else relative.widened(candidates.features)
        scores = self._reranker.first_stage.score(widened if self.sees_relative else candidates.features)
        return candidates, scores, widened


class FinalVersions:
    """Final scores: list-relative columns, first stage and second stage are computed anew for each version.

    The candidates that reach the second stage, and the route, stay those of the answer.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        candidate: Index of the candidate that has versions; the second stage scored it.
        ranking: Ranking that was answered.
    """

    def __init__(self, reranker: Reranker, candidates: CandidateList, candidate: int, ranking: Ranking) -> None:
        self._first = FirstStageVersions(reranker, candidates, candidate)
        self._reranker, self._ranking, self._candidate = reranker, ranking, candidate
        self._second = reranker.second_pass
        self._stage = self._second.stage(ranking.route.strategy)
        self._positions: Int[np.ndarray, " C"] = np.flatnonzero(~np.isnan(ranking.scores))
        self._place = int(np.searchsorted(self._positions, candidate))
        self._inputs = self._inputs_of(candidates.features[candidate])
        self._width = candidates.features.shape[1]
        self._specialists = None if ranking.route.strategy != "srm" else self._specialist_scores(self._inputs).copy()

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """Return ``(M,)`` the candidate's score with each row in its place; raise ScoringError if a stage fails."""
        if not self._first.one_by_one or self._stage.relative:
            return np.array([self._final_score(self._inputs_of(version)) for version in versions], dtype=np.float64)
        inputs = np.tile(self._inputs[self._place], (len(versions), 1))
        inputs[:, : self._width] = versions
        if self._stage.first_stage_score:
            inputs[:, -1] = self._first.score(versions)
        if self._specialists is not None:  # they look at each candidate alone
            return np.array([self._score_mixture(row) for row in self._specialist_scores(inputs)])
        return np.array([self._final_score(self._replace_row(row)) for row in inputs], dtype=np.float64)

    def _replace_row(self, row: Float[np.ndarray, " E"]) -> Float[np.ndarray, "C E"]:
        self._inputs[self._place] = row
        return self._inputs

    def _inputs_of(self, version: Float[np.ndarray, " D"]) -> Float[np.ndarray, "C E"]:
        """Return the second stage's input for the list with a version in it."""
        candidates, scores, widened = self._first.whole(version)
        return FirstPass(candidates, widened, scores, self._ranking.order).inputs(self._positions, self._stage).copy()

    def _final_score(self, inputs: Float[np.ndarray, "C E"]) -> float:
        route = self._ranking.route
        if route.strategy == "srm":
            return float(self._second.routed(self._specialist_scores(inputs), route)[self._place])
        return float(self._second.networks[route.strategy].score(inputs)[self._place])

    def _specialist_scores(self, inputs: Float[np.ndarray, "C E"]) -> Float[np.ndarray, "C K"]:
        assert self._second.specialists is not None
        return self._second.specialists.score(inputs)

    def _score_mixture(self, of_candidate: Float[np.ndarray, " K"]) -> float:
        assert self._specialists is not None
        self._specialists[self._place] = of_candidate
        return float(self._second.routed(self._specialists, self._ranking.route)[self._place])


def _check_same(again: float, answered: float, what: str) -> None:
    """Raise ScoringError if a score cannot be reproduced: the explanation would not be the answer's."""
    if not abs(again - answered) <= SAME_SCORE * max(1.0, abs(answered)):
        raise ScoringError(f"the {what} gave {answered:.6g} in the answer and {again:.6g} when it was explained")


@dataclass(frozen=True, slots=True)
class ShapleyValues:
    """Shares of ``full - empty``, which they sum to.

    Args:
        values: ``(players,)`` Shapley values.
        standard_errors: ``(players,)`` standard errors of the values; None where the values are exact.
        full, empty: Payoff of all players together, and of none.
        evaluations: Number of coalitions that were tried.
        budget_spent: Whether the budget or the clock ended the sampling.
    """

    values: Float[np.ndarray, " players"]
    standard_errors: Float[np.ndarray, " players"] | None
    full: float
    empty: float
    evaluations: int
    budget_spent: bool = False


def shapley_values(
    payoff: Payoff, players: int, *, budget: int, rng: np.random.Generator, clock: Clock
) -> ShapleyValues | None:
    """Return every player's mean contribution over all orders in which players can join (Shapley, 1953).

    Up to :data:`EXHAUSTIVE` coalitions are all tried. Else permutations are drawn in antithetic pairs, each followed by
    its reverse (Mitchell et al., 2022), and a pair's mean is one sample. Sampling ends when the largest standard error
    is below :data:`TOLERANCE` of the largest value, or with the budget.

    Args:
        payoff: Function that returns the payoffs of coalitions.
        players: Number of players.
        budget: Most evaluations; two pairs of permutations are drawn even if they cost more.
        rng: Random generator that draws the permutations.
        clock: Clock that is checked between evaluations.

    Returns:
        The values; None where the clock ended before two pairs.

    Convention: without players, both payoffs are the same.
    """
    if players == 0:
        (alone,) = payoff(np.zeros((1, 0), dtype=bool)).tolist()
        return ShapleyValues(np.zeros(0), None, alone, alone, 1)
    if 2**players <= max(4, min(budget, EXHAUSTIVE)):
        return _exhaustive(payoff, players, clock)
    return _by_permutations(payoff, players, budget, rng, clock)


def _exhaustive(payoff: Payoff, players: int, clock: Clock) -> ShapleyValues | None:
    all_coalitions = np.arange(2**players)
    present = (all_coalitions[:, None] >> np.arange(players) & 1).astype(bool)
    payoffs = _payoffs_of(payoff, present, clock)
    if payoffs is None:
        return None
    sizes = present.sum(axis=1)
    weights = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)])
    values = np.empty(players)
    for player in range(players):
        coalitions = all_coalitions[~present[:, player]]
        gains = payoffs[coalitions | 1 << player] - payoffs[coalitions]
        values[player] = weights[sizes[coalitions]] @ gains
    return ShapleyValues(values, None, float(payoffs[-1]), float(payoffs[0]), len(payoffs))


def _by_permutations(
    payoff: Payoff, players: int, budget: int, rng: np.random.Generator, clock: Clock
) -> ShapleyValues | None:
    ends = _payoffs_of(payoff, np.array([[False] * players, [True] * players]), clock)
    if ends is None:
        return None
    empty, full = ends.tolist()
    evaluations, pairs = 2, 0
    mean, squares = np.zeros(players), np.zeros(players)  # Welford's
    cost = 2 * (players - 1)
    precise = False
    while not precise:
        if pairs >= 2 and evaluations + cost > budget:
            break
        order = rng.permutation(players)
        payoffs = _payoffs_of(payoff, _antithetic_coalitions(order), clock)
        if payoffs is None:
            break
        evaluations, pairs = evaluations + cost, pairs + 1
        forth = _gains(order, payoffs[: players - 1], empty, full)
        back = _gains(order[::-1], payoffs[players - 1 :], empty, full)
        sample = (forth + back) / 2
        difference = sample - mean
        mean += difference / pairs
        squares += difference * (sample - mean)
        precise = pairs >= FEWEST_PAIRS and bool(_errors(squares, pairs).max() <= TOLERANCE * np.abs(mean).max())
    if pairs < 2:
        return None
    return ShapleyValues(mean, _errors(squares, pairs), full, empty, evaluations, not precise)


def _errors(squares: Float[np.ndarray, " players"], pairs: int) -> Float[np.ndarray, " players"]:
    """Return the standard errors of a mean over pairs."""
    errors: Float[np.ndarray, " players"] = np.sqrt(squares / (pairs - 1) / pairs)
    return errors


def _antithetic_coalitions(order: np.ndarray) -> Bool[np.ndarray, "M players"]:
    """Return the coalitions of a permutation and of its reverse, without the empty and the full one."""
    count = len(order)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    sizes = np.arange(1, count)[:, None]
    return np.concatenate([place < sizes, place >= count - sizes])


def _gains(
    order: np.ndarray, payoffs: Float[np.ndarray, " M"], empty: float, full: float
) -> Float[np.ndarray, " players"]:
    """Return the payoff that each player adds when it joins."""
    contributions = np.empty(len(order))
    contributions[order] = np.diff(payoffs, prepend=empty, append=full)
    return contributions


def _payoffs_of(payoff: Payoff, present: Bool[np.ndarray, "M players"], clock: Clock) -> Float[np.ndarray, " M"] | None:
    """Return the payoffs of coalitions; None if the time is up before all are tried."""
    parts = []
    for begin in range(0, len(present), _COALITIONS_A_LOOK):
        if clock.over():
            return None
        parts.append(payoff(present[begin : begin + _COALITIONS_A_LOOK]))
    return np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)
