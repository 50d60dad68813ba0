"""Contributions of features to the score of each stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.clock import Clock
from listwright.ranking.explaining.explanation import Contribution, ExplainedStage, StageExplanation
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.explaining.sampling import shapley_values
from listwright.ranking.explaining.serving_path import FinalVersions, FirstStageVersions, VersionScorer, check_same
from listwright.ranking.explaining.trees import tree_contributions
from listwright.ranking.explaining.values import differing, references, shown
from listwright.ranking.features import FeatureSchema

SAME_SUM = 1e-6
"""Largest difference of a sum of tree contributions from its score (absolute, and relative above 1)."""

_About = tuple[ExplainedStage, str, float]
"""Stage, ranker, and the score of the answer."""


def first_stage(
    reranker: ExplainedReranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> list[StageExplanation | None]:
    """Why the first stage gave its scores, for each of some candidates.

    A forest: exact tree SHAP of every column that it sees, as difference to the mean over the list. A column: itself,
    likewise. Anything else, an ONNX graph or linear trees: Shapley values over the features, as :func:`second_stage`
    has them.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        ranking: the answer, with first-stage scores.
        explained: indices of the candidates.
        budget, seed, clock: of the sampling, where there is any.

    Returns:
        One for each; None where the clock left too few samples.

    Raises:
        ScoringError, BundleError: if the first stage cannot be run or read again.
    """
    entry, scores = reranker.manifest.first_stage, ranking.first_stage_scores
    if entry.kind == "column":
        schema = reranker.manifest.feature_schema
        own = np.zeros(candidates.features.shape)
        own[:, schema.index[entry.feature]] = scores
        return [_relative_to_mean("column", own, candidates.features, schema, scores, one) for one in explained]
    trees = tree_contributions(reranker)
    if trees is not None:
        seen = candidates.features
        if len(trees.schema) > seen.shape[1]:
            assert reranker.relative is not None
            seen = reranker.relative.widened(seen)
        found = trees.of(seen, clock)
        if found is None:
            return [None] * len(explained)
        _check_sums(found, scores)
        return [_relative_to_mean("lightgbm", found, seen, trees.schema, scores, one) for one in explained]
    sampled = []
    for stream, one in enumerate(explained):
        versions = FirstStageVersions(reranker, candidates, one)
        rng, score = np.random.default_rng((seed, 1, stream)), float(scores[one])
        about: _About = "first_stage", entry.kind, score
        schema = reranker.manifest.feature_schema
        sampled.append(_sampled(about, versions, candidates, one, schema, budget=budget, rng=rng, clock=clock))
    return sampled


def second_stage(
    reranker: ExplainedReranker,
    candidates: CandidateList,
    ranking: Ranking,
    explained: Sequence[int],
    *,
    budget: int,
    seed: int,
    clock: Clock,
) -> list[StageExplanation | None]:
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
        seed, clock: of the sampling.

    Returns:
        One for each; None where the clock left too few samples.

    Raises:
        ScoringError: if a stage fails, or its score cannot be computed again.
    """
    found = []
    for stream, one in enumerate(explained):
        rng = np.random.default_rng((seed, 2, stream))
        versions = FinalVersions(reranker, candidates, one, ranking)
        about: _About = "second_stage", _ranker(ranking.route), float(ranking.scores[one])
        share = clock.share(1.0 / (len(explained) - stream))
        schema = reranker.manifest.feature_schema
        found.append(_sampled(about, versions, candidates, one, schema, budget=budget, rng=rng, clock=share))
    return found


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
) -> StageExplanation:
    differences = contributions[candidate] - contributions.mean(axis=0)
    parts = (
        Contribution(feature.name, shown(feature, float(value)), None, float(difference))
        for feature, value, difference in zip(schema.features, seen[candidate], differences, strict=True)
    )
    score, mean = float(scores[candidate]), float(scores.mean())
    return StageExplanation("first_stage", ranker, score, mean, by_size(parts), exact=True)


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
) -> StageExplanation | None:
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
    check_same(found.full, score, stage.replace("_", " "))
    values = np.zeros(len(row))
    values[players] = found.values
    errors = None
    if found.standard_errors is not None:
        errors = np.zeros(len(row))
        errors[players] = found.standard_errors
    parts = (
        Contribution(
            feature.name,
            shown(feature, float(row[d])),
            shown(feature, float(absent[d])),
            float(values[d]),
            None if errors is None else float(errors[d]),
        )
        for d, feature in enumerate(schema.features)
    )
    return StageExplanation(
        stage, ranker, found.full, found.empty, by_size(parts), errors is None, found.evaluations, found.budget_spent
    )


def by_size(contributions: Iterable[Contribution]) -> tuple[Contribution, ...]:
    """The largest in size first; those of equal size in the order of the schema."""
    return tuple(sorted(contributions, key=lambda one: -abs(one.contribution)))
