"""The words of ``POST /explain``: imported where explanations are on, or where the document is asked for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from listwright.service.explain_settings import MOST_EVALUATIONS
from listwright.service.wire.schemas import MAX_ID, MAX_WHOLE, Envelope, RerankRequest, RerankResponse, Whole

MOST_EXPLAINED = 5
"""Places that one request can ask about."""


def _named(value: Any) -> int | str | None:
    """An index or an id, as it was sent."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value <= MAX_WHOLE:
        return value
    if value is None or (isinstance(value, str) and len(value) <= MAX_ID):
        return value
    raise ValueError(f"expected an index, from 0, or an id of at most {MAX_ID} characters")


_NAMED: JsonDict = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_WHOLE},
        {"type": "string", "maxLength": MAX_ID},
        {"type": "null"},
    ]
}
Named = Annotated[int | str | None, PlainValidator(_named), WithJsonSchema(_NAMED)]

NamedCandidate = Annotated[Named, Field(description="the one to explain: its index, from 0, or its id")]
NamedOther = Annotated[Named, Field(description="another one, by index or id: differences of contributions to its own")]
Places = Annotated[
    Annotated[Whole, Field(le=MOST_EXPLAINED)] | None,
    Field(description="explain the candidates at so many first places, instead of one that is named"),
]
Budget = Annotated[
    Annotated[Whole, Field(le=MOST_EVALUATIONS)] | None,
    Field(
        description="most changed candidates that a stage scores for one explanation, and for the other one of "
        "against; 422 above the service's limit (LISTWRIGHT_EXPLAIN_MAX_BUDGET)"
    ),
]

_SOME: JsonDict = {"not": {"type": "null"}}
_NONE: JsonDict = {"type": "null"}
_ONE_QUESTION: JsonDict = {
    "allOf": [
        {
            "oneOf": [
                {
                    "title": "one candidate",
                    "required": ["candidate"],
                    "properties": {"candidate": _SOME, "explain_top_n": _NONE},
                },
                {
                    "title": "the first places",
                    "required": ["explain_top_n"],
                    "properties": {"explain_top_n": _SOME, "candidate": _NONE, "against": _NONE},
                },
            ]
        }
    ]
}
_of_a_ranking = RerankRequest.model_config["json_schema_extra"]
assert isinstance(_of_a_ranking, dict)
_WORDS: JsonDict = {**_of_a_ranking, **_ONE_QUESTION}


def _index_or_id(value: str) -> int | str:
    """What a query string says: digits are an index. An id that is one stands in the body."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_WHOLE)) else value


class ExplainWords(Envelope):
    """All of a request to explain that may stand beside its body."""

    candidate: Annotated[NamedCandidate, BeforeValidator(_index_or_id)] = None
    against: Annotated[NamedOther, BeforeValidator(_index_or_id)] = None
    explain_top_n: Places = None
    explain_budget: Budget = None


class ExplainRequest(RerankRequest):
    """A request to rank, and which of its candidates to explain: one, or those at the first places."""

    model_config = ConfigDict(json_schema_extra=_WORDS)

    candidate: NamedCandidate = None
    against: NamedOther = None
    explain_top_n: Places = None
    explain_budget: Budget = None

    @model_validator(mode="after")
    def _one_question(self) -> ExplainRequest:
        if (self.candidate is None) == (self.explain_top_n is None):
            raise ValueError("send either candidate or explain_top_n")
        if self.against is not None and self.candidate is None:
            raise ValueError("against goes with candidate")
        return self


Value = Annotated[float | str | None, Field(description="of the feature; null: missing, or an unknown category")]


class CandidateName(BaseModel):
    """A candidate of the list."""

    index: Annotated[int, Field(description="position in the request, from 0")]
    id: str | None


class PlacedCandidate(CandidateName):
    """A candidate and its place."""

    rank: Annotated[int, Field(description="from 1")]


class FeatureContribution(BaseModel):
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


class StageContributions(BaseModel):
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
        list[FeatureContribution],
        Field(description="of every feature, the largest in size first; they sum to score - reference_score"),
    ]


class ValueChange(BaseModel):
    """Another value of one feature."""

    feature: str
    from_: Annotated[float | str | None, Field(alias="from")]
    to: Value


class WhatItTakes(BaseModel):
    """The smallest changes found that let the candidate pass the one above it, each ranked for real."""

    above: Annotated[PlacedCandidate, Field(description="the candidate one place higher")]
    one: Annotated[
        list[ValueChange] | None,
        Field(description="the change of one feature; null: no value within the training range passes"),
    ]
    two: Annotated[
        list[ValueChange] | None,
        Field(description="changes of two features that pass together only, and are smaller; null: none were found"),
    ]
    tried: Annotated[int, Field(description="changed lists that were ranked")]
    untried: Annotated[
        int,
        Field(description="changes of one feature that were left out, beyond the limits on their number"),
    ]


class MovedCandidate(PlacedCandidate):
    """Another candidate, whose place among the others is not the same without the explained one."""

    rank_without: Annotated[int, Field(description="from 1, in the list without the explained candidate")]


class UnusualValue(BaseModel):
    """A feature that makes the query unlike the training queries."""

    feature: str
    value: Annotated[float | None, Field(description="mean over the first stage's top; null: missing in all of it")]
    anomaly_without: Annotated[float, Field(description="the anomaly score if that mean were the training median")]


class AnomalyReasons(BaseModel):
    """How unlike the training queries the query is."""

    score: float
    training_quantiles: Annotated[dict[str, float], Field(description="of the training queries' scores, by level")]
    features: list[UnusualValue]


class RouterReasons(BaseModel):
    """What the bundle's router made of the list."""

    probabilities: Annotated[
        list[float], Field(description="of each specialist, that it is the best one; they sum to 1")
    ]
    gains: Annotated[list[float], Field(description="of each specialist, estimated NDCG over the generalist's")]
    margin: Annotated[
        float | None,
        Field(description="the most probable specialist is taken if its gain is above this; null: none ever is"),
    ]


class Comparison(CandidateName):
    """Differences of the candidate's contributions to another one's, the largest in size first."""

    first_stage: Annotated[
        list[FeatureContribution], Field(description="empty where there was no time to sample the other's")
    ]
    second_stage: Annotated[
        list[FeatureContribution], Field(description="empty where the second stage did not score both")
    ]


class CandidateExplanation(BaseModel):
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
    moves: Annotated[list[MovedCandidate], Field(description="in a degraded answer, by the first stage")]
    anomaly: Annotated[AnomalyReasons | None, Field(description="null where the bundle has no anomaly score")]
    router: Annotated[RouterReasons | None, Field(description="null where the bundle's router was not asked")]
    against: Annotated[Comparison | None, Field(description="null where it was not asked for")]
    incomplete: Annotated[list[str], Field(description="parts that the deadline cut short or left out, or that failed")]
    faults: Annotated[dict[str, str], Field(description="by part, why it failed, or left changed lists out")]


class ExplainMeta(BaseModel):
    """How the answer came about."""

    timings_ms: Annotated[
        dict[str, float], Field(description="milliseconds by part, the sum over the candidates; total: from first byte")
    ]
    incomplete: Annotated[
        list[str],
        Field(
            description="parts of any candidate that the deadline cut short or left out, or that failed; explanations: "
            "candidates are missing"
        ),
    ]


class ExplainResponse(BaseModel):
    """The ranking, and why its candidates stand where they stand."""

    id: str | None
    model: str
    version: str
    ranking: Annotated[RerankResponse, Field(description="what /rerank answers")]
    explanations: list[CandidateExplanation]
    meta: ExplainMeta
