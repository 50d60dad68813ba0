"""What a run's page says of the data and of the choice: what was pointed out, what was compared, how far test rows lie
outside training.
"""

from __future__ import annotations

from listwright.training.evaluation.intervals import FEWEST, SAME
from listwright.training.reporting.fit_figures import Facts
from listwright.training.reporting.page import PageSection, PageTable
from listwright.training.reporting.sentences import budget_sentences, compared_rows, coverage_sentence


def notes_section(report: Facts) -> list[PageSection]:
    """What was pointed out about the data; reports of earlier versions say nothing of it."""
    notes = [f"{note}." for note in report.get("notes", [])]
    title = "Before the fit, one thing was" if len(notes) == 1 else f"Before the fit, {len(notes)} things were"
    return [PageSection(f"{title} pointed out about the data", notes)] if notes else []


def choice_section(report: Facts) -> list[PageSection]:
    """What the default was chosen by; nothing where it was not chosen."""
    compared = compared_rows(report.get("default_strategy", {}), report["rankers"], report.get("budget"))
    rows = [[ranker, over, f"{gain}\n{verdict}"] for ranker, over, gain, verdict in compared]
    if not rows:
        return []
    rankers = {one["ranker"] for one in report["default_strategy"]["compared"]}
    text = [f"No model fitted here ranks a query that it was trained on. Fewer than {FEWEST} queries choose nothing."]
    if "relative" in rankers:
        text.append(
            f"LightGBM takes list-relative columns if its mean gain is above {SAME:g}, or its interval above 0."
        )
    if rankers != {"relative"}:
        text.append(
            "A second stage becomes the default if the 95 % interval of its gain lies above 0; those of several second "
            "stages hold together (Bonferroni)."
        )
    text.append("The test split takes no part.")
    text += budget_sentences(report.get("budget"))
    table = PageTable("", ["ranker", "over", "NDCG gain"], rows)
    return [PageSection("How the default was chosen", [" ".join(text)], (), [table])]


def coverage_section(found: Facts) -> PageSection:
    """How far the test rows lie outside what training saw."""
    rows = [
        [
            name,
            _percent(missing) + ("" if trained is None else f"\n{_percent(trained)} in training"),
            *map(_percent, more),
        ]
        for name, trained, missing, *more in found["rows"]
    ]
    text = (
        "Shares of test rows. Beyond: outside the 0.1 % to 99.9 % quantiles of "
        "training, where the networks clip; about 0.2 % is what chance gives. Unknown: a category that training did "
        "not see, or none."
    )
    if found["listed"] > len(rows):
        text += f" Listed: the {len(rows)} features that differ most from training."
    elif found["listed"] < found["features"]:
        text += " Features without any of these are not listed."
    head = ["feature", "missing", "beyond", "unknown"]
    tables = [PageTable("", head, rows)] if rows else []
    return PageSection(coverage_sentence(found), [text], (), tables)


def _percent(share: float | None) -> str:
    if share is None:
        return "·"
    return "0" if share == 0 else "< 0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")
