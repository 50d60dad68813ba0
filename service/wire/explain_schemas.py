"""The schemas of ``POST /explain``: imported where explanations are on, or where the document is asked for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from listwright.ranking.explaining.explanation import CandidateExplanation
from listwright.service.settings import MOST_EVALUATIONS
from listwright.service.wire.schemas import MAX_ID, MAX_WHOLE, Envelope, RerankRequest, RerankResponse, Whole

MOST_EXPLAINED = 5
"""Most places that one request can have explained."""


def _check_reference(value: Any) -> int | str | None:
    """Validate an index or an id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value <= MAX_WHOLE:
        return value
    if value is None or (isinstance(value, str) and len(value) <= MAX_ID):
        return value
    raise ValueError(f"expected an index, from 0, or an id of at most {MAX_ID} characters")


_REFERENCE: JsonDict = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_WHOLE},
        {"type": "string", "maxLength": MAX_ID},
        {"type": "null"},
    ]
}
Reference = Annotated[int | str | None, PlainValidator(_check_reference), WithJsonSchema(_REFERENCE)]

NamedCandidate = Annotated[
    Reference, Field(description="the one to explain: its index, from 0, or its id. Send it or explain_top_n")
]
NamedOther = Annotated[
    Reference,
    Field(description="another one, by index or id: differences of contributions to its own. It goes with candidate"),
]
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


def _index_or_id(value: str) -> int | str:
    """Parse a value of the query string: digits are an index. An id of digits has to stand in the body."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_WHOLE)) else value


class ExplainEnvelope(Envelope):
    """All of a request to explain that may stand beside its body."""

    candidate: Annotated[NamedCandidate, BeforeValidator(_index_or_id)] = None
    against: Annotated[NamedOther, BeforeValidator(_index_or_id)] = None
    explain_top_n: Places = None
    explain_budget: Budget = None


class ExplainRequest(RerankRequest):
    """A request to rank, and which of its candidates to explain: one, or those at the first places."""

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
