"""A suite's result as one self-contained page: nothing is fetched, light and dark, readable on a telephone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined


@dataclass(frozen=True, slots=True)
class PageFigure:
    """An SVG and what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows of cells as they are to be read."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def render(
    title: str,
    verdicts: Sequence[str],
    figures: Sequence[PageFigure],
    tables: Sequence[PageTable],
    *,
    command: str,
    facts: Sequence[str],
    settings: str,
) -> str:
    """The page as HTML.

    Args:
        title: what was measured, on what.
        verdicts: what it says, in whole sentences; first on the page.
        figures, tables: in this order below them.
        command: that repeats it.
        facts: data, protocol, versions.
        settings: the recipe, folded away.
    """
    template = (resources.files("training") / "experiments" / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=title,
        verdicts=verdicts,
        figures=figures,
        tables=tables,
        command=command,
        facts=facts,
        settings=settings,
    )
