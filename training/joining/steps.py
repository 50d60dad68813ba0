"""The steps of a join, each of which is done once, however often the job is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from listwright.ranking.plain_file import read_object
from listwright.training.stored.writing import write_json

DONE = "done.json"
"""End of the name of what a finished step left."""


def once(folder: Path, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a step said when it was done, or says now.

    Args:
        folder: of the job.
        name: of the step.
        work: does it; what it returns can be written as JSON. Done a second time it leaves the same.
    """
    path = folder / f"{name}.{DONE}"
    if not path.exists():
        write_json(path, work())
    return read_object(path)
