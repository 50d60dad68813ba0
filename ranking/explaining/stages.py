"""Contributions of features to the score of each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.clock import Clock
from listwright.ranking.explaining.explanation import FeatureContribution, StageContributions
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.explaining.sampling import shapley_values
from listwright.ranking.explaining.serving_path import FinalVersions, FirstStageVersions, VersionScorer, check_same
from listwright.ranking.explaining.trees import tree_contributions
from listwright.ranking.explaining.values import differing, references, shown
from listwright.ranking.features import FeatureSchema

SAME_SUM = 1e-6
"""Largest difference of a sum of tree contributions from its score (absolute, and relative above 1)."""

SAMPLING_SHARE = 0.6
"""Of the time left that sampling may take where there is a deadline: what comes after it is short."""

_About = tuple[str, str, float]
"""Stage in words, ranker, and the score of the answer."""


class Stages(NamedTuple):
    """Why a stage gave its scores.

    Args:
        found: one for each candidate; None where the clock left too few samples.
        cut_short: whether the clock ended any sampling before its standard errors were small enough.
    """

    found: list[StageContributions | None]
    cut_short: bool = False


def first_stage(
    reranker: ExplainedReranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> Stages:
    """Why the first stage gave its scores, for each of some candidates.

    A forest: exact tree SHAP of every column that it sees, as difference to the mean over the list. A column: itself,
    likewise. Anything else, an ONNX graph or linear trees: Shapley values over the features, as :func:`second_stage`
    has them.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        ranking: the answer, with first-stage scores.
        explained: indices of the candidates.
        budget, seed: of the sampling, where there is any.
        clock: ends the computing of trees; sampling takes :data:`SAMPLING_SHARE` of what is left, a part for each.

    Raises:
        ScoringError, BundleError: if the first stage cannot be run or read again.
    """
    entry, scores = reranker.manifest.first_stage, ranking.first_stage_scores
    if entry.kind == "column":
        schema = reranker.manifest.feature_schema
        own = np.zeros(candidates.features.shape)
        own[:, schema.index[entry.feature]] = scores
        parts = [_relative_to_mean("column", own, candidates.features, schema, scores, one) for one in explained]
        return Stages([*parts])
    trees = tree_contributions(reranker)
    if trees is not None:
        seen = candidates.features
        if len(trees.schema) > seen.shape[1]:
            assert reranker.relative is not None
            seen = reranker.relative.widened(seen)
        found = trees.of(seen, clock)
        if found is None:
            return Stages([None] * len(explained), cut_short=True)
        _check_sums(found, scores)
        return Stages([_relative_to_mean("lightgbm", found, seen, trees.schema, scores, one) for one in explained])

    def sampled(stream: int, share: Clock) -> StageContributions | None:
        one = explained[stream]
        versions, rng = FirstStageVersions(reranker, candidates, one), np.random.default_rng((seed, 1, stream))
        about: _About = "first stage", entry.kind, float(scores[one])
        schema = reranker.manifest.feature_schema
        return _sampled(about, versions, candidates, one, schema, budget=budget, rng=rng, clock=share)

    return _each(sampled, len(explained), clock)


def second_stage(
    reranker: ExplainedReranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> Stages:
    """Why the second stage gave its scores: Shapley values over the features of the schema.

    A feature that is left out has the list's median or most frequent category. The whole serving path is run for each
    coalition: list-relative columns, first stage, second stage. So a feature's contribution holds what it does through
    the first-stage score. The other candidates, those that reach the second stage, and the route stay the answer's.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        ranking: the answer, by a second stage.
        explained: indices of candidates that it scored.
        budget: evaluations for each of them.
        seed: of the sampling.
        clock: sampling takes :data:`SAMPLING_SHARE` of what is left, a part for each.

    Raises:
        ScoringError: if a stage fails, or its score cannot be computed again.
    """

    def sampled(stream: int, share: Clock) -> StageContributions | None:
        one = explained[stream]
        versions, rng = FinalVersions(reranker, candidates, one, ranking), np.random.default_rng((seed, 2, stream))
        about: _About = "second stage", _ranker(ranking.route), float(ranking.scores[one])
        schema = reranker.manifest.feature_schema
        return _sampled(about, versions, candidates, one, schema, budget=budget, rng=rng, clock=share)

    return _each(sampled, len(explained), clock)


def _each(sampled: Callable[[int, Clock], StageContributions | None], count: int, clock: Clock) -> Stages:
    """Sample one after another, each in its part of the time for sampling that is left."""
    until, found, cut_short = clock.share(SAMPLING_SHARE), list[StageContributions | None](), False
    for stream in range(count):
        share = until.share(1.0 / (count - stream))
        one = sampled(stream, share)
        found.append(one)
        cut_short |= one is None or (one.budget_spent and share.over())
    return Stages(found, cut_short)


def _ranker(route: Route) -> str:
    return route.strategy if route.specialist is None else f"{route.strategy} {route.specialist}"


def _check_sums(contributions: Float[np.ndarray, "L W"], scores: Float[np.ndarray, " L"]) -> None:
    """Raise unless contributions sum to the scores, beside one number that is the same for all."""
    left = scores - contributions.sum(axis=1)
    if np.ptp(left) > SAME_SUM * max(1.0, float(np.abs(scores).max())):
        raise ScoringError(f"tree contributions miss the first stage's scores by up to {np.ptp(left):.2g}")


def _relative_to_mean(
    ranker: str,
    contributions: Float[np.ndarray, "L W"],
    seen: Float[np.ndarray, "L W"],
    schema: FeatureSchema,
    scores: Float[np.ndarray, " L"],
    candidate: int,
) -> StageContributions:
    differences = contributions[candidate] - contributions.mean(axis=0)
    parts = (
        FeatureContribution(feature.name, shown(feature, float(value)), None, float(difference), None)
        for feature, value, difference in zip(schema.features, seen[candidate], differences, strict=True)
    )
    score, mean = float(scores[candidate]), float(scores.mean())
    return StageContributions(
        ranker, score, mean, exact=True, evaluations=0, budget_spent=False, contributions=by_size(parts)
    )


def _sampled(
    about: _About,
    versions: VersionScorer,
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

    def worth(present: Bool[np.ndarray, "M N"]) -> Float[np.ndarray, " M"]:
        rows = np.tile(absent, (len(present), 1))
        rows[:, players] = np.where(present, row[players], absent[players])
        return versions.score(rows)

    found = shapley_values(worth, len(players), budget=budget, rng=rng, clock=clock)
    if found is None:
        return None
    check_same(found.full, score, stage)
    values = np.zeros(len(row))
    values[players] = found.values
    errors = None
    if found.standard_errors is not None:
        errors = np.zeros(len(row))
        errors[players] = found.standard_errors
    parts = (
        FeatureContribution(
            feature.name,
            shown(feature, float(row[d])),
            shown(feature, float(absent[d])),
            float(values[d]),
            None if errors is None else float(errors[d]),
        )
        for d, feature in enumerate(schema.features)
    )
    return StageContributions(
        ranker, found.full, found.empty, errors is None, found.evaluations, found.budget_spent, by_size(parts)
    )


def by_size(contributions: Iterable[FeatureContribution]) -> tuple[FeatureContribution, ...]:
    """The largest in size first; those of equal size in the order of the schema."""
    return tuple(sorted(contributions, key=lambda one: -abs(one.contribution)))
