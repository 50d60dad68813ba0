"""``GET /info`` and ``GET /metrics``."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from listwright.ranking.bundle import Bundle
from listwright.ranking.first_stage import Engine
from listwright.ranking.manifest import Manifest
from listwright.ranking.stages import FeatureWeight
from listwright.service import paths
from listwright.service.api.routing import CheckedRoute, CurrentModels, service_of
from listwright.service.bundles.models import Models
from listwright.service.bundles.routing_switch import RoutingPolicy
from listwright.service.problems import DOCUMENTED
from listwright.service.settings import Settings
from listwright.service.wire.schemas import ExperimentsInfo, Name

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

EXPOSITION = 'listwright_requests_total{path="/rerank",status="200"} 1.0\n'

routes = APIRouter(route_class=CheckedRoute)


class FeatureInfo(BaseModel):
    """One column of the served schema."""

    name: str
    kind: Literal["numeric", "categorical"]
    required: Annotated[bool, Field(description="a request by name must send it; null is allowed")]
    categories: Annotated[int, Field(description="number of known values; others count as unknown")]
    default: Annotated[
        float | str | None, Field(description="its value where a request by name leaves it out; null: missing")
    ]


class Limits(BaseModel):
    """What a request may weigh."""

    max_candidates: int
    max_payload_bytes: int
    timeout_ms: Annotated[float, Field(description="the most that a request can ask for, and what it gets otherwise")]


class MetricInfo(BaseModel):
    """A held-out mean, measured through this bundle."""

    ranker: str
    name: str
    mean: float
    low: float
    high: float
    n: int


class SpecialistInfo(BaseModel):
    """One specialist."""

    number: Annotated[int, Field(description="what a request names it by")]
    weight: Annotated[float, Field(description="share of queries that the mixture gives it")]
    queries: Annotated[int, Field(description="training queries that are most its own")]
    top_features: Annotated[list[FeatureWeight], Field(description="the largest weights by size; empty if not linear")]


class RoutingInfo(BaseModel):
    """How a specialist is chosen for a request that names none."""

    enabled: Annotated[bool, Field(description="whether hook and router are in use")]
    reason: Annotated[str | None, Field(description="why they are not in use; null if enabled")]
    hook: Annotated[bool, Field(description="whether the operator has a hook, which is asked first")]
    router: Annotated[bool, Field(description="whether the bundle has a router")]


class ProbabilityInfo(BaseModel):
    """What a probability is of."""

    of: Annotated[
        Literal["choice", "relevance"],
        Field(description="choice: of being the one that is chosen, they sum to 1; relevance: of being relevant"),
    ]
    lists: Annotated[int | None, Field(description="held-out lists of the calibration; null for choices")]
    mean: Annotated[float | None, Field(description="share of relevant candidates in these lists; null for choices")]


class ServedModel(BaseModel):
    """One served name."""

    model: str
    version: str
    kept: Annotated[str | None, Field(description="the version before, which a request may still name; null: none")]
    aliases: Annotated[list[str], Field(description="other names that a request may use")]
    default: Annotated[bool, Field(description="whether it answers a request that names none")]


class Refused(BaseModel):
    """What should be served and is not."""

    model: Annotated[str, Field(description="its name in the models folder; * for the folder itself")]
    version: Annotated[str | None, Field(description="null where the pointer to it is at fault")]
    reason: str
    at: str


class Serving(BaseModel):
    """All that this worker process serves."""

    models: list[ServedModel]
    refused: Annotated[list[Refused], Field(description="what the last reload refused, and why")]


class Info(Serving):
    """What is served."""

    model: str
    version: str
    created_at: str
    fingerprint: str
    features: list[FeatureInfo]
    relative: Annotated[
        list[str], Field(description="list-relative columns, which the service computes; requests do not hold them")
    ]
    limits: Limits
    engine: Annotated[
        Engine,
        Field(
            description="what computes the first stage: lightgbm where the bundle asks for it, or where compiled was "
            "not to be had, and the log says why; column where it is a column of the data; onnx for an ONNX graph"
        ),
    ]
    strategies: list[str]
    default_strategy: str
    cutoff: Annotated[
        int | None,
        Field(
            description="candidates that the second stage scores where no specialist does; null: there is no such stage"
        ),
    ]
    cutoffs: Annotated[
        dict[str, int | None],
        Field(description="candidates that the second stage of a strategy scores; null: the whole list"),
    ]
    temperatures: Annotated[
        dict[str, float],
        Field(
            description="by strategy, what its scores are divided by before the softmax, fitted on choices: "
            "relevance_score is then the probability of being chosen. A strategy that is not named has no such claim"
        ),
    ]
    probability: Annotated[
        ProbabilityInfo | None, Field(description="of a candidate, see probabilities of /rerank; null: there is none")
    ]
    goals: Annotated[
        dict[str, float] | None,
        Field(description="weight of each goal where a request has none, the first goal first; null: there is one"),
    ]
    specialists: list[SpecialistInfo]
    unknown_features: Annotated[
        Literal["refuse", "ignore"], Field(description="what becomes of features sent by name that the bundle lacks")
    ]
    routing: RoutingInfo
    score_space: Annotated[
        Literal["softmax over the scored candidates of one list, below 0 places of the others"],
        Field(description="what scores are: shares that sum to 1; -1, -2, ... for candidates that no ranker scored"),
    ]
    supports_chunking: Annotated[Literal[False], Field(description="a list must not be split over requests")]
    explain: Annotated[bool, Field(description="whether POST /explain is there (LISTWRIGHT_EXPLAIN)")]
    protocol: str
    metrics: list[MetricInfo]
    experiments: Annotated[
        ExperimentsInfo | None, Field(description="on traffic; null where LISTWRIGHT_EXPERIMENTS names no file")
    ] = None


def serving_info(models: Models) -> Serving:
    """Describe every name that is served, and the bundles that are refused."""
    infos = [
        ServedModel(
            model=name,
            version=bundle.manifest.version,
            kept=models.previous[name].manifest.version if name in models.previous else None,
            aliases=[alias for alias, target in models.aliases.items() if target == name],
            default=name == models.default,
        )
        for name, bundle in models.current.items()
    ]
    refused = [
        Refused(model=r.model, version=r.version or None, reason=r.reason, at=r.at.isoformat(timespec="seconds"))
        for r in models.refused.values()
    ]
    return Serving(models=infos, refused=refused)


def describe(bundle: Bundle, models: Models, settings: Settings, routing_policy: RoutingPolicy) -> Info:
    """Describe one served bundle, and the others in short."""
    manifest = bundle.manifest
    probability = ProbabilityInfo(of="choice", lists=None, mean=None) if manifest.temperatures else None
    if (stage := manifest.probability) is not None:
        probability = ProbabilityInfo(of="relevance", lists=stage.lists, mean=stage.mean)
    return Info(
        **dict(serving_info(models)),
        model=manifest.name,
        version=manifest.version,
        created_at=manifest.created_at.isoformat(),
        fingerprint=manifest.fingerprint,
        features=[
            FeatureInfo(
                name=f.name, kind=f.kind, required=not f.optional, categories=len(f.categories), default=f.default
            )
            for f in manifest.feature_schema.features
        ],
        relative=[column.name for column in manifest.relative],
        limits=Limits(
            max_candidates=settings.max_candidates,
            max_payload_bytes=settings.max_payload_bytes,
            timeout_ms=settings.timeout_ms,
        ),
        engine=bundle.reranker.first_stage.engine,
        strategies=["auto", *manifest.strategies],
        default_strategy=bundle.reranker.default_strategy,
        cutoff=None if manifest.second_stage is None else manifest.second_stage.cutoff,
        cutoffs={stage.kind: stage.cutoff for stage in (*manifest.second_stages, manifest.srm) if stage is not None},
        temperatures=dict(manifest.temperatures),
        probability=probability,
        goals=None if manifest.goals is None else manifest.goals.default_weights,
        specialists=[
            SpecialistInfo(number=number, weight=s.weight, queries=s.queries, top_features=list(s.top_features))
            for number, s in enumerate(() if manifest.srm is None else manifest.srm.specialists)
        ],
        unknown_features=settings.unknown_features,
        routing=routing(manifest, routing_policy),
        score_space="softmax over the scored candidates of one list, below 0 places of the others",
        supports_chunking=False,
        explain=settings.explain,
        protocol=str(manifest.protocol),
        metrics=[MetricInfo(**metric.model_dump()) for metric in manifest.metrics],
    )


def routing(manifest: Manifest, routing_policy: RoutingPolicy) -> RoutingInfo:
    """Describe whether hook and router are in use at this moment, and why not."""
    hook, reason = routing_policy.hook, routing_policy.switch.off()
    if manifest.srm is None:
        reason = "the bundle has no specialists"
    elif hook is None and manifest.router is None:
        reason = "the bundle has no router, and the settings name no hook"
    return RoutingInfo(enabled=reason is None, reason=reason, hook=hook is not None, router=manifest.router is not None)


@routes.get(
    paths.INFO,
    operation_id="info",
    summary="Served bundles, features and limits",
    tags=["info"],
    response_model=Info,
    response_description="The bundle and the limits",
    responses={status: DOCUMENTED[status] for status in (404, 422, 503)},
)
async def info(
    request: Request,
    models: CurrentModels,
    model: Annotated[Name | None, Query(description="name or alias; by default the one that a request gets")] = None,
    version: Annotated[Name | None, Query(description="by default the current one")] = None,
) -> Info:
    """One served bundle: version, features, limits, strategies, specialists, routing, held-out metrics.

    `models` lists all that are served. Where several are, none of them the default, the first of them is described
    unless one is named.
    """
    service = service_of(request)
    name = model if model is not None or models.default else next(iter(models.current))
    description = describe(models.choose(name, version), models, service.settings, service.routing_policy)
    experiments = None if service.experiments is None else service.experiments.report()
    return description.model_copy(update={"experiments": experiments})


@routes.get(
    paths.METRICS,
    operation_id="metrics",
    summary="Prometheus metrics",
    tags=["info"],
    response_class=PlainTextResponse,
    response_description="Counters and histograms",
    responses={200: {"content": {"text/plain": {"example": EXPOSITION}}}, 422: DOCUMENTED[422]},
)
async def metrics(request: Request) -> Response:
    """Counters and histograms of the service, the sum over its worker processes, in Prometheus' text format."""
    return Response(await service_of(request).scraped.text(), media_type=PROMETHEUS)
