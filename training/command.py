"""A command line as others can repeat it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def repeatable(command: str, arguments: Sequence[str]) -> str:
    """``listwright COMMAND ARGUMENTS`` without what is of one machine or one attempt.

    Folders of absolute paths go, because they are nobody else's, and so do ``--out``, ``--study``, ``--json``, ``--on``
    and ``--resume``, because they change nothing in the result.
    """
    attempt = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    attempt.add_argument("--out")
    attempt.add_argument("--study")
    attempt.add_argument("--json")
    attempt.add_argument("--on")
    attempt.add_argument("--resume", action="store_true")
    _, kept = attempt.parse_known_args(list(arguments))
    shown = [
        word if "--default" in (before, word.partition("=")[0]) else _without_folder(word)  # a category is no path
        for before, word in pairwise(["", *kept])
    ]
    return f"listwright {command} {shlex.join(shown)}".rstrip()


def _without_folder(word: str) -> str:
    split, same, path = word.rpartition("=")
    return split + same + Path(path).name if "/" in path else word
