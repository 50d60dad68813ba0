"""Tables that tests make stand on a page between two comments: figures of committed results, and settings of the code."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"<!-- (figures|settings): begin -->\n(.*?)<!-- \1: end -->", re.DOTALL)


def page(name):
    """Text of a page, by its path from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def result(name):
    """A committed measurement."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def blocks(text):
    """The tables between the comments, in the order of the page."""
    return [found[2] for found in BLOCK.finditer(text)]


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Markdown of a table."""
    lines = ["|".join(["", *(f" {cell} " if str(cell) else " " for cell in line), ""]) for line in [head, *rows]]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def excerpt(whole, shown):
    """Members of ``whole`` that an example shows; its floats have four decimals."""
    if isinstance(shown, dict):
        return {name: excerpt(whole[name], value) for name, value in shown.items()}
    if isinstance(shown, list):
        return [excerpt(*pair) for pair in zip(whole, shown, strict=True)]
    return round(whole, 4) if isinstance(whole, float) else whole


def gain(found, digits=3):
    """A gain with its interval, from its three numbers."""
    mean, low, high = (f"{figure:+.{digits}f}" for figure in found)
    return f"{mean} [{low}, {high}]"


def interval(found, digits=3):
    """A mean, or a gain, with its interval."""
    mean, low, high = (f"{found[name]:+.{digits}f}" for name in ("mean" if "mean" in found else "gain", "low", "high"))
    return f"{mean} [{low}, {high}]"
