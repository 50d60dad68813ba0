"""Contributions of features to the score of each stage: tree SHAP, a column itself, or sampled Shapley values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import factorial
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import CandidateList, FirstPass, Ranking, lightgbm_input
from listwright.ranking.deadline import NO_DEADLINE, Deadline
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.explanation import (
    FeatureContribution,
    GoalContributions,
    GoalShare,
    StageContributions,
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

    explanations: Sequence[StageContributions | None]
    cut_short: bool = False


class ListExplainer:
    """Explanations of the scores of some candidates of a list.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        ranking: Ranking by the label alone, with first-stage scores.
        explained: Indices of the candidates to explain.
        budget: Most evaluations for each of them, where they are sampled.
        seed: Seed of the sampling.
        clock: Clock that ends the computing of trees; sampling takes :data:`SAMPLING_SHARE` of what is left, a part for
            each candidate.
    """

    def __init__(
        self,
        reranker: Reranker,
        candidates: CandidateList,
        ranking: Ranking,
        explained: Sequence[int],
        *,
        budget: int,
        seed: int,
        clock: Clock,
    ) -> None:
        self._reranker, self._candidates, self._ranking, self._explained = reranker, candidates, ranking, explained
        self._budget, self._seed, self._clock = budget, seed, clock
        self._schema = reranker.manifest.feature_schema

    def explain_first_stage(self) -> Stages:
        """Explain why the first stage gave its scores.

        A forest: exact tree SHAP of every column that it sees, as difference to the mean over the list. A column:
        itself, likewise. Anything else, an ONNX graph or linear trees: Shapley values over the features, as
        :meth:`explain_second_stage` has them.

        Raises:
            ScoringError, BundleError: if the first stage cannot be run or read again.
        """
        entry, scores = self._reranker.manifest.first_stage, self._ranking.first_stage_scores
        if entry.kind == "column":
            own = np.zeros(self._candidates.features.shape)
            own[:, self._schema.index[entry.feature]] = scores
            return Stages(self._relative_to_mean("column", own, self._candidates.features, self._schema, scores))
        if entry.kind == "lightgbm":
            explanations = self._explain_trees(entry.file, scores, relative=entry.relative)
            if explanations is not None:
                return Stages(explanations, cut_short=explanations[0] is None)
        return self._sample(_FirstStageVersions, entry.kind, scores, self._explained)

    def explain_second_stage(self) -> Stages:
        """Explain why the second stage gave its scores, for those of the candidates that have one.

        These are Shapley values over the features of the schema. A feature that is left out has the list's median or
        most frequent category. The whole serving path is run for each coalition: list-relative columns, first stage,
        second stage. So a feature's contribution holds what it does through the first-stage score. The other
        candidates, those that reach the second stage, and the route stay the answer's.

        Raises:
            ScoringError: if a stage fails, or its score cannot be computed again.
        """
        route = self._ranking.route
        ranker = route.strategy if route.specialist is None else f"{route.strategy} {route.specialist}"
        scored = [index for index in self._explained if not np.isnan(self._ranking.scores[index])]
        return self._sample(_FinalVersions, ranker, self._ranking.scores, scored)

    def explain_goals(
        self, answer: Ranking, label_parts: Sequence[StageContributions | None]
    ) -> list[GoalContributions | None]:
        """Explain the shares of the list by all goals together.

        The share by a goal is compared with the share under the reference score of that goal's ranker, all other
        candidates as they are. The contributions to the score are scaled to this difference.

        Args:
            answer: Ranking by several goals.
            label_parts: Explanation of the last score that each candidate has for the label.

        Returns:
            The explanations; None where the label's is, or where the time was up.

        Raises:
            ScoringError, BundleError: if a goal's model cannot be run or read again, or its trees are linear.
        """
        goals, weights, label = self._reranker.goals, answer.weights, self._ranking
        assert goals is not None
        assert weights is not None
        stage, total = goals.stage, sum(weights.values())
        strategy = label.route.strategy if label.stage_reached == "second_stage" else "first_stage"
        features = self._visible(relative=stage.relative)
        odds_by_goal = goals.log_odds(features, label.scores, label.first_stage_scores, strategy, weights)
        spreads, parts = {goal.name: goal.spread for goal in stage.others}, {stage.label: label_parts}
        for goal in stage.others:
            if goal.name in odds_by_goal:
                scores = goal.spread * odds_by_goal[goal.name]
                explanations = self._explain_trees(goal.file, scores, relative=stage.relative)
                if explanations is None:
                    raise ScoringError(f"the model of {goal.name!r} has linear trees, which cannot be explained")
                parts[goal.name] = explanations
        together = list[GoalContributions | None]()
        for place, index in enumerate(self._explained):
            own_parts = {goal: part for goal in odds_by_goal if (part := parts[goal][place]) is not None}
            if len(own_parts) < len(odds_by_goal):
                together.append(None)
                continue
            spreads[stage.label] = stage.spreads["first_stage" if np.isnan(label.scores[index]) else strategy]
            shares, columns = dict.fromkeys(weights, 0.0), dict[str, FeatureContribution]()
            for name, part in own_parts.items():
                difference = part.score - part.reference_score
                factor = weights[name] / total * _slope(odds_by_goal[name], index, difference, spreads[name])
                shares[name] = factor * difference
                for column in part.contributions:
                    before = columns.get(column.feature, replace(column, reference=None, contribution=0.0))
                    error = before.standard_error if column.standard_error is None else factor * column.standard_error
                    added_up = before.contribution + factor * column.contribution
                    columns[column.feature] = replace(before, contribution=added_up, standard_error=error)
            share = float(answer.relevance[index])
            together.append(
                GoalContributions(
                    ranker="goals",
                    score=share,
                    reference_score=share - sum(shares.values()),
                    exact=all(part.exact for part in own_parts.values()),
                    evaluations=sum(part.evaluations for part in own_parts.values()),
                    budget_spent=any(part.budget_spent for part in own_parts.values()),
                    contributions=by_size(columns.values()),
                    goals=tuple(GoalShare(name, weight, shares[name]) for name, weight in weights.items()),
                )
            )
        return together

    def _visible(self, *, relative: bool) -> Float[np.ndarray, "L W"]:
        """Return the features, with list-relative columns where a model sees them."""
        columns = self._reranker.relative if relative else None
        return self._candidates.features if columns is None else columns.widened(self._candidates.features)

    def _explain_trees(
        self, file: str, scores: Float[np.ndarray, " L"], *, relative: bool
    ) -> Sequence[StageContributions | None] | None:
        """Explain a forest's scores exactly, without explanations if the time is up; None for linear trees."""
        trees = _tree_contributions(self._reranker, file, relative=relative)
        if trees is None:
            return None
        features = self._visible(relative=relative)
        shares = trees.of(features, self._clock)
        if shares is None:
            return [None] * len(self._explained)
        apart = np.ptp(scores - shares.sum(axis=1))  # one number for all candidates is the forest's expected score
        if apart > SAME_SUM * max(1.0, float(np.abs(scores).max())):
            raise ScoringError(f"tree contributions miss the scores by up to {apart:.2g}")
        return self._relative_to_mean("lightgbm", shares, features, trees.schema, scores)

    def _relative_to_mean(
        self,
        ranker: str,
        contributions: Float[np.ndarray, "L W"],
        features: Float[np.ndarray, "L W"],
        schema: FeatureSchema,
        scores: Float[np.ndarray, " L"],
    ) -> list[StageContributions]:
        """Return exact explanations, each as difference to the list's mean."""
        differences, mean = contributions - contributions.mean(axis=0), float(scores.mean())
        explanations = []
        for index in self._explained:
            parts = _feature_contributions(schema, features[index], None, differences[index], None)
            explanations.append(StageContributions(ranker, float(scores[index]), mean, True, 0, False, parts))
        return explanations

    def _sample(
        self, kind: type[_FirstStageVersions], ranker: str, scores: Float[np.ndarray, " L"], explained: Sequence[int]
    ) -> Stages:
        """Sample each candidate in turn, in an equal part of the sampling time that is left."""
        features, absent = self._candidates.features, references(self._candidates.features, self._schema)
        until, explanations, cut_short = self._clock.share(SAMPLING_SHARE), list[StageContributions | None](), False
        for place, candidate in enumerate(explained):
            clock = until.share(1.0 / (len(explained) - place))
            versions = kind(self._reranker, self._candidates, self._ranking, candidate)
            rng = np.random.default_rng((self._seed, kind.stream, place))
            row = features[candidate]
            players = np.flatnonzero(differing(row, absent))
            payoff = partial(versions.payoff, absent, players)
            shares = shapley_values(payoff, len(players), budget=self._budget, rng=rng, clock=clock)
            cut_short |= shares is None or (shares.budget_spent and clock.over())
            if shares is None:
                explanations.append(None)
                continue
            score = float(scores[candidate])
            if not abs(shares.full - score) <= SAME_SCORE * max(1.0, abs(score)):
                again = f"{shares.full:.6g} when it was explained"
                raise ScoringError(f"the {kind.stage} gave {score:.6g} in the answer and {again}")
            values, errors = np.zeros(len(row)), None
            values[players] = shares.values
            if shares.standard_errors is not None:
                errors = np.zeros(len(row))
                errors[players] = shares.standard_errors
            parts = _feature_contributions(self._schema, row, absent, values, errors)
            spent = shares.evaluations, shares.budget_spent
            explanations.append(StageContributions(ranker, shares.full, shares.empty, errors is None, *spent, parts))
        return Stages(explanations, cut_short)


def _slope(odds: Float[np.ndarray, " L"], candidate: int, difference: float, spread: float) -> float:
    """Return what a candidate's share gains for each unit of its score, on the way from a score that differs."""
    share = float(relevance(odds)[candidate])
    if abs(difference) < SAME_SUM * spread:
        return share * (1.0 - share) / spread
    before = odds.copy()
    before[candidate] -= difference / spread
    return (share - float(relevance(before)[candidate])) / difference


def _feature_contributions(
    schema: FeatureSchema,
    row: Float[np.ndarray, " W"],
    absent: Float[np.ndarray, " W"] | None,
    values: Float[np.ndarray, " W"],
    errors: Float[np.ndarray, " W"] | None,
) -> tuple[FeatureContribution, ...]:
    return by_size(
        FeatureContribution(
            feature.name,
            feature.value_of(float(row[d])),
            None if absent is None else feature.value_of(float(absent[d])),
            float(values[d]),
            None if errors is None else float(errors[d]),
        )
        for d, feature in enumerate(schema.features)
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


def _tree_contributions(reranker: Reranker, file: str, *, relative: bool) -> TreeContributions | None:
    """Return the contributions of a LightGBM model, read once; None if its trees are linear, or it cannot be read."""
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


class _FirstStageVersions:
    """Scores of the first stage for versions of a candidate; list-relative columns are computed anew for each."""

    stage, stream = "first stage", 1

    def __init__(self, reranker: Reranker, candidates: CandidateList, ranking: Ranking, candidate: int) -> None:
        self._reranker, self._ranking, self._candidate = reranker, ranking, candidate
        self._features, self._row = candidates.features.copy(), candidates.features[candidate]
        entry = reranker.manifest.first_stage
        self._sees_relative = entry.kind == "lightgbm" and entry.relative
        self._one_by_one = entry.kind != "onnx" and not self._sees_relative
        """Whether a candidate's score depends on no other candidate."""

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """Return ``(M,)`` the candidate's score with each row in its place; raise ScoringError if a stage fails."""
        if self._one_by_one:
            return self._reranker.first_stage.score(versions)
        return np.array([self._first_pass(version).scores[self._candidate] for version in versions])

    def payoff(
        self,
        absent: Float[np.ndarray, " D"],
        players: Int[np.ndarray, " players"],
        present: Bool[np.ndarray, "M players"],
    ) -> Float[np.ndarray, " M"]:
        """Return ``(M,)`` the candidate's score with each coalition of its features, in place of the absent values."""
        rows = np.tile(absent, (len(present), 1))
        rows[:, players] = np.where(present, self._row[players], absent[players])
        return self.score(rows)

    def _first_pass(self, version: Float[np.ndarray, " D"]) -> FirstPass:
        """Return the list with a version in it after the first stage, in the order of the answer."""
        self._features[self._candidate] = version
        candidates = CandidateList(self._features)
        relative = self._reranker.relative
        widened = candidates.features if relative is None else relative.widened(candidates.features)
        scores = self._reranker.first_stage.score(widened if self._sees_relative else candidates.features)
        return FirstPass(candidates, widened, scores, self._ranking.order)


class _FinalVersions(_FirstStageVersions):
    """Scores of the second stage for versions of a candidate that it scored: all before it is computed anew for each.

    The candidates that reach the second stage, and the route, stay those of the answer.
    """

    stage, stream = "second stage", 2

    def __init__(self, reranker: Reranker, candidates: CandidateList, ranking: Ranking, candidate: int) -> None:
        super().__init__(reranker, candidates, ranking, candidate)
        self._second, self._route = reranker.second_pass, ranking.route
        self._entry = self._second.stage(self._route.strategy)
        self._positions: Int[np.ndarray, " C"] = np.flatnonzero(~np.isnan(ranking.scores))
        self._place = int(np.searchsorted(self._positions, candidate))
        self._inputs = self._inputs_of(candidates.features[candidate])
        self._specialists = None if self._route.strategy != "srm" else self._specialist_scores(self._inputs).copy()

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """Return ``(M,)`` the candidate's score with each row in its place; raise ScoringError if a stage fails."""
        if not self._one_by_one or self._entry.relative:
            return np.array([self._final_score(self._inputs_of(version)) for version in versions], dtype=np.float64)
        inputs = np.tile(self._inputs[self._place], (len(versions), 1))
        inputs[:, : versions.shape[1]] = versions
        if self._entry.first_stage_score:
            inputs[:, -1] = super().score(versions)
        scores = np.empty(len(versions))
        if self._specialists is not None:  # they look at each candidate alone
            for version, of_candidate in enumerate(self._specialist_scores(inputs)):
                self._specialists[self._place] = of_candidate
                scores[version] = self._second.routed(self._specialists, self._route)[self._place]
            return scores
        for version, row in enumerate(inputs):
            self._inputs[self._place] = row
            scores[version] = self._final_score(self._inputs)
        return scores

    def _inputs_of(self, version: Float[np.ndarray, " D"]) -> Float[np.ndarray, "C E"]:
        """Return the second stage's input for the list with a version in it."""
        return self._first_pass(version).inputs(self._positions, self._entry).copy()

    def _final_score(self, inputs: Float[np.ndarray, "C E"]) -> float:
        if self._route.strategy == "srm":
            return float(self._second.routed(self._specialist_scores(inputs), self._route)[self._place])
        return float(self._second.networks[self._route.strategy].score(inputs)[self._place])

    def _specialist_scores(self, inputs: Float[np.ndarray, "C E"]) -> Float[np.ndarray, "C K"]:
        assert self._second.specialists is not None
        return self._second.specialists.score(inputs)


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
    precise, place, errors = False, np.empty(players, dtype=np.int64), np.zeros(players)
    while not precise:
        if pairs >= 2 and evaluations + cost > budget:
            break
        order = rng.permutation(players)
        place[order], sizes = np.arange(players), np.arange(1, players)[:, None]
        coalitions = np.concatenate([place < sizes, place >= players - sizes])  # of the order and of its reverse
        payoffs = _payoffs_of(payoff, coalitions, clock)
        if payoffs is None:
            break
        evaluations, pairs = evaluations + cost, pairs + 1
        forth = _gains(order, payoffs[: players - 1], empty, full)
        back = _gains(order[::-1], payoffs[players - 1 :], empty, full)
        sample = (forth + back) / 2
        difference = sample - mean
        mean += difference / pairs
        squares += difference * (sample - mean)
        errors = np.sqrt(squares / max(1, pairs - 1) / pairs)  # standard errors of the mean
        precise = pairs >= FEWEST_PAIRS and bool(errors.max() <= TOLERANCE * np.abs(mean).max())
    return ShapleyValues(mean, errors, full, empty, evaluations, not precise) if pairs >= 2 else None


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
