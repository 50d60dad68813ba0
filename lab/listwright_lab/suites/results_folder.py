"""Folder of a suite's results: one Parquet file per unit of work, joined into one at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import read_object
from listwright.training.job_folder import locked, remove_unused, write_json

RESULTS = "results.parquet"


@dataclass(frozen=True, slots=True)
class UnitFolders:
    """Folders that one unit of work reads and writes.

    Args:
        state: Checkpoints of the unit, and of others that share some with it.
        tuned: Settings that searches found; kept for seeds of later runs.
        parts: Results of finished units.
    """

    state: Path
    tuned: Path
    parts: Path


def settings_file(tuned: Path, search: str) -> Path:
    """Return the path of the settings that a search finds."""
    return tuned / f"{search}.json"


def part_file(parts: Path, unit: str) -> Path:
    """Return the path of a unit's results."""
    return parts / f"{unit}.parquet"


class ResultsFolder:
    """Locked folder of one suite's results; a unit is written whole or not at all, so a killed run loses at most one.

    Args:
        folder: Path of the folder; created if missing.
        settings: Settings that the results depend on; those of an earlier run in the folder must be equal.

    Raises:
        RecipeError: If the folder holds results with other settings, or is in use.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.path = folder
        self._parts, self._state, self._tuned = (folder / name for name in ("parts", "state", "tuned"))
        in_use = f"a suite is running in {folder}: wait for it, or choose another --out"
        with ExitStack() as lock:
            lock.enter_context(locked(folder, in_use))
            for inside in (self._parts, self._tuned):
                inside.mkdir(exist_ok=True)
            self._check_settings(json.loads(json.dumps(settings)))
            self._lock = lock.pop_all()

    def _check_settings(self, settings: dict[str, Any]) -> None:
        """Compare with the settings of earlier runs, and write them: only methods may be added."""
        file = self.path / "settings.json"
        if file.exists():
            earlier = read_object(file)
            there, methods = earlier.get("methods", {}), settings.get("methods", {})
            other = [f"method {name}" for name in methods if name in there and there[name] != methods[name]]
            other = [name for name in settings if name != "methods" and earlier.get(name) != settings[name]] + other
            if other:
                names = ", ".join(other)
                raise RecipeError(f"{self.path} holds results with other {names}: choose another --out, or delete it")
            if methods:
                settings = {**settings, "methods": {**there, **methods}}
        write_json(file, settings)

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._lock.close()
        if error is not None:
            remove_unused(self.path, [self._parts, self._tuned, self._state], ["settings.json", "lock"])

    def state(self, unit: str) -> Path:
        """Return a folder for the checkpoints of a unit, or of units that share some."""
        folder = self._state / unit
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def unit_folders(self, unit: str) -> UnitFolders:
        """Return the folders of a unit: its checkpoints, and shared settings and results."""
        return UnitFolders(self.state(unit), self._tuned, self._parts)

    def remove_state(self, unit: str) -> None:
        """Remove a folder of checkpoints, if it exists."""
        if (folder := self._state / unit).exists():
            shutil.rmtree(folder)

    def has_settings(self, search: str) -> bool:
        """Return whether the settings of a search are found."""
        return settings_file(self._tuned, search).exists()

    def has(self, unit: str) -> bool:
        """Return whether a unit is done."""
        return self._part(unit).exists()

    def add(self, unit: str, results: pl.DataFrame) -> None:
        """Write the results of a unit."""
        with atomic_file(self._part(unit)) as file:
            results.write_parquet(file)

    def join(self, units: list[str]) -> pl.DataFrame:
        """Return all results of these units as one frame, and write ``results.parquet``."""
        results = pl.concat([pl.read_parquet(self._part(unit)) for unit in units])
        results.write_parquet(self.path / RESULTS)
        return results

    def _part(self, unit: str) -> Path:
        return part_file(self._parts, unit)
