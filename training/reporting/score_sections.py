"""Sections of the page and lines of the terminal about the scores: monotone constraints and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from listwright.training.evaluation.intervals import verdict_of
from listwright.training.reporting import fit_figures as figures
from listwright.training.reporting.fit_figures import Facts
from listwright.training.reporting.page import PageFigure, PageSection, PageTable


def score_lines(details: Mapping[str, object], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the terminal's lines."""
    for row in _rows(details):
        yield f"{_constraint(row)}, {names[row['ranker']]}: {_wrong(row, 'scores')}, {_wrong(row, 'ranks')}."
    facts: Facts = details.get("calibration", {})  # type: ignore[assignment]
    if facts:
        yield f"{calibration_title(facts)}."
    for ranker in facts.get("rankers", []):
        yield (
            f"{ranker_name(ranker['ranker'], names)}, temperature {ranker['temperature']:.3g}"
            f"{' (a fitted one is no better)' if ranker['temperature'] == 1.0 else ''}: expected calibration error "
            f"{_error(ranker['before'])} before, {_error(ranker['after'])} after; {top_sentence(ranker)}."
        )


def score_sections(report: Facts) -> list[PageSection]:
    """Return the page's sections; reports of earlier versions have none."""
    return [*_monotone(report), *_calibration(report)]


def _calibration(report: Facts) -> list[PageSection]:
    facts = report["details"].get("calibration")
    if facts is None:
        return []
    if not facts["rankers"]:
        return [PageSection(calibration_title(facts), [UNMEASURED if _calibrated(facts) else NO_PROBABILITIES])]
    names = report["rankers"]
    answers = report.get("default_strategy", {}).get("strategy")
    answering = next((ranker for ranker in facts["rankers"] if ranker["ranker"] == answers), facts["rankers"][0])
    cells = [
        [
            ranker_name(ranker["ranker"], names),
            f"{ranker['temperature']:.3g}",
            *(_error(ranker[when]).replace(" (", "\n(") for when in WHEN),
            *(f"{ranker['log_probability'][when]:.3f}" for when in ("even", *WHEN)),
            f"{ranker['top']['score']:.3f}\n{ranker['top']['chosen']:.3f} chosen",
        ]
        for ranker in facts["rankers"]
    ]
    text = [
        f"Each list has one chosen candidate{_left_out(facts)}. The service divides the scores of a list by the "
        "ranker's temperature, and answers with their softmax. The temperature was fitted on validation lists. It does "
        "not change the order.",
        f"{ranker_name(answering['ranker'], names)}: {top_sentence(answering)}. {gain_sentence(answering)}"
        f"{chance_sentence(answering['after'])}",
    ]
    head = ["ranker", "temperature", "error before", "error after", "log P even", "before", "after", "first candidate"]
    note = (
        "Error: expected calibration error, the mean distance between probability and share chosen over all scored "
        "candidates. By chance: 95 % quantile of the error in simulations where all probabilities are right; p: share "
        "of simulations with an error at least as large. Log P: mean log-probability of the choice; even: with equal "
        "scores. First candidate: its mean probability, and how often it is chosen."
    )
    caption = (
        f"{ranker_name(answering['ranker'], names)} on {answering['lists']} test lists. Candidates in bins of about as "
        "many expected choices; bars: 95 % intervals over lists. On the line, probability and share are equal."
    )
    page_figures = [PageFigure(figures.reliability(answering), caption)]
    return [PageSection(calibration_title(facts), text, page_figures, [PageTable("", head, cells, note)])]


NO_PROBABILITIES = (
    "A score is the softmax of the ranker's output over the scored candidates of a list. The scores of a list sum to 1 "
    "and give its order. They are not probabilities of being chosen, and are comparable within one list only."
)

UNMEASURED = "No test list has a choice among scored candidates: how well scores are calibrated is not measured."

WHEN = ("before", "after")

LEVEL = 0.05
"""Level of the test whether an error is more than chance."""


def calibration_title(facts: Facts) -> str:
    """Return the title: whether scores are probabilities."""
    lists, without = facts["lists"], facts["without_choice"]
    if not facts["choices"]:
        have = f"{without:,} of {lists:,} lists {'does' if without == 1 else 'do'} not have"
        return f"Scores are not probabilities on these data: {have} exactly one relevant candidate"
    if not facts["rankers"] and not _calibrated(facts):
        return "Scores are not calibrated: too few lists have a choice among scored candidates"
    if without:
        return "A score is the probability of being chosen: each training and validation list has one choice"
    return f"A score is the probability of being chosen: each of {lists:,} lists has one choice"


def _calibrated(facts: Facts) -> bool:
    """Return whether the bundle has temperatures; reports of earlier versions have measured all."""
    return bool(facts.get("calibrated", facts["rankers"]))


def _left_out(facts: Facts) -> str:
    """Return the exception of the test lists that have no choice, or several; empty where there are none."""
    without = facts["without_choice"]
    return f", except {without:,} test lists, which are not measured here" if without else ""


def top_sentence(ranker: Facts) -> str:
    """Return the best candidate's stated probability, and how often it was chosen."""
    stated, share = ranker["top"]["score"], ranker["top"]["chosen"]
    return f"the first candidate has probability {stated:.3f} on average and is chosen in {share:.3f} of lists"


def gain_sentence(ranker: Facts) -> str:
    """Return how the temperature changes the likelihood of unseen choices, or why it is 1."""
    if ranker["temperature"] == 1.0:
        return "The temperature is 1: a fitted one does not make the choices of held-out validation lists more likely."
    gain = ranker["log_probability"]["gain"]
    verdict = verdict_of(gain["low"], gain["high"])
    text = f"changes the log-probability of a choice by {gain['mean']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]"
    return f"The temperature {text}: {verdict}."


def chance_sentence(facts: Facts) -> str:
    """Return whether the error exceeds that of right probabilities; empty in reports of earlier versions."""
    if "p" not in facts:
        return ""
    high = f"{facts['by_chance']['high']:.4f}"
    if facts["p"] > LEVEL:
        return f" The error is not significant: right probabilities have up to {high} by chance."
    return f" The error is significant: right probabilities have up to {high} by chance, p = {facts['p']:.3f}."


def ranker_name(ranker: str, names: Mapping[str, str]) -> str:
    """Return the ranker's name for display; specialists are in no table of rankers."""
    return names.get(ranker, ranker.upper())


def _error(facts: Facts) -> str:
    """Format the error with what chance explains; reports of earlier versions lack the latter."""
    if "p" not in facts:
        return f"{facts['ece']:.4f}"
    return f"{facts['ece']:.4f} (by chance up to {facts['by_chance']['high']:.4f}, p {facts['p']:.3f})"


def _monotone(report: Facts) -> list[PageSection]:
    rows = _rows(report["details"])
    if not rows:
        return []
    cells = [
        [
            _constraint(row),
            report["rankers"][row["ranker"]],
            f"{row['moved']:,}",
            _count(row, "scores"),
            _count(row, "ranks"),
        ]
        for row in rows
    ]
    text = (
        "A test candidate gets a larger value of the feature, drawn from the training rows; all else stays the same. "
        "Wrong: its score, or its place in the list, moves against the constraint. The constraint binds the trees of "
        "the first stage, not a second stage. If every answer must obey it, request strategy=first_stage."
    )
    head = ["constraint", "ranker", "moved", "scores wrong", "places wrong"]
    return [PageSection(_title(rows), [text], (), [PageTable("", head, cells)])]


def _title(rows: list[Facts]) -> str:
    moved, wrong = (sum(row[name] for row in rows) for name in ("moved", "scores_wrong"))
    if not moved:
        return "No test candidate could be changed: monotone constraints are not measured"
    if not wrong:
        return f"No score moved against a monotone constraint in {moved:,} trials"
    worst = max(rows, key=lambda row: row["scores_wrong"] / max(1, row["moved"]))
    return f"Up to {_share(worst, 'scores')} of scores move against a monotone constraint"


def _rows(details: Mapping[str, object]) -> list[Facts]:
    rows: list[Facts] = details.get("monotone", [])  # type: ignore[assignment]
    return rows


def _constraint(row: Facts) -> str:
    return f"{row['feature']} {row['direction']:+d}".replace("-", "\N{MINUS SIGN}")


def _wrong(row: Facts, what: str) -> str:
    return f"{row[f'{what}_wrong']} of {row['moved']} {what} move the wrong way ({_share(row, what)})"


def _count(row: Facts, what: str) -> str:
    return f"{row[f'{what}_wrong']:,}\n{_share(row, what)}"


def _share(row: Facts, what: str) -> str:
    return f"{100.0 * row[f'{what}_wrong'] / max(1, row['moved']):.1f} %"
