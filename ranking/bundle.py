"""The bundle: a folder that holds rankers, what they were fitted on, and how to tell that they still work.

``listwright verify DIR`` checks one. The format is described in ``docs/bundle-format.md``.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from listwright.ranking import golden, plain_file
from listwright.ranking.aggregates import Aggregates, AnomalyScore
from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.compiled.first_stage import open_first_stage
from listwright.ranking.compiled.forest import open_forest
from listwright.ranking.compiled.linear import open_specialists
from listwright.ranking.errors import BundleError, SchemaMismatchError, ScoringError
from listwright.ranking.first_stage import ColumnFirstStage, FirstStage, OnnxFirstStage
from listwright.ranking.goals import Goals
from listwright.ranking.manifest import BundleFile, Manifest, parse, to_json
from listwright.ranking.plain_file import NotPlainError, to_text
from listwright.ranking.probability import Calibration
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.reranker import Reranker
from listwright.ranking.router import BundleRouter
from listwright.ranking.scorers import OnnxScorer, Scorer
from listwright.ranking.stages import GOLDEN, MANIFEST, SecondStage

MAX_FILE_BYTES = 2 * 1024**3
"""A larger file is refused before it is read."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle: every hash matched, every golden list reproduced."""

    path: Path
    manifest: Manifest
    reranker: Reranker


def load(path: Path) -> Bundle:
    """Read a bundle and check all of it: manifest, paths, sizes, hashes, graphs, golden lists.

    Every file is read once; what was hashed is what runs.

    Raises:
        BundleFormatError: if it was written by a newer version.
        BundleError: naming the file at fault and why.
    """
    return _checked_bundle(path, partial(_read, path), partial(_read, path.resolve()))


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a bundle, and no other file: the rest is not verified.

    Raises:
        BundleFormatError: if it was written by a newer version.
        BundleError: if it is not there, or is no manifest.
    """
    return parse(_read(path, MANIFEST), path / MANIFEST)


def read_listed(path: Path, manifest: Manifest, name: str) -> bytes:
    """Read a file of a loaded bundle again and check it against the manifest.

    Raises:
        BundleError: if the manifest does not list it, or it is no longer what the manifest says.
    """
    entry = next((entry for entry in manifest.files if entry.name == name), None)
    if entry is None:
        raise BundleError(path / MANIFEST, f"does not list the file {name!r}")
    return _checked(path, entry, _read(path, name))


def load_files(path: Path, files: Mapping[str, bytes]) -> Bundle:
    """Check a bundle as :func:`load` does, of files in memory, the manifest among them; nothing is read from disk.

    Args:
        path: Path that errors name; nothing need be there.
        files: Content of each file, by name.

    Raises:
        BundleError: as :func:`load`.
    """

    def read(name: str) -> bytes:
        if name not in files:
            raise BundleError(path / name, "is not there: copy the bundle again")
        return files[name]

    return _checked_bundle(path, read, read)


def _checked_bundle(path: Path, read: Callable[[str], bytes], reread: Callable[[str], bytes]) -> Bundle:
    manifest = parse(read(MANIFEST), path / MANIFEST)
    entries = {entry.name: entry for entry in manifest.files}
    contents = {name: _checked(path, entry, read(name)) for name, entry in entries.items()}

    def read_again(name: str) -> bytes:  # it keeps no contents
        return _checked(path, entries[name], reread(name))

    reranker = build(path, manifest, lambda name: _listed(contents, path, name), read_again)
    golden.replay(reranker, golden.read(_listed(contents, path, GOLDEN), path / GOLDEN), path / GOLDEN)
    return Bundle(path, manifest, reranker)


def build(
    path: Path, manifest: Manifest, read: Callable[[str], bytes], reread: Callable[[str], bytes] | None = None
) -> Reranker:
    """Build the rankers that a manifest names from the bytes of their files; verify only that they run.

    Args:
        path: Path of the bundle, for errors.
        manifest: Manifest of the bundle.
        read: Function from a file's name to its content.
        reread: Function that reads a model once more, for an explanation; None for ``read``.

    Raises:
        BundleError: naming the file that is no such ranker.
    """
    schema = manifest.feature_schema
    entry = manifest.first_stage
    relative = RelativeColumns(manifest.relative, schema) if manifest.relative else None
    open_file = partial(_open, path, read)

    def open_trees(file: str, *, sees_relative: bool = False, engine: str = "compiled") -> FirstStage:
        visible = relative.schema if relative is not None and sees_relative else schema
        return open_file(file, lambda model: open_first_stage(to_text(model), visible, engine))

    first_stage: FirstStage
    if entry.kind == "lightgbm":
        first_stage = open_trees(entry.file, sees_relative=entry.relative, engine=entry.engine)
    elif entry.kind == "onnx":
        first_stage = open_file(entry.file, partial(OnnxFirstStage, schema=schema))
    else:
        first_stage = ColumnFirstStage(entry.feature, schema)
    networks: dict[str, Scorer] = {
        stage.kind: open_file(stage.file, partial(OnnxScorer, width=input_width(stage, manifest)))
        for stage in manifest.second_stages
    }
    specialists, count = None, 0
    if manifest.srm is not None:
        width, count = input_width(manifest.srm, manifest), len(manifest.srm.specialists)
        open_srm = partial(open_specialists, width=width, columns=count, name="specialists' graph")
        specialists = open_file(manifest.srm.file, open_srm)
    calibration = Calibration(manifest.temperatures) if manifest.temperatures else None
    if (stage := manifest.probability) is not None:
        pointwise = open_trees(stage.file, sees_relative=stage.relative)
        calibration = Calibration(stage.temperatures, (pointwise, stage), relative if stage.relative else None)
    goals = None
    if (several := manifest.goals) is not None:
        goals = Goals(several, [open_trees(goal.file, sees_relative=several.relative) for goal in several.others])
    anomaly = router = None
    if manifest.anomaly is not None:
        aggregates = Aggregates(schema, count)
        open_anomaly = partial(open_forest, width=aggregates.numeric, columns=1, name="anomaly score")
        forest = open_file(manifest.anomaly.file, open_anomaly)
        anomaly = AnomalyScore(aggregates, forest)
        if manifest.router is not None:
            open_router = partial(open_forest, width=len(aggregates.names), columns=2 * count, name="router")
            router = BundleRouter(manifest.router, aggregates, open_file(manifest.router.file, open_router), forest)
    return Reranker(
        manifest, first_stage, networks, specialists, router, anomaly, relative, reread or read, calibration, goals
    )


def _open(path: Path, read: Callable[[str], bytes], file: str, open_model: Callable[[bytes], T]) -> T:
    try:
        return open_model(read(file))
    except (ScoringError, SchemaMismatchError, ValueError) as error:
        raise BundleError(path / file, str(error)) from error


def input_width(stage: SecondStage, manifest: Manifest) -> int:
    """Return E, the width of the second stage's input.

    It has the features, and list-relative columns and the first-stage score where the stage uses them.
    """
    relative = len(manifest.relative) if stage.relative else 0
    return len(manifest.feature_schema) + relative + (1 if stage.first_stage_score else 0)


def open_unsealed(path: Path, manifest: Manifest) -> Reranker:
    """Build the rankers of a folder that is still being written, under a manifest that is not on disk yet."""
    return build(path, manifest, lambda name: _read(path, name))


def seal(path: Path, manifest: Manifest, files: Iterable[str]) -> Manifest:
    """Write the manifest of a finished folder: from now on it is a bundle.

    Args:
        path: Path of the folder.
        manifest: Manifest with everything but ``files``.
        files: Names of the files in the folder that belong to the bundle; each is hashed and flushed to disk.

    Returns:
        The manifest as written.

    Raises:
        BundleError: if a reader would refuse the manifest.
    """
    entries = []
    for name in sorted(files):
        with (path / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        entries.append(BundleFile(name=name, sha256=digest, size=(path / name).stat().st_size))
    content = to_json(manifest.model_copy(update={"files": tuple(entries)})).encode()
    sealed = parse(content, path / MANIFEST)
    atomic_write(path / MANIFEST, content, sync=True)
    return sealed


def publish(path: Path, out: Path) -> None:
    """Rename a sealed folder into place, in one step.

    Raises:
        BundleError: if something is there already; a published version never changes.
    """
    fault = BundleError(out, "exists already: a published version never changes; choose another path")
    if out.exists():
        raise fault
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.rename(out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster
            raise fault from None
        raise


def _listed(contents: dict[str, bytes], path: Path, name: str) -> bytes:
    if name not in contents:
        raise BundleError(path / MANIFEST, f"needs the file {name!r} but does not list it")
    return contents[name]


def _checked(path: Path, entry: BundleFile, content: bytes) -> bytes:
    if len(content) != entry.size:
        raise BundleError(
            path / entry.name, f"has {len(content)} bytes instead of {entry.size}: truncated or replaced; copy it again"
        )
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise BundleError(path / entry.name, "does not match its sha256 in the manifest: altered; copy it again")
    return content


def _missing_manifest_hint(path: Path) -> str:
    """Return the remedy where a folder holds no bundle; it names no other path, as callers of a service may read it."""
    versions = sorted(manifest.parent.name for manifest in path.glob(f"*/{MANIFEST}"))
    if versions:
        return f": a bundle is a folder NAME/VERSION; name a version, such as {versions[-1]}"
    return ": not the folder of a bundle" if path.is_dir() else ": there is no such folder"


def _read(path: Path, name: str) -> bytes:
    file = path / name
    try:
        return plain_file.read(file, MAX_FILE_BYTES, inside=(path,))
    except NotPlainError as error:
        raise BundleError(file, str(error)) from error
    except FileNotFoundError as error:
        hint = _missing_manifest_hint(path) if name == MANIFEST else ", although the manifest lists it"
        raise BundleError(file, f"does not exist{hint}") from error
    except OSError as error:
        raise BundleError(file, f"cannot be read: {error.strerror or error}") from error
