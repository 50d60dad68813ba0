"""A disk without room: an error that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from listwright.ranking.errors import DataError


@contextmanager
def told_if_full(folder: Path, remedy: str) -> Iterator[None]:
    """Writing below a folder.

    Args:
        folder: that is named where no room is left.
        remedy: what to do then.

    Raises:
        DataError: if the disk is full.
    """
    try:
        yield
    except (OSError, pl.exceptions.ComputeError) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or f"os error {errno.ENOSPC}" in str(error):
            raise DataError(folder, f"no room is left on this disk: {remedy}") from error
        raise
