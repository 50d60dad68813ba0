"""What an explanation says: frozen values, and their JSON form.

The service answers with this JSON, its document has the schema of these classes, and a fit's report takes its figures
from it. A contribution is a share of a score difference. Those of a stage add up to ``score - reference_score``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, InstanceOf, TypeAdapter

from listwright.ranking.candidates import CandidateList, Ranking

Part = Literal["first_stage", "second_stage", "moves", "anomaly", "passing", "goals"]
"""What a deadline or a fault can cut short or leave out."""

Value = Annotated[float | str | None, Field(description="of the feature; null: missing, or an unknown category")]


@dataclass(frozen=True, slots=True)
class CandidateName:
    """A candidate of the list."""

    index: Annotated[int, Field(description="position in the request, from 0")]
    id: str | None


@dataclass(frozen=True, slots=True)
class PlacedCandidate(CandidateName):
    """A candidate and its place."""

    rank: Annotated[int, Field(description="from 1")]


@dataclass(frozen=True, slots=True)
class FeatureContribution:
    """What one feature adds to a score."""

    feature: Annotated[str, Field(description="name of the feature, or of the list-relative column")]
    value: Value
    reference: Annotated[
        float | str | None,
        Field(
            description="what stands in for the value where it is left out; null as well where nothing stands in: then "
            "the contribution is a difference to the list's mean. Below against: the other candidate's value"
        ),
    ]
    contribution: Annotated[float, Field(description="in units of the score")]
    standard_error: Annotated[float | None, Field(description="from sampling; null: exact")]


@dataclass(frozen=True, slots=True)
class StageContributions:
    """Why a stage gave the candidate its score."""

    ranker: Annotated[str, Field(description="lightgbm, column or onnx for a first stage; else the strategy")]
    score: float
    reference_score: Annotated[
        float, Field(description="the list's mean score, or that of the candidate with every feature at its reference")
    ]
    exact: Annotated[bool, Field(description="whether nothing was sampled")]
    evaluations: Annotated[int, Field(description="changed candidates that the ranker scored")]
    budget_spent: Annotated[
        bool, Field(description="whether sampling ended before the standard errors were small enough")
    ]
    contributions: Annotated[
        tuple[FeatureContribution, ...],
        Field(description="of every feature, the largest in size first; they sum to score - reference_score"),
    ]


@dataclass(frozen=True, slots=True)
class GoalShare:
    """What the scores for one goal add to the share of the list by all goals together."""

    goal: str
    weight: float
    contribution: Annotated[float, Field(description="in units of the share, the weight included")]


@dataclass(frozen=True, slots=True)
class GoalContributions(StageContributions):
    """Why a candidate has its share of the list by all goals together, which is the score here.

    The reference is its share with the reference score of each goal's ranker, all other candidates as they are.
    """

    goals: Annotated[
        tuple[GoalShare, ...], Field(description="the first goal first; they sum to score - reference_score, too")
    ]


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Another value of one feature."""

    feature: str
    value_from: Annotated[float | str | None, Field(alias="from")]
    value_to: Annotated[Value, Field(alias="to")]


@dataclass(frozen=True, slots=True)
class WhatItTakes:
    """The smallest changes found that let the candidate pass the one above it, each ranked for real."""

    above: Annotated[PlacedCandidate, Field(description="the candidate one place higher")]
    one: Annotated[
        tuple[ValueChange, ...] | None,
        Field(description="the change of one feature; null: no value within the training range passes"),
    ]
    two: Annotated[
        tuple[ValueChange, ...] | None,
        Field(description="changes of two features that pass together only, and are smaller; null: none were found"),
    ]
    tried: Annotated[int, Field(description="changed lists that were ranked")]
    untried: Annotated[
        int, Field(description="changes of one feature that were left out, beyond the limits on their number")
    ]


@dataclass(frozen=True, slots=True)
class MovedCandidate(PlacedCandidate):
    """Another candidate, whose place among the others is not the same without the explained one."""

    rank_without: Annotated[int, Field(description="from 1, in the list without the explained candidate")]


@dataclass(frozen=True, slots=True)
class UnusualValue:
    """A feature that makes the query unlike the training queries."""

    feature: str
    value: Annotated[float | None, Field(description="mean over the first stage's top; null: missing in all of it")]
    anomaly_without: Annotated[float, Field(description="the anomaly score if that mean were the training median")]


@dataclass(frozen=True, slots=True)
class AnomalyReasons:
    """How unlike the training queries the query is."""

    score: float
    training_quantiles: Annotated[Mapping[str, float], Field(description="of the training queries' scores, by level")]
    features: tuple[UnusualValue, ...]


@dataclass(frozen=True, slots=True)
class RouterReasons:
    """What the bundle's router made of the list."""

    probabilities: Annotated[
        tuple[float, ...], Field(description="of each specialist, that it is the best one; they sum to 1")
    ]
    gains: Annotated[tuple[float, ...], Field(description="of each specialist, estimated NDCG over the generalist's")]
    margin: Annotated[
        float | None,
        Field(description="the most probable specialist is taken if its gain is above this; null: none ever is"),
    ]


@dataclass(frozen=True, slots=True)
class Comparison(CandidateName):
    """Differences of the candidate's contributions to another one's, the largest in size first."""

    first_stage: Annotated[
        tuple[FeatureContribution, ...], Field(description="empty where there was no time to sample the other's")
    ]
    second_stage: Annotated[
        tuple[FeatureContribution, ...], Field(description="empty where the second stage did not score both")
    ]
    goals: Annotated[
        tuple[FeatureContribution, ...],
        Field(
            exclude_if=lambda parts: not parts,
            description="to the share by all goals; left out where different stages scored both for the first goal",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class RuleReasons:
    """What rules of merchandising made of the candidate's place."""

    rank: Annotated[int | None, Field(description="in the answer, from 1; null: it is excluded")]
    names: Annotated[tuple[str, ...], Field(description="of the rules that touched the candidate")]


@dataclass(frozen=True, slots=True)
class CandidateExplanation:
    """Why one candidate stands where it stands."""

    candidate: PlacedCandidate
    first_stage: Annotated[StageContributions | None, Field(description="null where no first stage scored the list")]
    second_stage: Annotated[
        StageContributions | None, Field(description="null where none scored the candidate, or where it is incomplete")
    ]
    passing: Annotated[
        WhatItTakes | None,
        Field(
            description="null for the first place, or where it is incomplete; in a degraded answer, by the first stage"
        ),
    ]
    moves: Annotated[tuple[MovedCandidate, ...], Field(description="in a degraded answer, by the first stage")]
    anomaly: Annotated[AnomalyReasons | None, Field(description="null where the bundle has no anomaly score")]
    router: Annotated[RouterReasons | None, Field(description="null where the bundle's router was not asked")]
    against: Annotated[Comparison | None, Field(description="null where it was not asked for")]
    incomplete: Annotated[
        tuple[str, ...], Field(description="parts that the deadline cut short or left out, or that failed")
    ]
    faults: Annotated[Mapping[str, str], Field(description="by part, why it failed, or left changed lists out")]
    ranking: Annotated[InstanceOf[Ranking], Field(exclude=True)]
    """The answer that is explained; its route says which ranker, and who chose it."""
    seconds: Annotated[Mapping[str, float], Field(exclude=True)] = field(default_factory=dict)
    """Wall-clock time of each part, by name."""
    rules: Annotated[
        RuleReasons | None,
        Field(
            exclude_if=lambda reasons: reasons is None,
            description="left out where no rule touched the list; all other ranks are those before rules",
        ),
    ] = None
    goals: Annotated[
        GoalContributions | None,
        Field(
            exclude_if=lambda parts: parts is None,
            description="of all goals together, which give the order; left out where the first goal alone does, and "
            "where it is incomplete. first_stage and second_stage are of the first goal",
        ),
    ] = None


_EXPLANATIONS = TypeAdapter(Sequence[CandidateExplanation])


def to_json(explanations: Sequence[CandidateExplanation]) -> bytes:
    """Return the JSON array of explanations, without their rankings and times; NaN becomes null."""
    return _EXPLANATIONS.dump_json(explanations, by_alias=True)


def with_rules(explanation: CandidateExplanation, ranking: Ranking) -> CandidateExplanation:
    """Return an explanation that says what rules made of the candidate's place.

    Args:
        explanation: Explanation of the list as it was ranked.
        ranking: Ranking of the same list with rules.
    """
    if all(rule.reason for rule in ranking.rules):
        return explanation
    index = explanation.candidate.index
    rank = None if index in ranking.exclusions else int(ranking.ranks[index])
    names = tuple(rule.name for rule in ranking.rules if index in rule.candidates)
    return replace(explanation, rules=RuleReasons(rank, names))


def id_of(candidates: CandidateList, index: int) -> str | None:
    """Return the id of a candidate; None where the candidates have none."""
    return None if candidates.ids is None else candidates.ids[index]


def place_of(candidates: CandidateList, ranking: Ranking, index: int) -> PlacedCandidate:
    """Return a candidate with its rank in the answer."""
    return PlacedCandidate(index, id_of(candidates, index), int(ranking.ranks[index]))
