"""A result as one self-contained page, and how its figures look.

Nothing is fetched; it is readable on a telephone, light and dark. Figures are SVG with text, in the page's own colours.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import resources
from typing import Any, Concatenate, ParamSpec

import matplotlib as mpl
from jinja2 import Environment, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

P = ParamSpec("P")

COLOURS = ("#0b6bb0", "#c4540a", "#0a8262", "#a5518a", "#6b5fc7", "#8f6a00")
"""Series, told apart by colour-blind readers too where only the first three are used; ``--c1`` to ``--c6`` of the
page, which has lighter ones for dark."""

INK, SOFT, RULE = "#1d1f21", "#5b6066", "#dcdfe2"
"""Colours of text and reference lines; of axis labels; of the grid."""

_VARIABLES = {INK: "--ink", SOFT: "--soft", RULE: "--rule"} | {c: f"--c{n}" for n, c in enumerate(COLOURS, start=1)}

_STYLE: Any = {
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.labelsize": 9.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "font.size": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "xtick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.color": RULE,
    "ytick.labelcolor": SOFT,
    "svg.fonttype": "none",
    "svg.hashsalt": "listwright",
}

WIDTH, HEIGHT = 4.6, 3.0
"""Inches; narrow, so that letters stay readable where a telephone shrinks it."""


@dataclass(frozen=True, slots=True)
class PageFigure:
    """An SVG with its caption."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows of cells as text; what follows a line break in a cell is printed small below it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page.

    Args:
        title: Finding, as a sentence where the data allow one; empty for a part without a heading or text.
        text: Paragraphs below it.
        figures, tables: Figures and tables, side by side where there is room; a single one stands beside the text.
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
    key_figures: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page as HTML.

    Args:
        title: Title of the page.
        verdicts: Conclusions in whole sentences; first on the page.
        sections: Sections below them, in this order.
        command: Command that repeats the result.
        facts: Data, protocol, versions.
        settings: Recipe, folded away.
        key_figures: Numbers that matter most, each with its meaning; shown large.
    """
    template = (resources.files("listwright.training") / "reporting" / "page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        title=title,
        verdicts=verdicts,
        key_figures=key_figures,
        sections=sections,
        command=command,
        facts=facts,
        settings=settings,
    )
    return page.replace(" %", "\u00a0%")  # never alone at the beginning of a line


@contextmanager
def style() -> Iterator[None]:
    """Give figures that are text and saved inside the page's style."""
    with mpl.rc_context(_STYLE):
        yield


def plot(
    *, height: float = HEIGHT, legend_columns: int = 0
) -> Callable[[Callable[Concatenate[Axes, P], tuple[str, str]]], Callable[P, str]]:
    """Return a decorator of functions that draw one plot: they get its axes, and callers get its SVG.

    Args:
        height: Height of the figure in inches.
        legend_columns: Number of columns of the legend; 0 for none.

    The function returns the name and the description that :func:`svg` takes.
    """

    def decorate(draw: Callable[Concatenate[Axes, P], tuple[str, str]]) -> Callable[P, str]:
        @wraps(draw)
        def render_plot(*args: P.args, **options: P.kwargs) -> str:
            with style():
                figure = Figure(figsize=(WIDTH, height), layout="constrained")
                name, description = draw(figure.add_subplot(), *args, **options)
                if legend_columns:
                    legend(figure, legend_columns)
                return svg(figure, name, description)

        return render_plot

    return decorate


def legend(figure: Figure, columns: int) -> None:
    """Draw the legend above the plots, where it covers nothing."""
    figure.legend(loc="outside upper left", ncols=columns, borderpad=0.0, columnspacing=1.4, handlelength=1.4)


def svg(figure: Figure, name: str, says: str) -> str:
    """Return the figure as an element of a page; the same bytes at every run.

    Args:
        figure: Figure made inside :func:`style`, of the colours above.
        name: Name that is unique on the page, of letters and hyphens: ids are told apart by it.
        says: Description of the figure, for readers who cannot see it.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():  # the page's reader has fonts for letters that this machine lacks
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(f": {colour}", f": var({variable})")
    label = says.replace("&", "and").replace('"', "'").replace("<", "below")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
