"""A result as one self-contained page: nothing is fetched, light and dark, readable on a telephone."""

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
    """Rows of cells as they are to be read; what follows a line break in a cell is printed small below it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page.

    Args:
        title: the finding, as a sentence where the data allow one; empty for a part without a heading or text.
        text: paragraphs below it.
        figures, tables: side by side where there is room; a single one stands beside the text.
    """

    title: str = ""
    text: Sequence[str] = ()
    figures: Sequence[PageFigure] = ()
    tables: Sequence[PageTable] = ()


def render(
    title: str,
    verdicts: Sequence[str],
    sections: Sequence[PageSection],
    *,
    command: str,
    facts: Sequence[str],
    settings: str,
    numbers: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as HTML.

    Args:
        title: what was measured, on what.
        verdicts: what it says, in whole sentences; first on the page.
        sections: in this order below them.
        command: that repeats it.
        facts: data, protocol, versions.
        settings: the recipe, folded away.
        numbers: a few that matter most, each with what it is; shown large.
    """
    template = (resources.files("listwright.training") / "reporting" / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        title=title,
        verdicts=verdicts,
        numbers=numbers,
        sections=sections,
        command=command,
        facts=facts,
        settings=settings,
    )
    return page.replace(" %", "\u00a0%")  # never alone at the beginning of a line
