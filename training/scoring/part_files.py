"""Files of a job's hidden folder: what the command and its workers write there."""

from __future__ import annotations

from pathlib import Path

ARROW = ".arrow"
"""Ends the names of files in Arrow's own format."""

FULL = "make some, and run the same command with --resume"
"""What to do if the disk is full."""

SIZES = "0*.json"
"""Pattern of the files of :func:`size_file`."""


def rows_file(folder: Path, number: int) -> Path:
    """A part's rows before they are ranked, where a worker cannot read the data itself."""
    return folder / f"{number:07}{ARROW}"


def part_file(folder: Path, number: int) -> Path:
    """A part's rows, ranked."""
    return folder / f"{number:07}.parquet"


def size_file(folder: Path, number: int) -> Path:
    """How many rows and lists a part has, and what was noticed of them; it is there once the part is whole."""
    return folder / f"{number:07}.json"
