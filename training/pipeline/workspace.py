"""The working folder of a run, which keeps finished work for a resumed run, and the run's context."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from listwright.ranking.errors import RecipeError
from listwright.ranking.manifest import BundleName
from listwright.training.cluster import Workers
from listwright.training.console.progress import Progress
from listwright.training.data.dataset import Splits
from listwright.training.data.shards.rows import chunks
from listwright.training.job_folder import JobKind, job_folder, store_facts
from listwright.training.pipeline.budget import Budget
from listwright.training.recipe.config import Recipe

_RUN = JobKind(
    "run",
    "run.json",
    "a run for {out} is going on: wait for it, or choose another --out",
    "the interrupted run in {folder} had another {name}: repeat its command, or delete that folder",
)


class Workspace:
    """The hidden folder next to ``out`` that a run works in until its bundle is published.

    ``state/`` holds checkpoints, ``bundle/`` the files of the bundle. As a context it holds the folder against other
    runs, and removes it at the end if nothing in it is worth keeping.

    Args:
        out: Folder of the bundle to publish.
        recipe: Recipe of the run.
        resume: Whether to go on with what an interrupted run left; False starts from nothing.
        mode: Mode of the run's time: ``bounded`` or ``unbounded``.

    Raises:
        RecipeError: if ``out`` exists or cannot name a bundle; if an interrupted run is there and ``resume`` is False,
            or the other way round; if that run had another recipe, or is still going on.
    """

    def __init__(self, out: Path, recipe: Recipe, *, resume: bool, mode: str = "unbounded") -> None:
        self.out = out
        check_names(out)
        if out.exists():
            raise RecipeError(f"{out} exists already: a published bundle never changes; choose another --out")
        facts = {"recipe": recipe.model_dump(mode="json"), "bound on its time": mode}
        self._lock = ExitStack()
        self.folder = self._lock.enter_context(job_folder(out, facts, resume=resume, keep_pattern="*", kind=_RUN))
        self.state = self.folder / "state"
        self.bundle = self.folder / "bundle"
        self.state.mkdir(exist_ok=True)
        if self.bundle.exists():
            shutil.rmtree(self.bundle)
        self.bundle.mkdir()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        if self.folder.exists() and not any(self.state.iterdir()):
            shutil.rmtree(self.folder)

    def belongs_to(self, splits: Splits, model: Path | None = None) -> str:
        """Record which data this run uses; on a resumed run, check that they are still the same.

        Args:
            splits: Splits of the run.
            model: File of a given first stage.

        Returns:
            sha256 of features, labels and lists of all splits.

        Raises:
            RecipeError: if the data or the model differ from those of the interrupted run.
        """
        digest = digest_of(splits)
        model_digest = None if model is None else hashlib.sha256(model.read_bytes()).hexdigest()
        store_facts(self.folder / _RUN.facts, {"data": digest, "first stage": model_digest}, _RUN.other)
        return digest

    def discard(self) -> None:
        """Remove the folder, once the bundle has been published from it."""
        shutil.rmtree(self.folder)


def check_names(out: Path) -> None:
    """Check before hours of work that the last two parts of the path name the bundle.

    Raises:
        RecipeError: if they cannot.
    """
    if len(out.parts) < 2:
        raise RecipeError(f"{out}: expected NAME/VERSION at its end, e.g. models/{out}/1")
    for name in (out.absolute().parent.name, out.name):
        try:
            TypeAdapter(BundleName).validate_python(name)
        except ValidationError as error:
            raise RecipeError(
                f"{out}: {name!r} cannot be a bundle's name or version: letters, digits, '.', '_' and '-', at "
                "most 100 and beginning with a letter or digit, e.g. models/shop/1"
            ) from error


def next_version(models: Path, name: str) -> Path:
    """Return the first free ``models/name/N``, N counted from 1."""
    version = 1
    while (models / name / str(version)).exists():
        version += 1
    return models / name / str(version)


def digest_of(splits: Splits) -> str:
    """Return the sha256 of features, labels, lists, weights and goals of all splits."""
    digest = hashlib.sha256()
    for part in (splits.train, splits.valid, splits.test):
        for _, rows in chunks(part.features):
            digest.update(np.ascontiguousarray(rows).data)
        for array in (part.labels, part.offsets, part.weights, *part.goals.values()):
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RunContext:
    """The context of one run.

    Args:
        recipe: Recipe to fit.
        splits: Splits under the schema that the bundle will have.
        state: Folder for checkpoints; finished work in it is not repeated.
        progress: Progress report.
        device: Torch device of the networks.
        workers: Workers of a data-parallel fit; None for this process.
        budget: Time budget; by default without a bound.
    """

    recipe: Recipe
    splits: Splits
    state: Path
    progress: Progress
    device: str = "cpu"
    workers: Workers | None = None
    budget: Budget = field(default_factory=Budget)
