"""What ``--data`` says: one source, several, or which file is which split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from listwright.ranking.errors import DataError, RecipeError

SPLITS = ("train", "valid", "test")
"""Names of the splits on the command line and in files' names, in this order."""

_INDEX = re.compile(r"|Unnamed: \d+(?:\.\d+)*|__index_level_\d+__")

NAMED = "train=FILE valid=FILE test=FILE"


def files_by_split(sources: Sequence[str]) -> dict[str, str] | None:
    """The file of each split in the order of :data:`SPLITS`, or None where the sources do not say which is which.

    Raises:
        RecipeError: if some sources name a split and others do not, or a split is missing or named twice.
    """
    named = [(split, file) for split, same, file in (source.partition("=") for source in sources) if same]
    named = [(split, file) for split, file in named if split in SPLITS]
    if not named:
        return None
    missing = [split for split in SPLITS if split not in dict(named)]
    if missing or len(named) != len(SPLITS):
        wrong = f"no {missing[0]}=FILE" if missing else "a split twice"
        raise RecipeError(f"--data names {wrong}: give {NAMED}, each once")
    if len(named) != len(sources):
        other = next(source for source in sources if source.partition("=")[0] not in SPLITS)
        raise RecipeError(f"--data does not say which split {other} is: give {NAMED}, each once")
    return {split: dict(named)[split] for split in SPLITS}


def check_exists(source: str) -> None:
    """Raise DataError unless there is something at the path."""
    if not Path(source).exists():
        split, same, _ = source.partition("=")
        hint = f"; {split!r} is no split: train=, valid= and test= are" if same else ""
        raise DataError(source, f"does not exist{hint}")


def path_of(source: str) -> Path:
    """The path of a source, without the name of a split before it."""
    split, _, file = source.partition("=")
    return Path(file if split in SPLITS and file else source)


def is_index(name: str) -> bool:
    """Whether a column has no name of its own, as the index that pandas writes before the others."""
    return _INDEX.fullmatch(name) is not None
