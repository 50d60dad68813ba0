"""Command lines: options that are lists, and a command as others can repeat it."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|\Z)')


def split_names(text: str) -> tuple[str, ...]:
    """The names in the text of a list option, which ``action="extend"`` adds to those of the same option before it.

    Convention: commas separate names, blanks around a name do not count. A name that contains a comma stands in double
    quotes, as in CSV: ``"price, net",shop``.

    Raises:
        ArgumentTypeError: if there is none.
    """
    found = ((quoted, plain.strip()) for quoted, plain in _NAME.findall(text))
    listed = tuple(quoted.replace('""', '"') or plain for quoted, plain in found if quoted or plain)
    if not listed:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one or more, separated by commas")
    return listed


def in_list(name: str) -> str:
    """A name as a list option takes it, for a shell: what :func:`names` reads."""
    plain = "," not in name and not name.startswith('"') and name == name.strip()
    return shlex.quote(name if plain else '"' + name.replace('"', '""') + '"')


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
