"""Sections of the page and lines of the terminal about the scores: monotone constraints and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from listwright.training.reporting import fit_figures as figures
from listwright.training.reporting.fit_figures import Facts
from listwright.training.reporting.page import PageFigure, PageSection, PageTable


def score_lines(details: Mapping[str, object], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the terminal's lines."""
    for row in _rows(details):
        yield f"{_constraint(row)}, {names[row['ranker']]}: {_wrong(row, 'scores')}, {_wrong(row, 'ranks')}."
    facts: Facts = details.get("calibration", {})  # type: ignore[assignment]
    stated: Facts | None = details.get("probability")  # type: ignore[assignment]
    if stated:
        yield f"{_sentence(stated)}. {rival_sentence(stated)}."
    elif facts:
        yield f"{calibration_title(facts)}."


def score_sections(report: Facts) -> list[PageSection]:
    """Return the page's sections; reports of earlier versions lack some."""
    facts, stated = (report["details"].get(name) for name in ("calibration", "probability"))
    sections = _monotone(report)
    if stated is not None:
        sections.append(_probability(stated, report["rankers"]))
    elif facts is not None and not facts.get("rankers"):
        missing = report["details"].get("no_probability")
        text = [NO_PROBABILITIES, *([f"There are no probabilities of being relevant: {missing}."] if missing else [])]
        sections.append(PageSection(calibration_title(facts), text))
    return sections


def _probability(facts: Facts, names: Mapping[str, str]) -> PageSection:
    titles = {"base_rate": "the same for all", "pointwise": "pointwise model", "undivided": "without a temperature"}
    rows = [
        [
            titles.get(row["by"]) or f"{ranker_name(row['by'], names)}\ntemperature {row['temperature']:.3g}",
            f"{row['ece']:.4f}\nchance {row['by_chance']['high']:.4f}, p {row['p']:.3f}",
            f"{row['log_loss']:.4f}\n" + "[{low:+.4f}, {high:+.4f}]".format_map(row["over_rival"]),
        ]
        for row in facts["stated"]
    ]
    choices = facts["lists"] is None
    event, rival = "chosen" if choices else "relevant", titles[facts["rival"]]
    meaning = (
        "A score is the probability of being chosen: each training and validation list has one choice. The service "
        "divides the scores of a list by the ranker's temperature, which was fitted on validation lists, and answers "
        "with their softmax. It does not change the order."
        if choices
        else "A score is a share of its list, and no probability. The probability of being relevant (label above 0) "
        f"was calibrated on {facts['lists']:,} validation lists: a pointwise LightGBM model gives the number of "
        "relevant candidates of a list, the ranker their order. It can be compared between lists."
    )
    note = (
        f"Error: expected calibration error, the mean distance between probability and share of {event} ones over all "
        "candidates. Chance: 95 % quantile of the error if all probabilities are right, drawn by lists; p: share of "
        "draws with an error at least as large. Log loss, small print: difference from the second row's. The same "
        f"for all: {'one divided by the length of the list' if choices else 'the share in the validation lists'}."
    )
    answering = _answering(facts)
    curves = {rival: facts["stated"][1], ranker_name(answering["by"], names): answering}
    figure = PageFigure(figures.reliability(curves, event), RELIABILITY_CAPTION)
    table = PageTable("", ["by", "error", "log loss"], rows, note)
    return PageSection(_sentence(facts), [meaning, f"{rival_sentence(facts)}."], [figure], [table])


def _answering(facts: Facts) -> Facts:
    """Return the measurement of the ranker that answers where a request names none."""
    answering: Facts = next(row for row in facts["stated"] if row["by"] == facts["answering"])
    return answering


def _sentence(facts: Facts) -> str:
    text = reliability_text(_answering(facts))
    return text[0].upper() + text[1:]


def rival_sentence(facts: Facts) -> str:
    """Return the log loss of the probabilities beside those of the rivals."""
    base, rival = facts["stated"][:2]
    answering, difference = _answering(facts), _answering(facts)["over_rival"]
    of_rival, of_base = "the pointwise model alone has", "one probability for all candidates has"
    if facts["lists"] is None:
        of_rival, of_base = "the softmax without a temperature has", "equal probabilities have"
    return (
        f"Log loss {answering['log_loss']:.4f}; {of_rival} {rival['log_loss']:.4f}, the difference is "
        "{mean:+.4f} [{low:+.4f}, {high:+.4f}]; ".format_map(difference)
        + f"{of_base} {base['log_loss']:.4f}"
    )


NO_PROBABILITIES = (
    "A score is the softmax of the ranker's output over the scored candidates of a list. The scores of a list sum to 1 "
    "and give its order. They are not probabilities of being chosen, and are comparable within one list only."
)

RELIABILITY_CAPTION = (
    "Candidates in bins of about as many expected relevant ones; bars: 95 % intervals over lists. On the line, "
    "probability and share are equal. Numbers: expected calibration error."
)

LEVEL = 0.05
"""Level of the test whether an error is more than chance."""


def calibration_title(facts: Facts) -> str:
    """Return the title where there are no probabilities: why scores are none."""
    lists, without = facts["lists"], facts["without_choice"]
    if facts["choices"]:
        return "Scores are not calibrated: too few lists have a choice among scored candidates"
    have = f"{without:,} of {lists:,} lists {'does' if without == 1 else 'do'} not have"
    return f"Scores are not probabilities on these data: {have} exactly one relevant candidate"


def ranker_name(ranker: str, names: Mapping[str, str]) -> str:
    """Return the ranker's name for display; specialists are in no table of rankers."""
    return names.get(ranker, ranker.upper())


def reliability_text(facts: Facts) -> str:
    """Return whether probabilities can be trusted, by their error beside that of chance."""
    trusted = "can be trusted" if facts["p"] > LEVEL else "have an error beyond chance"
    return f"probabilities {trusted}: ECE {facts['ece']:.4f}, chance alone gives up to {facts['by_chance']['high']:.4f}"


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
