"""The section of the page, and the lines of the terminal, about several goals: the front of their weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape

from matplotlib.axes import Axes

from listwright.training.recipe.config import Goals
from listwright.training.reporting.fit_figures import BLUE, ORANGE, Facts, drawable
from listwright.training.reporting.page import PageFigure, PageSection, PageTable, plot


def goal_lines(details: Mapping[str, object]) -> Iterator[str]:
    """Yield the terminal's lines, one for each goal."""
    facts: Facts = details.get("goals", {})  # type: ignore[assignment]
    if not facts:
        return
    names, default, alone = _ends(facts)
    for number, name in enumerate(names):
        after, before = default["test"][number], alone["test"][number]
        yield (
            f"Goal {name}: weight {default['weights'][number]:g}, NDCG@10 {after:.4f} by default, {before:.4f} in the "
            f"order of {names[0]} alone ({_change(after, before, relative=number > 0)})."
        )


def goals_section(report: Facts) -> list[PageSection]:
    """Return the page's section; empty for a bundle of one goal."""
    facts = report["details"].get("goals")
    if facts is None:
        return []
    names, default, alone = _ends(facts)
    label, cost = names[0], alone["test"][0] - default["test"][0]
    others = range(1, len(names))
    changes = [f"{names[number]} {_change(default['test'][number], alone['test'][number])}" for number in others]
    title = f"{', '.join(changes)} NDCG@10 at a cost of {cost:.4f} by {label}: the default weights, on test queries"
    text = [
        f"A request without weights is answered with {_json(names, default)}. Each point of the front is a choice of "
        f"weights, measured against the order of {label} alone. All other figures of this page are of that order."
    ]
    options = Goals.model_validate(report["recipe"].get("goals", {}))
    with_option = {*dict(options.weights), *dict(options.ratios)}
    useless = [goal["name"] for goal in facts["others"] if not goal["weight"] and goal["name"] not in with_option]
    if useless:
        text.append(
            f"The default weight of {', '.join(useless)} is 0: on the validation queries, no larger one was shown to "
            f"cost at most {options.cost:g} by {label} and brought a gain."
        )
    rows = [
        [_json(names, point), *map("{:.4f}\n{:.4f}".format, point["test"], point["valid"])] for point in facts["front"]
    ]
    note = "NDCG@10 by each goal on test queries; small print: on the validation queries, by which points were chosen."
    caption = (
        "NDCG@10 on test queries. Orange: the default weights. A point's weights, gains and losses are shown where the "
        "pointer rests on it."
    )
    figures = [PageFigure(_draw_front(facts, number), caption) for number in others]
    return [PageSection(title, text, figures, [PageTable("", ["weights", *names], rows, note)])]


def _draw_front(facts: Facts, number: int) -> str:
    """Draw NDCG by a goal against that by the label, a point with a title for each choice of weights."""
    names, default, alone = _ends(facts)
    image = _draw_points(facts["front"], default, names, number)
    for place, point in enumerate(facts["front"]):
        changes = (
            f"{name} {after:.4f} ({_change(after, before)})"
            for name, after, before in zip(names, point["test"], alone["test"], strict=True)
        )
        group, title = f'<g id="front-{number}-point-{place}">', f"{_json(names, point)}: {', '.join(changes)}"
        image = image.replace(group, f"{group}<title>{escape(title)}</title>")
    return image


@plot()
def _draw_points(axes: Axes, front: list[Facts], default: Facts, names: list[str], number: int) -> tuple[str, str]:
    if len(names) == 2:
        axes.plot(*zip(*(point["test"] for point in front), strict=True), color=BLUE, linewidth=1)
    for place, point in enumerate(front):
        size, colour, order = (9, ORANGE, 4) if point is default else (5, BLUE, 3)
        ndcg = point["test"][0], point["test"][number]
        axes.plot(*ndcg, "o", color=colour, markersize=size, zorder=order, gid=f"point-{place}")
    axes.set(xlabel=f"NDCG@10 by {drawable(names[0])}", ylabel=f"NDCG@10 by {drawable(names[number])}")
    return f"front-{number}", f"NDCG by {names[number]} against NDCG by {names[0]}, for {len(front)} choices of weights"


def _ends(facts: Facts) -> tuple[list[str], Facts, Facts]:
    """Return the names of the goals, the point of the default weights, and that of the label alone."""
    others, front = facts["others"], facts["front"]
    weights = [facts["weight"], *(goal["weight"] for goal in others)]
    default = next(point for point in front if point["weights"] == weights)
    alone = next(point for point in front if not any(point["weights"][1:]))
    return [facts["label"], *(goal["name"] for goal in others)], default, alone


def _change(after: float, before: float, *, relative: bool = True) -> str:
    return f"{after / before - 1.0:+.1%}".replace("%", " %") if relative and before else f"{after - before:+.4f}"


def _json(names: list[str], point: Facts) -> str:
    weights = (round(weight, 4) for weight in point["weights"])
    return json.dumps(dict(zip(names, weights, strict=True)), ensure_ascii=False)
