"""Files that a service may finish, and so rename, or remove while a join reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from listwright.ranking.errors import DataError
from listwright.ranking.served.files import OPEN_SUFFIX

T = TypeVar("T")


def of_file(path: Path, work: Callable[[Path], T]) -> T | None:
    """What comes of a file, whatever its name is by now; None if it has gone.

    Args:
        path: as it was listed.
        work: reads it.

    Raises:
        DataError: of the work.
    """
    for _ in range(2):  # it may be finished between the look and the reading
        try:
            return work(finished(path))
        except DataError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return None


def finished(path: Path) -> Path:
    """A file that was still written when it was listed has another name once it is finished."""
    for ending in (OPEN_SUFFIX, ".jsonl.part"):
        if path.name.endswith(ending) and not path.exists():
            return path.with_name(path.name.removesuffix(".part"))
    return path
