"""Pictures of the loop: looks by place, and the true quality of both rankers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GREY, BLUE = "#7d8590", "#2f81f7"
"""Legible on white and on a dark page."""


def draw_examination(path: Path, estimate: Sequence[Mapping[str, float]], planted: Sequence[float]) -> None:
    """Write an SVG: how likely each place is looked at, estimated and planted.

    Args:
        path: Path of the file.
        estimate: Rows with ``position``, ``propensity``, ``low`` and ``high`` of each place.
        planted: True probability of examination of each place, relative to the first.
    """
    places = [place["position"] for place in estimate]
    values = [place["propensity"] for place in estimate]
    below = [max(0.0, place["propensity"] - place["low"]) for place in estimate]
    above = [max(0.0, place["high"] - place["propensity"]) for place in estimate]
    with _figure(path, (6.4, 2.8)) as axes:
        axes.plot(range(1, len(planted) + 1), planted, color=GREY, label="planted")
        axes.errorbar(places, values, yerr=[below, above], fmt="o", color=BLUE, capsize=3, label="estimated, 95 %")
        axes.set_xlabel("shown place")
        axes.set_ylabel("looks, relative to the first")
        axes.set_xticks(range(1, len(planted) + 1))
        axes.set_ylim(0, None)
        axes.legend(frameon=False)


def draw_truth(path: Path, means: Mapping[str, tuple[float, float]]) -> None:
    """Write an SVG: mean true NDCG@10 of each ranker and half the width of its 95 % interval."""
    with _figure(path, (6.4, 0.5 * len(means) + 0.9)) as axes:
        names = list(means)[::-1]
        for at, name in enumerate(names):
            mean, half = means[name]
            axes.errorbar([mean], [at], xerr=[half], fmt="o", color=BLUE, capsize=3)
            axes.annotate(f"{mean:.3f}", (mean, at), (0, 7), textcoords="offset points", ha="center", color=GREY)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.6, len(names) - 0.3)
        axes.set_xlabel("true NDCG@10 of held-out queries")


@contextmanager
def _figure(path: Path, size: tuple[float, float]) -> Iterator[Axes]:
    style: dict[Any, Any] = {"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 10}
    parts = ("text.color", "xtick.color", "ytick.color", "axes.labelcolor", "axes.edgecolor")
    with mpl.rc_context(style | dict.fromkeys(parts, GREY)):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
