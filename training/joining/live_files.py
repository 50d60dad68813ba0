"""Files that a service may finish, and so rename, or remove while a join reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from listwright.ranking.errors import DataError
from listwright.ranking.served.files import names_of

T = TypeVar("T")


def of_file(listed: Path, work: Callable[[Path], T]) -> T | None:
    """What comes of a file, whatever its name is by now; None if it has gone.

    Args:
        listed: the file, as it was listed.
        work: reads it.

    Raises:
        DataError: of the work.
    """
    for path in names_of(listed):
        try:
            return work(path)
        except DataError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return None
