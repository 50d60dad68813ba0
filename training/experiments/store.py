"""Where a suite keeps what it has measured: one Parquet file per unit of work, joined into one at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from filelock import FileLock, Timeout

from ranking.errors import RecipeError

RESULTS = "results.parquet"


class Store:
    """The folder of one suite. A unit is written whole or not at all, so that a killed run loses at most one.

    Args:
        folder: made if it is not there.
        settings: what the results depend on; those of an earlier run in the folder must be the same.

    Raises:
        RecipeError: if the folder holds another experiment, or is in use.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self._parts = folder / "parts"
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecipeError(f"--out {folder} cannot be made: {error.strerror or error}") from error
        self._lock = FileLock(folder / "lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise RecipeError(f"an experiment in {folder} is going on: wait for it, or choose another --out") from error
        known, wanted = folder / "settings.json", json.loads(json.dumps(settings))
        if known.exists():
            found = json.loads(known.read_text(encoding="utf-8"))
            if found != wanted:
                self._lock.release()
                names = ", ".join(name for name in wanted if found.get(name) != wanted[name])
                raise RecipeError(f"{folder} holds results with other {names}: choose another --out, or delete it")
        else:
            temporary = known.with_suffix(".tmp")
            temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
            temporary.replace(known)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def state(self, unit: str) -> Path:
        """A folder for the checkpoints of a unit."""
        folder = self.folder / "state" / unit
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def tuned(self, data: str) -> Path:
        """A file for settings found on these data; it stays, for seeds that are asked for later."""
        folder = self.folder / "tuned"
        folder.mkdir(exist_ok=True)
        return folder / f"{data}.json"

    def has(self, unit: str) -> bool:
        """Whether a unit is done."""
        return self._part(unit).exists()

    def add(self, unit: str, results: pl.DataFrame) -> None:
        """Keep the results of a unit."""
        temporary = self._part(unit).with_suffix(".tmp")
        results.write_parquet(temporary)
        temporary.replace(self._part(unit))

    def join(self, units: list[str]) -> pl.DataFrame:
        """All results of these units as one frame, and as ``results.parquet``."""
        together = pl.concat([pl.read_parquet(self._part(unit)) for unit in units])
        together.write_parquet(self.folder / RESULTS)
        return together

    def _part(self, unit: str) -> Path:
        return self._parts / f"{unit}.parquet"
