"""Markdown of what the pages of the reference share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table; line breaks and bars within a cell stay within it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def code(text: object) -> str:
    """Build a code span, or nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def plain(text: str) -> str:
    """Escape the code's text as no Markdown, so that its brackets make no links."""
    return re.sub(r"([\[\]<*])", r"\\\1", text)


def fenced(text: str, language: str = "text") -> str:
    """Build a block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def page(title: str, promise: str, *parts: str) -> str:
    """Build a page; the promise says what the reader can do after it."""
    return "\n".join([f"# {title}\n", f"{promise}\n", *parts])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
