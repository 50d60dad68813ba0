"""Figures as SVG that can be read on a white and on a dark page, and that do not change with the day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GREY = "#7d8590"
"""Legible on white and on a dark page."""


@contextmanager
def page(path: Path, width: float, height: float, *, salt: str) -> Iterator[Figure]:
    """Yield a figure to draw on, in inches; write it to ``path``; ``salt`` makes the SVG's ids its own."""
    style: dict[Any, Any] = {"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 10}
    for name in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"):
        style[name] = GREY
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def plain(axes: Any) -> None:
    """Remove all but two spines and a faint grid."""
    axes.patch.set_alpha(0.0)
    axes.minorticks_off()
    axes.grid(color=GREY, alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
