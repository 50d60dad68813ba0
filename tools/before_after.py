"""The demo's query before and after: how each candidate moves from the first stage's order to the second stage's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GREY = "#7d8590"
"""Legible on white and on a dark page."""

COLOURS = {1: "#d29922", 2: "#2f81f7", 3: "#3fb950", 4: "#3fb950"}
"""By label; candidates of label 0 are grey."""


def draw(path: Path, results: list[dict[str, Any]], labels: list[int], names: tuple[str, str]) -> None:
    """Write an SVG.

    Args:
        path: of the file.
        results: of the service's answer, each with ``rank``, ``first_stage_rank``, ``index`` and ``id``.
        labels: ``(L,)`` in input order.
        names: of the two rankers.
    """
    with mpl.rc_context({"svg.hashsalt": "before-after", "svg.fonttype": "none", "font.size": 10, "text.color": GREY}):
        figure = Figure(figsize=(7.2, 0.3 * len(results) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for one in results:
            label = labels[one["index"]]
            colour, width = COLOURS.get(label, GREY), 2.2 if label else 1.0
            heights = (one["first_stage_rank"], one["rank"])
            axes.plot((0, 1), heights, color=colour, linewidth=width, marker="o", alpha=1.0 if label else 0.6)
            told = f"{one['id']}  {'★' * label}".rstrip()
            axes.text(-0.04, heights[0], told, ha="right", va="center", color=colour)
            axes.text(1.04, heights[1], told, ha="left", va="center", color=colour)
        for at, side, name in ((0, "right", names[0]), (1, "left", names[1])):
            axes.text(at, -0.3, name, ha="center", va="center", weight="bold")
            for rank in range(1, len(results) + 1):
                axes.text(at + (-0.42 if side == "right" else 0.42), rank, str(rank), ha="center", va="center", size=8)
        axes.set_xlim(-0.5, 1.5)
        axes.set_ylim(len(results) + 0.5, -0.8)
        axes.axis("off")
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
