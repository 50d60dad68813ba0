"""Markdown of what the pages of the reference share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; line breaks and bars within a cell stay within it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def code(text: object) -> str:
    """A code span, or nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def plain(text: str) -> str:
    """Text of the code that is no Markdown, so that its brackets make no links."""
    return re.sub(r"([\[\]<*])", r"\\\1", text)


def fenced(text: str, language: str = "text") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def page(title: str, promise: str, *parts: str) -> str:
    """A page; the promise says what the reader can do after it."""
    return "\n".join([f"# {title}\n", f"{promise}\n", *parts])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
