"""The page at ``/ui``: its files, read once, and a bundle's data for it, from its manifest and verified files.

No part of the contract of ``openapi.yaml``: the one caller is the page itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from listwright.ranking import golden
from listwright.ranking.bundle import Bundle, read_listed
from listwright.ranking.errors import BundleError
from listwright.ranking.features import QUANTILE_LEVELS
from listwright.ranking.manifest import Comparison, Manifest, Metric
from listwright.ranking.plain_file import MOST_JSON_VALUES, from_json
from listwright.ranking.stages import GOLDEN
from listwright.service import paths
from listwright.service.api.routing import CheckedRoute, CurrentModels, service_of
from listwright.service.bundles.models import Models
from listwright.service.errors import NotReadyError
from listwright.service.wire.schemas import Name

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Policy of a report: one file with its own styles and drawings, no script and no origin."""

Model = Annotated[Name | None, Query()]


def routes() -> tuple[APIRouter, frozenset[str]]:
    """Return the routes below ``/ui``, and those of their paths that need no key, as they hold only the page's code."""
    router = APIRouter(include_in_schema=False, route_class=CheckedRoute)
    static, about = read_files(), About()

    @router.get("/")
    @router.get(paths.UI)
    async def page() -> Response:
        """Redirect to the path with a slash, which the page's relative links need."""
        return RedirectResponse("ui/", 307)

    @router.get(paths.UI_BUNDLE)
    async def about_bundle(
        request: Request, models: CurrentModels, model: Model = None, version: Model = None
    ) -> Response:
        """Answer a bundle's data for the page: golden lists, quantiles of training, the held-out table."""
        bundle = _choose_bundle(request, models, model, version)
        return Response(await to_thread.run_sync(about.of, bundle), media_type="application/json")

    @router.get(paths.UI_REPORT)
    async def report(request: Request, models: CurrentModels, model: Model = None, version: Model = None) -> Response:
        """Answer the report of the run that made a bundle."""
        bundle = _choose_bundle(request, models, model, version)
        if not lists_file(bundle.manifest, REPORT_PAGE):
            raise HTTPException(404)
        try:
            content = await to_thread.run_sync(read_listed, bundle.path, bundle.manifest, REPORT_PAGE)
        except BundleError as error:
            raise NotReadyError(f"{REPORT_PAGE}: {error.reason}") from error
        return Response(content, media_type=TYPES[".html"], headers={"Content-Security-Policy": REPORT_POLICY})

    @router.get(paths.UI_FILES)
    async def file(request: Request, name: str) -> Response:
        """Answer a file of the page."""
        return _answer_file(static, name, request)

    return router, frozenset(("/", paths.UI, paths.UI_PAGE, *(f"{paths.UI_PAGE}{name}" for name in static)))


def _choose_bundle(request: Request, models: Models, model: str | None, version: str | None) -> Bundle:
    """Return the bundle that is named; the default or the first one where none is, as ``/info`` does."""
    name = model if model is not None else models.default or next(iter(models.current))
    return service_of(request).find_bundle(request, name, version)


REPORT, REPORT_PAGE = "report.json", "report.html"

MOST_LISTS = 20
"""Golden lists that are shown."""

MOST_VALUES = 200_000
"""Values of all golden lists that are shown, few enough for any browser."""

MOST_CATEGORIES = 500
"""Categories of a feature that are named; others can be typed."""

MOST_ANSWERS = 4
"""Cached answers: those of the most recently requested bundles."""

_log = logging.getLogger("listwright.service")


class ShownFeature(BaseModel):
    """One feature with what training saw of it."""

    name: str
    kind: str
    required: bool
    default: float | str | None
    categories: Annotated[list[str], Field(description="the first of them, at most MOST_CATEGORIES")]
    known: Annotated[int, Field(description="number of categories")]
    quantiles: Annotated[list[float] | None, Field(description="at quantile_levels; null: none, or categorical")]


class ShownList(BaseModel):
    """One golden list: rows in schema order, categories by name."""

    strategy: str
    rows: list[list[float | str | None]]


class ShownBundle(BaseModel):
    """A bundle's data for the page, besides ``GET /info``."""

    model: str
    version: str
    data: str
    protocol: str
    default_reason: str | None
    quantile_levels: list[float]
    features: list[ShownFeature]
    golden: list[ShownList]
    golden_fault: Annotated[str | None, Field(description="why there are no golden lists")]
    titles: Annotated[dict[str, str], Field(description="rankers as the report calls them")]
    held_out: list[Metric]
    held_out_from: Annotated[str, Field(description="the file that the table comes from")]
    compared: list[Comparison]
    anomaly_quantiles: list[float]
    report: Annotated[bool, Field(description="whether there is a report to read at /ui/report")]


class _Report(BaseModel):
    """The parts of ``report.json`` that the page shows."""

    rankers: dict[str, str] = {}
    metrics: Annotated[list[Metric], Field(fail_fast=True)] = []


class About:
    """Cached answers of ``GET /ui/bundle``. One that lacks a file is not cached: the file may come back."""

    def __init__(self) -> None:
        self._answers: dict[str, bytes] = {}

    def of(self, bundle: Bundle) -> bytes:
        """Return JSON of :class:`ShownBundle`. Reads files: not for the event loop."""
        key = bundle.manifest.sha256
        answer = self._answers.pop(key, None)
        if answer is None:
            content = describe_bundle(bundle)
            answer = content.model_dump_json().encode()
            lacks_report = content.held_out_from != REPORT and lists_file(bundle.manifest, REPORT)
            if content.golden_fault is not None or lacks_report:
                return answer
        self._answers[key] = answer
        for oldest in list(self._answers)[:-MOST_ANSWERS]:
            self._answers.pop(oldest, None)
        return answer


def describe_bundle(bundle: Bundle) -> ShownBundle:
    """Collect a bundle's data for the page; a file that is gone or altered is left out and named."""
    manifest = bundle.manifest
    lists, fault = _golden(bundle)
    report = _report(bundle)
    from_report = report is not None and bool(report.metrics)
    return ShownBundle(
        model=manifest.name,
        version=manifest.version,
        data=manifest.data,
        protocol=str(manifest.protocol),
        default_reason=manifest.default_reason,
        quantile_levels=list(QUANTILE_LEVELS),
        features=[
            ShownFeature(
                name=feature.name,
                kind=feature.kind,
                required=not feature.optional,
                default=feature.default,
                categories=list(feature.categories[:MOST_CATEGORIES]),
                known=len(feature.categories),
                quantiles=None if feature.quantiles is None else list(feature.quantiles),
            )
            for feature in manifest.feature_schema.features
        ],
        golden=lists,
        golden_fault=fault,
        titles={} if report is None else report.rankers,
        held_out=report.metrics if report is not None and from_report else list(manifest.metrics),
        held_out_from=REPORT if from_report else "manifest.json",
        compared=list(manifest.choice),
        anomaly_quantiles=[] if manifest.anomaly is None else list(manifest.anomaly.quantiles),
        report=lists_file(manifest, REPORT_PAGE),
    )


def lists_file(manifest: Manifest, name: str) -> bool:
    """Return whether the manifest lists a file of this name."""
    return any(entry.name == name for entry in manifest.files)


def _golden(bundle: Bundle) -> tuple[list[ShownList], str | None]:
    """Return the lists of the golden file, each once, or why there are none."""
    try:
        content = read_listed(bundle.path, bundle.manifest, GOLDEN)
        lists = golden.read(content, bundle.path / GOLDEN)
    except BundleError as error:
        _log.warning("the page has no golden lists of %s: %s", bundle.manifest.name, error.reason)
        return [], f"{GOLDEN}: {error.reason}"
    shown_lists: dict[str, ShownList] = {}
    left = MOST_VALUES
    for golden_list in lists:
        key = json.dumps(golden_list.features)
        if key in shown_lists or len(shown_lists) == MOST_LISTS:
            continue
        left -= len(golden_list.features) * len(bundle.manifest.feature_schema)
        if left < 0:
            break
        features = bundle.manifest.feature_schema.features
        rows = [
            [
                feature.value_of(math.nan if value is None else value)
                for value, feature in zip(row, features, strict=False)
            ]
            for row in golden_list.features
        ]
        shown_lists[key] = ShownList(strategy=golden_list.strategy, rows=rows)
    return list(shown_lists.values()), None


def _report(bundle: Bundle) -> _Report | None:
    """Read the run's report; None where there is none that can be read."""
    if not lists_file(bundle.manifest, REPORT):
        return None
    try:
        return _Report.model_validate(from_json(read_listed(bundle.path, bundle.manifest, REPORT), MOST_JSON_VALUES))
    except BundleError as error:
        _log.warning("the page shows the manifest's metrics of %s: %s", bundle.manifest.name, error.reason)
    except ValueError:
        _log.warning("the page shows the manifest's metrics of %s: %s is no report", bundle.manifest.name, REPORT)
    return None


STATIC = Path(__file__).resolve().parent / "static"

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Content types of the served files, by suffix; other files are not served."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No inline code, nothing of other origins, and no text that becomes HTML: text of callers stays text."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

CACHING = "no-cache"
"""A browser asks each time whether its copy is the current one: modules name one another without a version."""


class StaticFile(NamedTuple):
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read_files(folder: Path = STATIC) -> dict[str, StaticFile]:
    """Read all files of the page, by their path below ``/ui/``."""
    files = {}
    for path in sorted(folder.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.relative_to(folder).as_posix()] = StaticFile(content, media_type, etag)
    return files


def _answer_file(files: Mapping[str, StaticFile], name: str, request: Request) -> Response:
    """Answer one file, the page itself where the name is empty, or 304 where the caller has it already."""
    file = files.get(name or INDEX)
    if file is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": file.etag, "Cache-Control": CACHING}
    tags = request.headers.get("if-none-match", "").split(",")
    if file.etag in [tag.strip().removeprefix("W/") for tag in tags]:  # a proxy that compresses may have made it weak
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
