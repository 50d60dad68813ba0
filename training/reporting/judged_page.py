"""The page of a judgement, and the sentences and tables that the terminal shares with it."""

from __future__ import annotations

import json

from listwright.training.evaluation.intervals import verdict_of
from listwright.training.evaluation.protocol import HEADLINE, METRICS
from listwright.training.evaluation.reliability import RELIABILITY
from listwright.training.reporting import fit_figures as figures
from listwright.training.reporting.fit_figures import Facts, metric_name
from listwright.training.reporting.page import PageFigure, PageSection, PageTable, render
from listwright.training.reporting.score_sections import RELIABILITY_CAPTION, reliability_text

MOST_DRAWN = 20
"""Segments of the figure."""


def page(facts: Facts) -> str:
    """Return the page as HTML.

    Args:
        facts: Facts of :func:`listwright.training.evaluation.gates.facts_of`, with the ``command`` and the ``gates``,
            each as of :func:`listwright.training.evaluation.gates.as_json`.
    """
    rankers = facts["compared"]
    title = f"{rankers[1]} over {rankers[0]}" if len(rankers) > 1 else rankers[0]
    sections = [_metrics(facts)]
    if facts.get("reliability"):
        sections.append(_reliability(facts))
    if facts["segments"]:
        sections.append(_segments(facts))
    settings = {name: facts[name] for name in ("metrics", "segments", "further_segments", "gates")}
    return render(
        f"{title}: {facts['lists']:,} lists",
        [text for text in (gain_sentence(facts), *gate_sentences(facts), *facts["scope"], *facts["notes"]) if text],
        sections,
        command=facts["command"],
        facts=[
            f"{facts['rows']:,} candidates; {facts['empty_queries']:,} lists without a relevant one.",
            f"Protocol: {facts['protocol']}.",
            f"Intervals: {facts['interval']}.",
        ],
        settings=json.dumps(settings, indent=1),
        key_figures=_key_figures(facts),
    )


def gain_sentence(facts: Facts) -> str:
    """Return what the second ranker gains over the first; empty where there is one."""
    if "gains" not in facts:
        return ""
    estimate = facts["gains"][HEADLINE]
    first, second = facts["compared"]
    return (
        f"{second} over {first}, {metric_name(HEADLINE)}: {_estimate_text(estimate, paired=True)}: "
        f"{verdict_of(estimate['low'], estimate['high'])} (paired, 95 %, {_lists_text(facts, facts['lists'])})"
    )


def _lists_text(facts: Facts, count: int) -> str:
    return f"{count:,} lists" + (", shared candidates only" if facts["shared_only"] else "")


def gate_sentences(facts: Facts) -> list[str]:
    """Return the verdict of each gate, and by what."""
    paired, sentences = "gains" in facts, []
    for gate, result in facts["gates"].items():
        word = "difference" if "<=" in gate else "gain"
        measured = f"{word} " if paired else f"mean {result['estimate']['mean']:.4f} "
        measured += _estimate_text(result["estimate"], paired=paired)
        sentence = f"Gate {gate}: {result['verdict']}: {measured}, {_lists_text(facts, result['lists'])}"
        for segment in result["segments"]:
            sentence += (
                f"; {segment['column']} = {segment['value']}: {_estimate_text(segment['estimate'], paired=paired)}, "
                f"{segment['lists']:,} lists"
            )
        if result["lists_needed"] is not None:
            sentence += f"; about {result['lists_needed']:,} lists like these would decide it"
        sentences.append(sentence)
    return sentences


def segment_head(facts: Facts, metric: str = HEADLINE) -> list[str]:
    """Return the head of the table of segments."""
    paired = "difference" if metric in RELIABILITY else "gain"
    return ["column", "value", "lists", *facts["compared"], paired if "gains" in facts else "interval"]


def further_metrics(facts: Facts) -> list[str]:
    """Return the metrics besides those of the labels' order: by goals, and of probabilities."""
    return [name for name in dict.fromkeys(metric["name"] for metric in facts["metrics"]) if name not in METRICS]


def segment_rows(facts: Facts, metric: str = HEADLINE) -> list[list[str]]:
    """Return the rows of the table of segments."""
    rows = []
    for segment in facts["segments"] if metric == HEADLINE else facts["further_segments"][metric]:
        means = (f"{mean:.4f}" for mean in segment["means"])
        estimate = _estimate_text(segment["estimate"], paired="gains" in facts)
        rows.append([segment["column"], segment["value"], f"{segment['lists']:,}", *means, estimate])
    return rows


def _estimate_text(estimate: Facts, *, paired: bool) -> str:
    """Return a gain with its interval; of a mean, which stands beside it, the interval."""
    mean, low, high = (estimate[name] for name in ("mean", "low", "high"))
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]" if paired else f"[{low:.4f}, {high:.4f}]"


def _key_figures(facts: Facts) -> list[tuple[str, str]]:
    by_ranker = {metric["ranker"]: metric for metric in facts["metrics"] if metric["name"] == HEADLINE}
    key_figures = [(f"{by_ranker[name]['mean']:.4f}", f"{metric_name(HEADLINE)}, {name}") for name in facts["compared"]]
    if "gains" in facts:
        key_figures.append((f"{facts['gains'][HEADLINE]['mean']:+.4f}", "gain"))
    return [*key_figures, (f"{facts['lists']:,}", "lists")]


def _metrics(facts: Facts) -> PageSection:
    """Return the table of all metrics, the compared rankers first."""
    names = list(dict.fromkeys(metric["name"] for metric in facts["metrics"]))
    cells = {(metric["ranker"], metric["name"]): metric for metric in facts["metrics"]}
    rankers, paired = facts["compared"], "gains" in facts
    others = [ranker for ranker in facts["rankers"] if ranker not in rankers]
    rows = []
    for name in names:
        own = {ranker: cells.get((ranker, name)) for ranker in facts["rankers"]}
        means = {r: f"{of['mean']:.4f}\n[{of['low']:.4f}, {of['high']:.4f}]" if of else "" for r, of in own.items()}
        gain = [_estimate_text(facts["gains"][name], paired=True) if name in facts["gains"] else ""] if paired else []
        rows.append([metric_name(name), *(means[ranker] for ranker in rankers), *gain, *(means[r] for r in others)])
    head = ["", *rankers, *(["gain"] if paired else []), *others]
    note = f"The gain is that of {rankers[1]} over {rankers[0]}, query by query." if paired else ""
    if "log_loss" in names:
        note += " Of log loss and ECE, lower is better."
    return PageSection(tables=[PageTable("All metrics", head, rows, note)])


def _reliability(facts: Facts) -> PageSection:
    """Return the diagram of the probabilities."""
    stated = facts["reliability"]
    figure = figures.reliability(stated, "relevant")
    sentences = [f"{name}: {reliability_text(of)}." for name, of in stated.items()]
    return PageSection("Probabilities", sentences, [PageFigure(figure, RELIABILITY_CAPTION)])


def _segments(facts: Facts) -> PageSection:
    paired, segments = "gains" in facts, facts["segments"][:MOST_DRAWN]
    measured = f"gain in {metric_name(HEADLINE)}" if paired else metric_name(HEADLINE)
    figure = figures.by_segment(
        [tuple(segment["estimate"].values()) for segment in segments],
        [f"{segment['column']} {segment['value']}" for segment in segments],
        measured,
        gains=paired,
    )
    caption = "Each segment with its interval; 95 % for all segments together."
    losing = [segment for segment in facts["segments"] if segment["estimate"]["high"] < 0.0]
    title = "No segment has a significant loss" if paired else "By segment"
    if paired and losing:
        title = f"{len(losing)} of {len(facts['segments'])} segments have a significant loss"
    few = "Values with fewer than 20 lists are combined."
    tables = [PageTable("", segment_head(facts), segment_rows(facts), few)]
    for metric in facts["further_segments"]:
        tables.append(PageTable(metric_name(metric), segment_head(facts, metric), segment_rows(facts, metric)))
    return PageSection(title, (), [PageFigure(figure, caption)], tables)
