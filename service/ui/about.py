"""``GET /ui/bundle``: what a bundle has for the page, from its manifest and from files that are checked again."""

from __future__ import annotations

import json
import logging
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from listwright.ranking import bundle, golden
from listwright.ranking.bundle import Bundle
from listwright.ranking.errors import BundleError
from listwright.ranking.features import QUANTILE_LEVELS, Feature
from listwright.ranking.golden import GoldenList
from listwright.ranking.manifest import Comparison, Manifest, Metric
from listwright.ranking.stages import GOLDEN

REPORT, REPORT_PAGE = "report.json", "report.html"

MOST_LISTS = 20
"""Golden lists that are shown."""

MOST_VALUES = 200_000
"""Values of all golden lists that are shown: what a browser holds with ease."""

MOST_CATEGORIES = 500
"""Categories of a feature that are named; others can be typed."""

KEPT = 4
"""Answers that are kept: those of the bundles that were asked for last."""

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
    """What the page shows of a bundle, besides ``GET /info``."""

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
    """What is read of ``report.json``."""

    rankers: dict[str, str] = {}
    metrics: list[Metric] = []


class About:
    """Answers of ``GET /ui/bundle``, each made once. One that lacks a file is made anew: the file may come back."""

    def __init__(self) -> None:
        self._made: dict[str, bytes] = {}

    def of(self, served: Bundle) -> bytes:
        """JSON of :class:`ShownBundle`. Reads files: not for the event loop."""
        key = served.manifest.sha256
        made = self._made.pop(key, None)
        if made is None:
            found = shown(served)
            made = found.model_dump_json().encode()
            if not _whole(found, served.manifest):
                return made
        self._made[key] = made
        for oldest in list(self._made)[:-KEPT]:
            self._made.pop(oldest, None)
        return made


def shown(served: Bundle) -> ShownBundle:
    """All of it. A file that is gone, or is no longer what the manifest says, is left out and named."""
    manifest = served.manifest
    lists, fault = _golden(served)
    report = _report(served)
    from_report = report is not None and bool(report.metrics)
    return ShownBundle(
        model=manifest.name,
        version=manifest.version,
        data=manifest.data,
        protocol=str(manifest.protocol),
        default_reason=manifest.default_reason,
        quantile_levels=list(QUANTILE_LEVELS),
        features=[_feature(feature) for feature in manifest.feature_schema.features],
        golden=lists,
        golden_fault=fault,
        titles={} if report is None else report.rankers,
        held_out=report.metrics if report is not None and from_report else list(manifest.metrics),
        held_out_from=REPORT if from_report else "manifest.json",
        compared=list(manifest.choice),
        anomaly_quantiles=[] if manifest.anomaly is None else list(manifest.anomaly.quantiles),
        report=lists_file(manifest, REPORT_PAGE),
    )


def _whole(found: ShownBundle, manifest: Manifest) -> bool:
    """Whether no file that it is made from was gone or altered."""
    return found.golden_fault is None and (found.held_out_from == REPORT or not lists_file(manifest, REPORT))


def lists_file(manifest: Manifest, name: str) -> bool:
    """Whether the bundle has a file of this name."""
    return any(entry.name == name for entry in manifest.files)


def _feature(feature: Feature) -> ShownFeature:
    return ShownFeature(
        name=feature.name,
        kind=feature.kind,
        required=not feature.optional,
        default=feature.default,
        categories=list(feature.categories[:MOST_CATEGORIES]),
        known=len(feature.categories),
        quantiles=None if feature.quantiles is None else list(feature.quantiles),
    )


def _golden(served: Bundle) -> tuple[list[ShownList], str | None]:
    """Lists of the golden file, each once; or why there are none."""
    try:
        content = bundle.read_listed(served.path, served.manifest, GOLDEN)
        lists = golden.read(content, served.path / GOLDEN)
    except BundleError as error:
        _log.warning("the page has no golden lists of %s: %s", served.manifest.name, error.reason)
        return [], f"{GOLDEN}: {error.reason}"
    found: dict[str, ShownList] = {}
    left = MOST_VALUES
    for one in lists:
        key = json.dumps(one.features)
        if key in found or len(found) == MOST_LISTS:
            continue
        left -= len(one.features) * len(served.manifest.feature_schema)
        if left < 0:
            break
        found[key] = _list(one, served.manifest.feature_schema.features)
    return list(found.values()), None


def _list(one: GoldenList, features: tuple[Feature, ...]) -> ShownList:
    rows = [[_value(v, f) for v, f in zip(row, features, strict=False)] for row in one.features]
    return ShownList(strategy=one.strategy, rows=rows)


def _value(value: float | None, feature: Feature) -> float | str | None:
    """As a request would send it: the shortest number that is the same float32, or the name of a category."""
    if value is None:
        return None
    if feature.kind == "categorical":
        code = int(value)
        return feature.categories[code - 1] if 0 < code <= len(feature.categories) else None
    return float(str(np.float32(value)))


def _report(served: Bundle) -> _Report | None:
    """The run's report; None where there is none that can be read."""
    if not lists_file(served.manifest, REPORT):
        return None
    try:
        return _Report.model_validate_json(bundle.read_listed(served.path, served.manifest, REPORT))
    except BundleError as error:
        _log.warning("the page shows the manifest's metrics of %s: %s", served.manifest.name, error.reason)
    except ValidationError:
        _log.warning("the page shows the manifest's metrics of %s: %s is no report", served.manifest.name, REPORT)
    return None
