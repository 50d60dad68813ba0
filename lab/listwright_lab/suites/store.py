"""The results of a suite: one Parquet file per unit of work, joined into one at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import read_object
from listwright.training.job_folder import locked, remove_unused, write_json

RESULTS = "results.parquet"


@dataclass(frozen=True, slots=True)
class Place:
    """Folders that a unit works with.

    Args:
        state: its checkpoints, and those of units that share some with it.
        tuned: settings that searches found; they stay, for seeds of later runs.
        parts: results of the units that are done.
    """

    state: Path
    tuned: Path
    parts: Path


def settings_file(tuned: Path, search: str) -> Path:
    """Return the file of the settings that a search finds."""
    return tuned / f"{search}.json"


def part_file(parts: Path, unit: str) -> Path:
    """Return the file of a unit's results."""
    return parts / f"{unit}.parquet"


class Store:
    """The folder of one suite. A unit is written in full or not at all, so that a killed run loses at most one.

    Args:
        folder: made if it is not there.
        settings: what the results depend on; those of an earlier run in the folder must be the same.

    Raises:
        RecipeError: if the folder holds another experiment, or is in use.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self._parts, self._state, self._tuned = (folder / name for name in ("parts", "state", "tuned"))
        in_use = f"an experiment in {folder} is going on: wait for it, or choose another --out"
        with ExitStack() as lock:
            lock.enter_context(locked(folder, in_use))
            for inside in (self._parts, self._tuned):
                inside.mkdir(exist_ok=True)
            self._belongs_to(json.loads(json.dumps(settings)))
            self._lock = lock.pop_all()

    def _belongs_to(self, settings: dict[str, Any]) -> None:
        """Check the settings: methods may be added; existing ones, and everything else, must be the same."""
        file = self.folder / "settings.json"
        if file.exists():
            earlier = read_object(file)
            there, methods = earlier.get("methods", {}), settings.get("methods", {})
            other = [f"method {name}" for name in methods if name in there and there[name] != methods[name]]
            other = [name for name in settings if name != "methods" and earlier.get(name) != settings[name]] + other
            if other:
                names = ", ".join(other)
                raise RecipeError(f"{self.folder} holds results with other {names}: choose another --out, or delete it")
            if methods:
                settings = {**settings, "methods": {**there, **methods}}
        write_json(file, settings)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._lock.close()
        if error is not None:
            remove_unused(self.folder, [self._parts, self._tuned, self._state], ["settings.json", "lock"])

    def state(self, unit: str) -> Path:
        """Return a folder for the checkpoints of a unit, or of units that share some."""
        folder = self._state / unit
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def place(self, unit: str) -> Place:
        """Return the place of a unit: its folder, and those of shared results."""
        return Place(self.state(unit), self._tuned, self._parts)

    def remove_state(self, unit: str) -> None:
        """Remove a folder of checkpoints, if it exists."""
        if (folder := self._state / unit).exists():
            shutil.rmtree(folder)

    def tuned(self, search: str) -> bool:
        """Return whether a search is done."""
        return settings_file(self._tuned, search).exists()

    def has(self, unit: str) -> bool:
        """Return whether a unit is done."""
        return self._part(unit).exists()

    def add(self, unit: str, results: pl.DataFrame) -> None:
        """Write the results of a unit."""
        temporary = self._part(unit).with_suffix(".tmp")
        results.write_parquet(temporary)
        temporary.replace(self._part(unit))

    def join(self, units: list[str]) -> pl.DataFrame:
        """Return all results of these units as one frame, and write ``results.parquet``."""
        together = pl.concat([pl.read_parquet(self._part(unit)) for unit in units])
        together.write_parquet(self.folder / RESULTS)
        return together

    def _part(self, unit: str) -> Path:
        return part_file(self._parts, unit)
