"""From fitted stages to the files of a bundle: export, parity gate, golden lists, seal."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from jaxtyping import Float

from listwright.ranking import bundle, golden
from listwright.ranking.manifest import Manifest
from listwright.ranking.stages import GOLDEN, ColumnStage, NetworkStage
from listwright.training.choice.comparing import Chosen, compared_networks, without_worse
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.calibration import temperatures
from listwright.training.export.inference_form import to_export
from listwright.training.export.onnx import check_parity, to_onnx
from listwright.training.networks.ranker import Unbatched
from listwright.training.recipe.config import Recipe
from listwright.training.second_stage.loop import FittedNetwork
from listwright.training.specialists.fit import FittedSpecialists
from listwright.training.steps.fitting import Fitted

GOLDEN_LISTS = 8
GOLDEN_LENGTH = 15
"""Golden lists are cut to this length: enough to notice a fault, small enough for a repository."""


def write_bundle(folder: Path, out: Path, recipe: Recipe, splits: Splits, fitted: Fitted) -> Manifest:
    """Export into a folder, pass the parity gate, record golden lists, seal (without metrics yet).

    Args:
        folder: where the files are written; empty.
        out: where the bundle will stand: its parent and its own name are the bundle's name and version.
        recipe, splits: of the run.
        fitted: by the run; no network where the first stage stands alone.

    Returns:
        The manifest as sealed.

    Raises:
        ScoringError: if the exported graph does not compute what was trained.
    """
    manifest = _manifest(out, recipe, splits, fitted)
    files = [GOLDEN, *_write_stages(folder, manifest, fitted)]
    reranker = bundle.open_unsealed(folder, manifest)
    longest = int(max(part.lengths.max() for part in (splits.train, splits.valid, splits.test)))
    rng = np.random.default_rng(recipe.seed)
    rows = splits.valid.features
    lengths: tuple[int, ...] = ()
    for stage, network in zip(manifest.second_stages, fitted.networks, strict=True):
        lengths = check_parity(Unbatched(network.module), reranker, stage, rows, longest=longest, rng=rng)
    if (specialists := fitted.specialists) is not None:
        check_parity(specialists.srm.module, reranker, specialists.stage, rows, longest=longest, rng=rng)
    if manifest.second_stage is not None and not compared_networks(recipe):
        cutoff = fitted.networks[0].spec.ndcg_at if recipe.router is None else recipe.router.ndcg_at
        manifest = without_worse(folder, manifest, splits.valid, cutoff)
        reranker = bundle.open_unsealed(folder, manifest)
    (folder / GOLDEN).write_bytes(golden.record(reranker, _golden_lists(splits.valid)))
    found = {"validated_lengths": lengths, "temperatures": temperatures(reranker, splits)}
    return bundle.seal(folder, manifest.model_copy(update=found), files)


def _manifest(out: Path, recipe: Recipe, splits: Splits, fitted: Fitted) -> Manifest:
    """Of the bundle that these fits make."""
    schema, first = splits.train.schema, fitted.first
    stages = [_stage(network) for network in fitted.networks]
    default = fitted.chosen or Chosen(stages[0].kind if stages else "first_stage")
    manifest = Manifest(
        name=out.absolute().parent.name,
        version=out.name,
        created_at=datetime.now(UTC).replace(microsecond=0),
        recipe=recipe.model_dump(mode="json"),
        data=splits.how,
        feature_schema=schema,
        fingerprint=schema.fingerprint,
        relative=first.relative,
        first_stage=first.entry,
        second_stages=tuple(stages),
        strategy=default.strategy,
        default_reason=default.reason,
        choice=default.comparisons,
        made_with=_versions(),
    )
    if fitted.anomaly is not None:
        manifest = manifest.model_copy(update={"anomaly": fitted.anomaly.stage})
    if fitted.specialists is not None:
        manifest = manifest.model_copy(update=_stages(fitted.specialists))
    return manifest


def _write_stages(folder: Path, manifest: Manifest, fitted: Fitted) -> list[str]:
    """Every stage as a file; their names."""
    first, files = fitted.first, []
    for stage, network in zip(manifest.second_stages, fitted.networks, strict=True):
        files.append(stage.file)
        graph = to_onnx(to_export(network.module), bundle.input_width(stage, manifest))
        (folder / stage.file).write_bytes(graph)
    if not isinstance(first.entry, ColumnStage) and first.model is not None:
        files.append(first.entry.file)
        content = first.model if isinstance(first.model, bytes) else first.model.encode()
        (folder / first.entry.file).write_bytes(content)
    if fitted.anomaly is not None:
        files.append(fitted.anomaly.stage.file)
        (folder / fitted.anomaly.stage.file).write_bytes(fitted.anomaly.graph)
    if fitted.specialists is not None:
        files += _write_specialists(folder, fitted.specialists, manifest)
    return files


def _stage(fitted: FittedNetwork) -> NetworkStage:
    spec = fitted.spec
    return NetworkStage(
        kind=spec.kind,
        file=f"{spec.kind}.onnx",
        cutoff=spec.cutoff,
        first_stage_score=spec.first_stage_score,
        relative=spec.relative,
    )


def _stages(specialists: FittedSpecialists) -> dict[str, object]:
    router = None if specialists.router is None else specialists.router.stage
    return {"srm": specialists.stage, "router": router}


def _write_specialists(folder: Path, specialists: FittedSpecialists, manifest: Manifest) -> list[str]:
    """The files of the specialists and the router."""
    width = bundle.input_width(specialists.stage, manifest)
    contents = {specialists.stage.file: to_onnx(specialists.srm.module, width)}
    if specialists.router is not None:
        contents[specialists.router.stage.file] = specialists.router.graph
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return list(contents)


def _golden_lists(dataset: Dataset) -> Iterator[Float[np.ndarray, "L D"]]:
    """Lists of many lengths, from the shortest to the longest."""
    by_length = np.argsort(dataset.lengths, kind="stable")
    picks = dict.fromkeys(int(n) for n in by_length[np.linspace(0, len(by_length) - 1, GOLDEN_LISTS).astype(int)])
    for n in picks:
        yield dataset.features[dataset.slice(n)][:GOLDEN_LENGTH]


def _versions() -> dict[str, str]:
    names = ("listwright", "lightgbm", "numpy", "onnx", "onnxruntime", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
