"""The schemas of the HTTP contract, and the checks of a request against them.

Feature values pass as they are: :mod:`listwright.service.wire.json_matrix` validates them in bulk against the served
schema. The OpenAPI document describes them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from starlette.requests import Request

from listwright.ranking.candidates import Action
from listwright.ranking.rules.schema import MOST_RULES, Rule, convert_whole
from listwright.ranking.stages import MOST_GOALS, GoalName, NetworkKind, Weight
from listwright.service.participation import Kind
from listwright.service.problems import faults_of

VALUE: JsonDict = {
    "oneOf": [
        {"type": "number", "format": "double", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38},
        {"type": "string"},
        {"type": "boolean"},
        {"type": "null"},
    ],
    "description": "number, category, or null for a missing value; true and false are the categories of these names",
}
_ROW = {"type": "array", "items": VALUE, "description": "values in the order of the schema, or of feature_names"}
LIST: JsonDict = {"minItems": 1}  # an empty list is a 400 of its own, so pydantic does not check it

MAX_CONTEXT, MAX_CONTEXT_KEY = 100, 200
"""Entries that a context may have, and characters of a name: as many as a feature's may have."""

_CONTEXT = {
    "type": "object",
    "maxProperties": MAX_CONTEXT,
    "propertyNames": {"maxLength": MAX_CONTEXT_KEY},
    "additionalProperties": VALUE,
}

MAX_WHOLE = 2**53 - 1
"""Largest whole number of a request: every reader of JSON has it exactly, and it can be written into any message."""

Whole = Annotated[int, Field(ge=1, le=MAX_WHOLE), BeforeValidator(convert_whole)]
Number = Annotated[int, Field(ge=0, le=MAX_WHOLE), BeforeValidator(convert_whole)]
Context = Annotated[dict[str, Any], Field(max_length=MAX_CONTEXT), WithJsonSchema(_CONTEXT)]
NamedOrRow = Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": VALUE})]
Rows = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _ROW})]
Columns = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "array", "items": VALUE, **LIST}}),
]

MOST_IGNORED = 32
"""Most names of ignored features in an answer."""

MAX_ID = 512
"""Characters of an id."""

MAX_UNIT = 200
"""Characters of a unit."""

Id = Annotated[str, Field(max_length=MAX_ID)]
Unit = Annotated[str, Field(min_length=1, max_length=MAX_UNIT)]
Name = Annotated[str, Field(max_length=100)]
Strategy = Literal["auto", NetworkKind, "srm", "first_stage"]

MAX_FIELDS = 32
"""Fields that an object of the envelope may have before it is refused unseen: a million faults would cost too much."""


class Strict(BaseModel):
    """Model of what a caller sends: nothing unknown, nothing converted. An optional null counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if len(value) > MAX_FIELDS:
            raise ValueError(f"{len(value)} fields, of which {len(cls.model_fields)} are known: see /openapi.json")
        if None not in value.values():
            return value
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: member for name, member in value.items() if member is not None or name not in optional}


def _read_text(value: Any, info: ValidationInfo) -> Any:
    """Return the value of JSON text, where a form has only text."""
    if str(info.mode) != "string":  # a mode that pydantic's types leave out
        return value
    try:
        return json.loads(value, object_pairs_hook=_each_once, parse_int=float)  # float reads any number of digits
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("expected a JSON object as text") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name is repeated: send each name once")
    return names


Weights = Annotated[dict[GoalName, Weight], Field(max_length=1 + MOST_GOALS), BeforeValidator(_read_text)]


class Candidate(Strict):
    """One candidate: its features by name, or as an array in the order of the schema."""

    id: Annotated[Id | None, Field(description="opaque, echoed, unique in the list")] = None
    features: Annotated[
        NamedOrRow,
        Field(description="values by name, in any order; an array in the order of the schema is accepted, too"),
    ]


class Options(Strict):
    """How to rank, and what to answer."""

    place: ClassVar[tuple[str, ...]] = ()
    """Path of the options in a body."""

    top_n: Annotated[Whole | None, Field(description="length of results; scores and ranks stay complete")] = None
    context: Annotated[
        Context | None,
        Field(
            description="what holds for the whole query; an entry named like a feature is its value for every "
            "candidate that does not send it by name; a hook sees all entries"
        ),
    ] = None
    strategy: Annotated[
        Strategy,
        Field(
            description="auto: the specialist that hook or router pick, else default_strategy of /info; "
            "srm: the same, else the mixture of all specialists; the others name one ranker, see strategies of /info"
        ),
    ] = "auto"
    specialist: Annotated[
        Number | None,
        Field(description="number of the specialist to use, from 0, see /info; with strategy auto or srm"),
    ] = None
    timeout_ms: Annotated[
        float | None,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="milliseconds, counted from the first byte of the request, its arrival and the queue included; "
            "a stage that would miss them is not started, and the answer is degraded. Default and most: see /info",
        ),
    ] = None
    raw_scores: Annotated[bool, Field(description="the ranker's own scores, without softmax and temperature")] = False
    finite_scores: Annotated[
        bool,
        Field(
            description="every candidate has a score, and sorting by it gives ranks, see relevance_score; false: null "
            "(in binary forms NaN) where no single ranker scored a candidate"
        ),
    ] = True
    probabilities: Annotated[
        bool, Field(description="answer with probabilities, see /info; 422 where the bundle has none")
    ] = False
    min_probability: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="leave candidates of a lower probability out of results, as a rule does; pinned ones stay"),
    ] = None
    weights: Annotated[
        Weights | None,
        Field(description="by goal; others have the weight that goals of /info gives. 422 where that is null"),
    ] = None
    expect_candidates: Annotated[
        Whole | None,
        Field(
            description="number of candidates that were sent; 422 if another number arrives, because the list was "
            "split or merged on its way"
        ),
    ] = None
    query_id: Annotated[
        Id | None,
        Field(description="what events name the query by, for the served log; default: id, else X-Request-ID"),
    ] = None
    unit: Annotated[
        Unit | None, Field(description="opaque key of the person or session that asks, for the served log")
    ] = None


class Envelope(Options):
    """All of a request but the candidates."""

    id: Annotated[Id | None, Field(description="echoed")] = None
    model: Annotated[
        Name | None, Field(description="name or alias of the bundle that is to answer; 404 if it is not served")
    ] = None
    version: Annotated[
        Name | None, Field(description="its version; 404 if it is not served; default: the current one")
    ] = None


class RerankRequest(Envelope):
    """One query's candidates, as rows (``candidates``), as a matrix (``features``) or as ``columns``."""

    candidates: Annotated[
        list[Candidate] | None,
        FailFast(),
        Field(description="candidates, in input order; all have an id, or none has", json_schema_extra=LIST),
    ] = None
    feature_names: Annotated[
        list[str] | None, FailFast(), Field(description="columns of features, each once; default: the schema's")
    ] = None
    features: Annotated[
        Rows | None, Field(description="one row per candidate: the fast JSON form", json_schema_extra=LIST)
    ] = None
    columns: Annotated[
        Columns | None, Field(description="by feature name an array with one value per candidate; arrays of one length")
    ] = None
    ids: Annotated[
        list[Id] | None, FailFast(), Field(description="one id per candidate of features or columns, each once")
    ] = None
    rules: Annotated[
        list[Rule] | None,
        Field(max_length=MOST_RULES, description="of merchandising, beside those of the service's file"),
    ] = None

    @model_validator(mode="after")
    def _one_form(self) -> RerankRequest:
        if sum(form is not None for form in (self.candidates, self.features, self.columns)) != 1:
            raise ValueError("send candidates, features or columns, and only one of them")
        if self.feature_names is not None and self.features is None:
            raise ValueError("feature_names go with features")
        if self.ids is not None and self.candidates is not None:
            raise ValueError("ids go with features or columns: each of candidates has its own")
        return self


FORMS = {"Rows": ("candidates",), "Matrix": ("features", "feature_names", "ids"), "Columns": ("columns", "ids")}
"""Forms of a request, each with the members that only some forms have; the first of them is required."""


class Result(BaseModel):
    """One candidate's place."""

    index: Annotated[int, Field(description="position in the request, from 0")]
    id: str | None
    rank: Annotated[int, Field(description="from 1")]
    relevance_score: Annotated[
        float | None,
        Field(
            description="share of the list, from a softmax over the candidates that were scored; sums to 1. It is the "
            "probability of being chosen where temperatures of GET /info names the strategy of the answer. Below 0 it "
            "is no share but a place: -1 for the first candidate below the cutoff, -2 for the next; for all in an "
            "interleaved list, see meta.experiment, and where no stage ran"
        ),
    ]
    probability: Annotated[
        float | None,
        Field(
            description="of being relevant to the first goal, or chosen, comparable between lists. Left out unless "
            "probabilities is true; null where nothing scored the list in time"
        ),
    ] = None
    stage: Literal["second", "first", "input"]
    first_stage_score: float | None
    first_stage_rank: int | None
    rules: Annotated[
        list[str], Field(description="names of the rules that touched the candidate; left out where none did")
    ] = []


class RouteInfo(BaseModel):
    """Which ranker was asked for, and who chose it."""

    strategy: Annotated[
        str, Field(description="the second stage's kind (qilcm, qilcm2, dlcm, dcm, mlp), srm or first_stage")
    ]
    specialist: Annotated[int | None, Field(description="its number; null for other rankers, and the mixture of all")]
    confidence: Annotated[
        float | None,
        Field(description="probability that this specialist is the best, by who chose; null if nobody said"),
    ]
    decided_by: Annotated[
        Literal["caller", "hook", "router", "abstained", "bundle"],
        Field(
            description="caller: the request named it; hook: the operator's; router: the bundle's; abstained: the "
            "router left it to the strategy's default; bundle: nobody was asked, or nobody could decide"
        ),
    ]


class Timings(BaseModel):
    """Milliseconds by step; null for a step that did not run."""

    parse: float
    queue: Annotated[float, Field(description="from the body's last byte until its turn")]
    first_stage: float | None
    routing: float | None
    second_stage: float | None
    total: Annotated[float, Field(description="from the first byte of the request")]
    probability: Annotated[float | None, Field(description="left out where it did not run")] = None
    goals: Annotated[float | None, Field(description="scores for goals besides the first; left out likewise")] = None


class ExperimentPart(BaseModel):
    """What an experiment on traffic did with the answer."""

    name: str
    kind: Literal["split", "interleave", "explore"]
    arm: Annotated[Literal["control", "challenger"] | None, Field(description="of the unit, in a split")]
    reason: Annotated[
        str | None,
        Field(description="why there are no scores, or why control answered alone or in place of the challenger"),
    ]


class ExperimentInfo(BaseModel):
    """One experiment of the file."""

    name: str
    kind: Kind
    control: str
    challenger: str | None
    share: Annotated[float, Field(description="of control's traffic that takes part")]
    running: bool
    reason: Annotated[str | None, Field(description="why it does not run; null if it does")]


class ExperimentsInfo(BaseModel):
    """The experiments of this worker process."""

    experiments: list[ExperimentInfo]
    refused: Annotated[str | None, Field(description="why the file, as it is now, is not used; null if it is")]
    killed: Annotated[str | None, Field(description="why no experiment may run; null if they may")]


class RuleEffect(BaseModel):
    """A rule of merchandising on the list."""

    name: str
    action: Action
    candidates: Annotated[int, Field(description="how many it touched")]
    reason: Annotated[
        str | None, Field(description="why a rule of the service's file was not applied to this list; null if it was")
    ]


class Meta(BaseModel):
    """How the answer came about."""

    status: Literal["ok", "degraded"]
    stage_reached: Literal["second_stage", "first_stage", "input_order"]
    reason: Annotated[str | None, Field(description="why an earlier stage answered")]
    ignored: Annotated[
        list[str],
        Field(
            max_length=MOST_IGNORED,
            description="features that were sent by name and that the bundle does not know, the first of them; empty "
            "unless the service is set to ignore them (LISTWRIGHT_UNKNOWN_FEATURES)",
        ),
    ] = []
    timings_ms: Timings
    weights: Annotated[
        dict[str, float] | None,
        Field(description="weight of each goal in the order; left out where there is one, or the others gave no score"),
    ] = None
    experiment: Annotated[
        ExperimentPart | None, Field(description="left out where the request is in no experiment that changes answers")
    ] = None
    rules: Annotated[
        list[RuleEffect], Field(description="rules that touched a candidate, or were not applied; left out without any")
    ] = []


class RerankResponse(BaseModel):
    """The order, best first in ``results`` and by input position in ``scores`` and ``ranks``."""

    id: str | None
    model: str
    version: str
    results: list[Result]
    scores: Annotated[list[float | None], Field(description="relevance_score of each candidate, in input order")]
    ranks: Annotated[
        list[int | None], Field(description="in input order, from 1; null for a candidate that a rule excludes")
    ]
    probabilities: Annotated[
        list[float | None] | None,
        Field(description="probability of each candidate, in input order; left out unless probabilities is true"),
    ] = None
    route: RouteInfo
    meta: Meta


Sent = TypeVar("Sent", bound=Strict)

HEADERS = {"expect_candidates": "Listwright-Expect-Candidates", "unit": "Listwright-Unit"}
"""Headers of options: a service that does not know a header ignores it, and proxies log query strings."""

_OPTIONS = {header.lower().encode(): (name, header) for name, header in HEADERS.items()}

BODY_ONLY = frozenset(("context",))
"""Fields of a request that a query string cannot express."""


def validate(model: type[Sent], value: object, outer_options: Mapping[str, Any] = MappingProxyType({})) -> Sent:
    """Validate a body, merged with the options that were sent beside it.

    Args:
        model: Model of the contract.
        value: Body of the request.
        outer_options: Options that were sent beside the body.

    Raises:
        RequestValidationError: with the faults and their paths. Of lists that may be long only the first item at fault
            is reported, with all its faults: a list may hold thousands.
    """
    try:
        return model.model_validate(merge_options(value, outer_options))
    except ValidationError as error:
        raise RequestValidationError(faults_of(error, model)) from None


def read_outer_options(request: Request, model: type[Envelope]) -> dict[str, Any]:
    """Read the options beside a request's body: in the query string and in :data:`HEADERS`, as text.

    Args:
        request: Request with a body of any kind.
        model: Model of these options.

    Raises:
        RequestValidationError: for a parameter that is unknown, repeated or no such value.
    """
    outer_options: dict[str, Any] = {}
    if request.scope["query_string"]:
        check_query(request, model.model_fields.keys() - BODY_ONLY)
        try:
            options = model.model_validate_strings(dict(request.query_params), strict=False)
        except ValidationError as error:
            raise RequestValidationError(faults_of(error, model, "query")) from None
        outer_options = options.model_dump(exclude_unset=True)
    for key, sent in request.scope["headers"]:
        if key not in _OPTIONS:
            continue
        name, header = _OPTIONS[key]
        try:
            options = model.model_validate_strings({name: sent.decode()}, strict=False)
        except UnicodeDecodeError:
            raise RequestValidationError([_fault(("header", header), "is no UTF-8")]) from None
        except ValidationError as error:
            raise RequestValidationError([{**fault, "loc": ("header", header)} for fault in error.errors()]) from None
        outer_options = merge_options({name: getattr(options, name)}, outer_options)
    return outer_options


def check_query(request: Request, known: Collection[str] = ()) -> None:
    """Raise unless each parameter of the query string is known and stands once, and all is UTF-8.

    Raises:
        RequestValidationError: with the name of each that is not.
    """
    text = request.scope["query_string"]
    if not text:
        return
    try:
        unquote_to_bytes(text.decode("ascii")).decode()
    except UnicodeDecodeError:
        message = "the query string is not valid UTF-8: percent-encode it as UTF-8"
        raise RequestValidationError([_fault(("query", ""), message)]) from None
    names = [name for name, _ in request.query_params.multi_items()]
    parameters = ", ".join(sorted(known)) or "none"
    faults = [(name, f"is no parameter of this path, which has {parameters}") for name in names if name not in known]
    faults += [(name, "is repeated: send it once") for name in known if names.count(name) > 1]
    if faults:
        raise RequestValidationError([_fault(("query", name), message) for name, message in faults])


def merge_options(body: Any, outer_options: Mapping[str, Any]) -> Any:
    """Merge a body with the options that were sent beside it; null in the body counts as absent.

    Raises:
        RequestValidationError: if both have an option, with different values.
    """
    if not outer_options or not isinstance(body, dict):
        return body
    for name, value in outer_options.items():
        if body.get(name) is not None:
            check_agreement(body[name], value, ("query", name))
    return {**body, **outer_options}


def check_agreement(value: object, other: object, place: tuple[str, str]) -> None:
    """Raise RequestValidationError, with the place of the latter, unless both are equal."""
    if value != other:
        raise RequestValidationError(
            [_fault(place, f"is {other!r}, and {value!r} elsewhere in the request: say it once")]
        )


def _fault(place: tuple[str, ...], message: str) -> dict[str, Any]:
    return {"type": "value_error", "loc": place, "msg": message}
