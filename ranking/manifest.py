"""The manifest: what a bundle says of itself, and the only file that makes a folder a bundle."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, ValidationError, model_validator

from listwright.ranking.errors import BundleError, BundleFormatError
from listwright.ranking.features import FeatureSchema, Many
from listwright.ranking.metrics import EvalProtocol
from listwright.ranking.plain_file import from_json
from listwright.ranking.relative import RelativeColumn, RelativeColumns
from listwright.ranking.stages import (
    AnomalyStage,
    ColumnStage,
    FileName,
    FirstStageEntry,
    Frozen,
    GoalsStage,
    NetworkKind,
    NetworkStage,
    ProbabilityStage,
    RouterStage,
    SrmStage,
)

MAX_MANIFEST_BYTES = 8 * 2**20
"""Bytes of a manifest; a numeric feature has 400, and 1,000 with its list-relative columns."""

MOST_VALUES = 500_000
"""Values of a manifest, and of a line of the golden file."""

_MOST_FILES_BYTES = 4 * 2**30
"""Bytes of all files of a bundle together: while it is checked, they are in memory."""

FORMAT_VERSION = 8
"""Version of the bundle format that this code writes, and the newest that it reads.

To change the format: raise this number; keep reading every older version (convert the parsed JSON step by step in
:func:`parse`); add one small bundle of the new version to ``tests/golden`` and leave the old ones there; describe the
change in ``docs/bundle-format.md`` and the changelog.
"""

_SEVERAL_SECOND_STAGES = 5
"""Before this version, a bundle had one second stage or none."""

_SHARED_RANKS = 6
"""Before this version, equal scores kept input order in the figures of a bundle."""

BundleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
"""A name or version: it is a folder, and stands in headers, logs and labels."""


class BundleFile(Frozen):
    """One file of the bundle, its hash and size."""

    name: FileName
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class Comparison(Frozen):
    """Two rankers on queries that neither was fitted on, before the default was chosen.

    Args:
        ranker, over: The less simple ranker, and the one that it had to beat.
        metric: Name of the metric, e.g. ``ndcg@10``.
        mean, low, high: Paired difference over queries, with its 95 % interval; those of second stages hold together.
        n: Effective number of queries: all of them without weights, else Kish's ``(sum w)^2 / sum w^2``.
    """

    ranker: str
    over: str
    metric: str
    mean: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    n: Annotated[int, Field(ge=1)]


class Metric(Frozen):
    """A mean over the test queries, measured through this very bundle.

    Args:
        ranker: ``input_order``, ``first_stage``, the second stage's kind or ``routed``.
        name: Name of the metric, e.g. ``ndcg@10``.
        mean: Mean over the queries, under the manifest's protocol.
        low, high: 95 % bootstrap interval of the mean.
        n: Number of queries.
    """

    ranker: str
    name: str
    mean: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    n: int


class Manifest(Frozen):
    """Everything a reader must know before it trusts or runs a bundle.

    Args:
        format_version: Version of the format, see :data:`FORMAT_VERSION`.
        sha256: SHA-256 of all the others, see :func:`to_json`.
        name, version: Name and version of the bundle; every answer carries them.
        created_at: UTC.
        recipe: Recipe that made the bundle, as JSON.
        data: One line on the data and their split.
        feature_schema: Columns of every feature matrix.
        fingerprint: Fingerprint of ``feature_schema``; stored so that a hand-edited schema is noticed.
        relative: List-relative columns, computed from the features of a list; see :mod:`listwright.ranking.relative`.
        first_stage, second_stages: Rankers; no second stage where the first one stands alone.
        srm, anomaly, router: Specialists, anomaly score and router; None where the bundle has none.
        strategy: Strategy that ``auto`` means where no router or an abstaining one is asked.
        default_reason: Reason for which ``auto`` means the strategy; None where it is all that was fitted to answer.
        choice: Comparisons that the strategy was chosen by; empty where nothing was compared.
        validated_lengths: List lengths at which exported and trained scores were compared.
        temperatures: Divisor of the scores, by strategy, that makes their softmax the probability of being chosen.
            Where labels are no choices there is none, which is to divide by 1, and no such claim.
        probability: Calibration of scores to probabilities of being relevant; None where labels are choices, whose
            probabilities ``temperatures`` give, and where nothing was calibrated.
        goals: Goals besides the label; None where there are none.
        protocol, metrics: Protocol of the measurement on the test split, and its results.
        files: Every other file of the bundle.
        made_with: Versions of the libraries that wrote the bundle, by name.
    """

    format_version: int = FORMAT_VERSION
    name: BundleName
    version: BundleName
    created_at: datetime
    recipe: dict[str, Any]
    data: str
    feature_schema: FeatureSchema
    fingerprint: str
    relative: Many[RelativeColumn] = ()
    first_stage: FirstStageEntry
    second_stages: Many[NetworkStage]
    srm: SrmStage | None = None
    anomaly: AnomalyStage | None = None
    router: RouterStage | None = None
    strategy: NetworkKind | Literal["first_stage"] = "qilcm"
    default_reason: str | None = None
    choice: Many[Comparison] = ()
    validated_lengths: Many[int] = ()
    temperatures: dict[str, Annotated[FiniteFloat, Field(ge=1e-100)]] = Field(default_factory=dict)
    probability: ProbabilityStage | None = None
    goals: GoalsStage | None = None
    files: Many[BundleFile] = ()
    protocol: EvalProtocol = EvalProtocol()
    metrics: Many[Metric] = ()
    made_with: dict[str, str] = Field(default_factory=dict)
    sha256: str = ""

    @model_validator(mode="after")
    def _parts_fit(self) -> Manifest:
        if self.fingerprint != self.feature_schema.fingerprint:
            raise ValueError("fingerprint does not belong to feature_schema")
        if isinstance(self.first_stage, ColumnStage) and self.first_stage.feature not in self.feature_schema.index:
            raise ValueError(f"first_stage names the feature {self.first_stage.feature!r}, which the schema lacks")
        if self.router is not None and (self.srm is None or self.anomaly is None):
            raise ValueError("a router needs specialists and the anomaly score")
        if self.strategy not in self.strategies:
            raise ValueError(f"strategy is {self.strategy!r}, but the bundle's are {', '.join(self.strategies)}")
        if unknown := set(self.temperatures) - set(self.strategies):
            raise ValueError(f"temperatures name {', '.join(sorted(unknown))}, which the bundle has not")
        if self.probability is not None and set(self.probability.temperatures) != set(self.strategies):
            raise ValueError("probability does not have a temperature for each of the bundle's strategies alone")
        if self.goals is not None and set(self.goals.spreads) != set(self.strategies):
            raise ValueError("goals do not have a spread for each of the bundle's strategies alone")
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("a file is listed twice")
        if (total := sum(file.size for file in self.files)) > _MOST_FILES_BYTES:
            raise ValueError(f"files have {total} bytes together; the limit is {_MOST_FILES_BYTES}")
        if len({stage.kind for stage in self.second_stages}) != len(self.second_stages):
            raise ValueError("second_stages name a kind twice")
        RelativeColumns(self.relative, self.feature_schema)
        return self

    @property
    def second_stage(self) -> NetworkStage | None:
        """The generalist: the second stage that ``auto`` means, or else the first of all; None where there is none."""
        return next(
            (stage for stage in self.second_stages if stage.kind == self.strategy), next(iter(self.second_stages), None)
        )

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies that a request may name, besides ``auto``."""
        second = tuple(stage.kind for stage in self.second_stages)
        return (*second, *(("srm",) if self.srm is not None else ()), "first_stage")


def to_json(manifest: Manifest) -> str:
    """Return the manifest's file, with the hash of its own contents."""
    values = manifest.model_dump(mode="json")
    return json.dumps(values | {"sha256": _own_hash(values)}, indent=1, ensure_ascii=False) + "\n"


def _own_hash(values: dict[str, Any]) -> str:
    """Return the sha256 over the other fields as sorted, compact JSON."""
    others = {name: value for name, value in values.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse(text: bytes, path: Path | str) -> Manifest:
    """Read a manifest of any supported format version.

    Args:
        text: JSON, UTF-8.
        path: Path of the manifest, for error messages.

    Raises:
        BundleFormatError: if a newer Listwright wrote it.
        BundleError: if it is not a manifest; names the field and why.
    """
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleError(
            path, f"has {len(text)} bytes; the limit is {MAX_MANIFEST_BYTES}: use fewer features or categories"
        )
    try:
        values = from_json(text, MOST_VALUES)
    except ValueError as error:
        raise BundleError(path, f"not JSON ({error}): truncated or damaged; copy the bundle again") from error
    version = values.get("format_version") if isinstance(values, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(path, "format_version is no whole number from 1: this is no bundle manifest")
    if version > FORMAT_VERSION:
        raise BundleFormatError(
            path, f"bundle format {version} is newer than {FORMAT_VERSION}, the newest this version reads: upgrade"
        )
    if values.get("sha256") != _own_hash(values):
        raise BundleError(path, "does not match its own sha256: altered; copy the bundle again, or fit a new version")
    if version < _SEVERAL_SECOND_STAGES and "second_stage" in values:
        only = values.pop("second_stage")
        values["second_stages"] = [] if only is None else [only]
    if version < _SHARED_RANKS and isinstance(values.get("protocol"), dict):
        values["protocol"].setdefault("ties", "input_order")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"]) or "manifest"
        raise BundleError(path, f"{place}: {fault['msg']}") from error
