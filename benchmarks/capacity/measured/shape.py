"""What is asked about: a bundle, and one list in one format as the body of every request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import wide_bundle
from benchmarks.speed.floor import formats
from listwright.ranking import bundle
from listwright.ranking.errors import ListwrightError

FORMATS = ("npy", "columnar JSON", "rows by name")

BUILD = Path("build/capacity")
"""Bundles that are fitted here stay here: that takes a minute."""


class ShapeError(Exception):
    """The shape cannot be measured: names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one list.

    Args:
        bundle: the folder that is served.
        candidates, features: L, D.
        format: one of :data:`FORMATS`.
        body: of the request.
        media_type: of body and answer.
        bundle_bytes: of all files of the bundle.
        identity: name and version of the bundle.
    """

    bundle: Path
    candidates: int
    features: int
    format: str
    body: bytes
    media_type: str
    bundle_bytes: int
    identity: str


def shape(folder: Path | None, candidates: int, features: int | None, format_name: str) -> Shape:
    """The shape that the command line asks for.

    Args:
        folder: a bundle; None for one of the clock's, see :mod:`benchmarks.wide_bundle`.
        candidates: L.
        features: D; None for as many as the bundle has, or :data:`~benchmarks.wide_bundle.FEATURES`.
        format_name: one of :data:`FORMATS`.

    Raises:
        ShapeError: if a number is out of its range, the bundle cannot be loaded, or has other features.
    """
    if candidates < 1:
        raise ShapeError(f"--candidates {candidates}: give at least 1")
    if features is not None and features < 1:
        raise ShapeError(f"--features {features}: give at least 1")
    served = folder or _wide(wide_bundle.FEATURES if features is None else features)
    try:
        loaded = bundle.load(served)
    except ListwrightError as error:
        raise ShapeError(f"--bundle {served}: {error}") from error
    schema = loaded.reranker.schema
    if features is not None and features != len(schema):
        raise ShapeError(f"--features {features}: the bundle {served} has {len(schema)}; leave --features out")
    drawn = wide_bundle.rows(np.random.default_rng(3), candidates, len(schema))
    drawn[:, list(schema.categorical)] = 0.0  # the code of an unknown category
    body, media_type = formats(loaded.reranker, drawn)[format_name]
    size = sum(path.stat().st_size for path in served.rglob("*") if path.is_file())
    manifest = loaded.manifest
    return Shape(
        served, candidates, len(schema), format_name, body, media_type, size, f"{manifest.name}/{manifest.version}"
    )


def _wide(features: int) -> Path:
    folder = BUILD / f"wide-{features}" / "1"
    if not (folder / "manifest.json").exists():
        print(f"fitting a bundle of {features} features", flush=True)
        wide_bundle.build(folder, features=features)
    return folder
